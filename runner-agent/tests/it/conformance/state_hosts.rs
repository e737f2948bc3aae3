//! Hosts of runners that share a server, for tests of the state with which a job begins.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use domain::ids::{ExecutionId, InstallId, JobId};
use install_keys::{InstallKeys, Seed};
use runner_agent::{
    plugins::{Background, Cancel},
    state::{
        Access, Cipher, Decision, Known, KnownState, Online, Remote, Session, StateError,
        StateKeys, StateMark, StateStore,
    },
};
use schemas::{manifest::Fence, runner::StateHead};
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

/// Host of a runner. All hosts have the same keys.
pub struct Host {
    pub dir: TempDir,
    pub server: StateServer,
    pub known: KnownState,
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

pub fn mark(serial: u64) -> StateMark {
    StateMark { lineage: Some("l".into()), serial }
}

impl Host {
    pub fn new(server: &StateServer) -> Host {
        // Only the first call of a process succeeds. All tests use the same provider.
        let _first = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let host = Host { dir, server: server.clone(), known: KnownState::default() };
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
        let access = Access {
            cipher: cipher(),
            fence: Fence { epoch: 1, position },
            written_by: (JobId(Ulid::nil()), ExecutionId(Ulid::nil())),
            remote: self.remote(),
            background: Arc::new(Quiet),
            cancel: Cancel::default(),
        };
        let known = Known { own: &self.known, log: None };
        Session::open(self.store(), access, known, || Ok(())).await.map(Arc::new)
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

    pub async fn resolve(&self, decision: Decision) -> Result<StateMark, StateError> {
        let online = Online::new(self.remote(), "web");
        let basis = online.basis(self.known.highest.clone()).await?;
        let resolution = self.store().decide(decision, &basis)?;
        online.carry_out(&resolution).await?;
        Ok(resolution.mark().clone())
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
    write(&session, r#"{"version":4,"serial":2,"lineage":"l","resources":[{"type":"y"}]}"#).await;
    (server, host)
}
