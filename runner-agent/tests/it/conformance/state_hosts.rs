//! Hosts of runners that share a server, for tests of the state with which a job begins.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::ids::{ExecutionId, InstallId, JobId};
use install_keys::{InstallKeys, Seed};
use runner_agent::{
    host,
    journal::{Entry, JournalEvent},
    plugins::{Background, Cancel},
    state::{
        Access, Cipher, Decision, Known, KnownState, Online, Remote, Session, StateError,
        StateKeys, StateMark, StateRefusal, StateStore, known,
    },
};
use schemas::{
    manifest::{self, Fence, StateVersion},
    runner::{JobClass, JobKind, StateHead},
};
use tempfile::TempDir;
use ulid::Ulid;
use zeroize::Zeroizing;

use super::state_server::{StateServer, Uploads};

#[derive(Debug)]
pub struct Quiet;

impl Background for Quiet {
    fn secret(&self, _: Zeroizing<String>) {}
    fn line(&self, _: &str) {}
    fn state(&self, _: &str, _: &StateHead) -> io::Result<()> {
        Ok(())
    }
}

/// Journal of a host.
#[derive(Debug, Clone, Default)]
pub struct Records(Arc<Mutex<Vec<Entry>>>);

impl Records {
    pub fn add(&self, event: JournalEvent) {
        self.0.lock().unwrap().push(Entry { at: host::now(), event });
    }

    pub fn entries(&self) -> Vec<Entry> {
        let entries = self.0.lock().unwrap();
        entries.iter().map(|entry| Entry { at: entry.at, event: entry.event.clone() }).collect()
    }

    pub fn seen(&self, mark: &StateMark, digest: Option<String>) {
        let (execution, component) = (ExecutionId(Ulid::nil()), "web".into());
        let StateMark { lineage, serial } = mark.clone();
        self.add(JournalEvent::StateSeen { execution, component, lineage, serial, digest });
    }
}

impl Background for Records {
    fn secret(&self, _: Zeroizing<String>) {}
    fn line(&self, _: &str) {}
    fn state(&self, _: &str, head: &StateHead) -> io::Result<()> {
        let mark = StateMark { lineage: Some(head.lineage.clone()), serial: head.serial };
        self.seen(&mark, Some(head.digest.clone()));
        Ok(())
    }
}

/// Host of a runner. All hosts have the same keys.
pub struct Host {
    pub dir: TempDir,
    pub server: StateServer,
    pub journal: Records,
    /// Newest version in the vendor's log.
    pub log: Option<StateVersion>,
}

fn cipher() -> Cipher {
    let keys = InstallKeys::new(&Seed::from_bytes(&[7; 32]), 1);
    StateKeys::derive(&keys, "log", InstallId(Ulid::nil()), ["web"]).component("web").unwrap()
}

pub fn state(serial: u64) -> String {
    of_lineage("l", serial)
}

pub fn of_lineage(lineage: &str, serial: u64) -> String {
    format!(
        r#"{{"version":4,"serial":{serial},"lineage":"{lineage}","resources":[{{"type":"x"}}]}}"#
    )
}

/// Another state with the same version.
pub fn other_state(serial: u64) -> String {
    state(serial).replace(r#""x""#, r#""y""#)
}

/// Version in the log.
pub fn version(serial: u64) -> Option<StateVersion> {
    Some(StateVersion { lineage: "l".into(), serial, digest: None })
}

pub fn mark(serial: u64) -> StateMark {
    StateMark { lineage: Some("l".into()), serial }
}

impl Host {
    pub fn new(server: &StateServer) -> Host {
        // Only the first call of a process succeeds. All tests use the same provider.
        let _first = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let host = Host { dir, server: server.clone(), journal: Records::default(), log: None };
        fs::create_dir(host.store().dir()).unwrap();
        host
    }

    /// Returns a host with the same files as a directory.
    pub fn with_files_of(server: &StateServer, files: &Path) -> Host {
        let host = Host::new(server);
        copy(files, host.store().dir());
        host
    }

    pub fn store(&self) -> StateStore {
        StateStore::new(self.dir.path(), "web").with_cipher(Some(cipher()))
    }

    pub fn remote(&self) -> Remote {
        let http = reqwest::Client::new();
        Remote::new(http, &self.server.url, "token", "web").with_patience(Duration::from_secs(2))
    }

    /// Begins a job with this fence.
    pub async fn open(&self, position: u64) -> Result<Arc<Session>, StateError> {
        let fence = Fence { epoch: 1, position };
        let sha256 = format!("sha256:{}", "0".repeat(64));
        self.journal.add(JournalEvent::Verified {
            execution: ExecutionId(Ulid::nil()),
            manifest: sha256.parse().unwrap(),
            grant: None,
            kind: JobKind::Plan,
            class: JobClass::Mutating,
            plugin: "terraform_module".into(),
            fence,
        });
        let own = self.known();
        let access = Access {
            cipher: cipher(),
            fence,
            written_by: (JobId(Ulid::nil()), ExecutionId(Ulid::nil())),
            remote: self.remote(),
            background: Arc::new(self.journal.clone()),
            cancel: Cancel::default(),
        };
        let log = self.log.clone();
        let log = manifest::KnownState { newest: log, accepted: None };
        let known = Known { own: &own, log: Some(&log) };
        let session = Session::open(self.store(), access, known, || Ok(())).await?;
        // As each job does before it plans.
        let mark = session.mark().await;
        let checked = self.store().check_known(&mark, &own, Some(&log));
        checked.map_err(|StateRefusal(why)| StateError::Blocked(why))?;
        self.journal.seen(&mark, session.digest().await);
        Ok(Arc::new(session))
    }

    /// Newest state in the journal.
    pub fn known(&self) -> KnownState {
        known(&self.journal.entries()).remove("web").unwrap_or_default()
    }

    /// Runs a job that writes these serials.
    pub async fn apply(&self, position: u64, serials: &[u64]) -> Arc<Session> {
        let session = self.open(position).await.unwrap();
        for serial in serials {
            write(&session, &state(*serial)).await;
        }
        session.settle().await;
        session
    }

    pub async fn begins_with(&self, position: u64) -> StateMark {
        self.open(position).await.unwrap().mark().await
    }

    pub async fn refusal(&self, position: u64) -> String {
        match self.open(position).await.map(drop) {
            Err(StateError::Blocked(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Carries out a decision that allows an older state.
    pub async fn resolve(&self, decision: Decision) -> Result<StateMark, StateError> {
        self.resolve_with(decision, true).await
    }

    pub async fn resolve_with(
        &self,
        decision: Decision,
        allows_older: bool,
    ) -> Result<StateMark, StateError> {
        let online = Online::new(self.remote(), "web");
        let basis = online.basis(&self.journal.entries()).await?.with_older(allows_older);
        let resolution = self.store().decide(decision, &basis)?;
        online.carry_out(&resolution).await?;
        let mark = resolution.mark().clone();
        let StateMark { lineage, serial } = mark.clone();
        let (component, reason) = ("web".into(), "test".into());
        self.journal.add(JournalEvent::StateResolved { component, lineage, serial, reason });
        Ok(mark)
    }

    /// Returns the states in the files that decisions and interrupted writes have set aside.
    pub async fn kept(&self) -> Vec<String> {
        let files = fs::read_dir(self.store().dir()).unwrap().map(|file| file.unwrap().path());
        let is_kept =
            |file: &PathBuf| file.file_name().unwrap().to_string_lossy().starts_with("resolved-");
        let mut kept = Vec::new();
        for file in files.filter(is_kept).collect::<Vec<_>>() {
            // A decision about a new component reads the file as a user would.
            let reader = Host::new(&StateServer::start(Uploads::Accept));
            reader.resolve(Decision::Restore(file)).await.unwrap();
            let state = reader.store().read().unwrap().unwrap();
            kept.push(String::from_utf8(state.to_vec()).unwrap());
        }
        kept.sort_unstable();
        kept
    }

    pub fn pending(&self) -> Option<u64> {
        self.store().pending().unwrap().map(|upload| upload.head.serial)
    }

    pub fn files(&self, prefix: &str) -> usize {
        let names = fs::read_dir(self.store().dir()).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with(prefix)).count()
    }
}

pub async fn write(session: &Arc<Session>, state: &str) {
    session.write(Zeroizing::new(state.as_bytes().to_vec())).await.unwrap();
}

pub fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A host whose state with serial 2 the server never got, and a server with a later serial 2 of
/// another host.
pub async fn diverged() -> (StateServer, Host) {
    let server = StateServer::start(Uploads::Accept);
    let (host, other) = (Host::new(&server), Host::new(&server));
    host.apply(10, &[1]).await;
    server.set_uploads(Uploads::Lose);
    host.apply(20, &[2]).await;
    assert_eq!(host.pending(), Some(2));
    server.set_uploads(Uploads::Accept);
    let session = other.open(30).await.unwrap();
    write(&session, &other_state(2)).await;
    (server, host)
}
