//! State of one component during one job: read once, then served to Terraform and written by it.
//!
//! ```text
//! open   local copy ─▶ newest of the server, if it is newer ─▶ plain file of an earlier version
//! write  encrypt ─▶ state.encrypted.next ─▶ upload ─▶ rename ─▶ journal ─▶ acknowledge
//!                                            └─ no response: acknowledge, the agent uploads later
//! ```
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use domain::ids::{ExecutionId, JobId};
use schemas::{
    manifest::Fence,
    runner::{STATE_BYTES, StateHead, StateUpload},
};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::{
    KnownState, StateError, StateMark, StateStore,
    cipher::{Cipher, DecryptError},
    local::is_empty,
    mark_of,
    remote::{Newest, Remote, RemoteError},
};
use crate::plugins::{Background, Cancel};

/// Number of attempts to read the state from the server at the start of a job.
const READS: u32 = 3;
/// Pause before another attempt to read or to write.
const PAUSE: Duration = Duration::from_secs(1);

/// Everything that a job needs to use the state of its component.
pub struct Access {
    pub cipher: Cipher,
    pub fence: Fence,
    pub written_by: (JobId, ExecutionId),
    pub remote: Remote,
    pub background: Arc<dyn Background>,
    pub cancel: Cancel,
}

/// Open state of one component.
pub struct Session {
    store: StateStore,
    access: Access,
    current: Mutex<Option<Current>>,
    /// True after the server did not respond: later writes do not wait for it.
    is_spooling: AtomicBool,
}

struct Current {
    head: StateHead,
    state: Zeroizing<Vec<u8>>,
}

/// Reason why a state was not written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("the body is not a Terraform state: {0}")]
    Invalid(String),
    #[error("the state is larger than 100 MiB; split the component")]
    TooLarge,
    /// Another state is newer.
    #[error("{0}")]
    Conflict(String),
    /// Neither this host nor the server has stored the state, and the job was stopped.
    #[error("{0}")]
    NotStored(String),
}

impl Session {
    /// Reads the newest state. Moves a plain file of an earlier version: `invalidate` removes the
    /// saved plans of the component.
    pub async fn open(
        store: StateStore,
        access: Access,
        known: &KnownState,
        invalidate: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<Self, StateError> {
        store.discard_next();
        let session =
            Session { store, access, current: Mutex::new(None), is_spooling: false.into() };
        let local = session.local()?;
        let current = session.newest(local).await?;
        let current = session.move_plain(current, invalidate).await?;
        session.check_digest(current.as_ref(), known)?;
        *session.current.lock().await = current;
        Ok(session)
    }

    fn component(&self) -> &str {
        &self.store.component
    }

    fn io(&self, what: &str) -> impl FnOnce(std::io::Error) -> StateError {
        StateError::io(format!("cannot {what} the state of {}", self.component()))
    }

    fn blocked(&self, why: impl std::fmt::Display) -> StateError {
        let why = format!("cannot use the state of {}: {why}", self.component());
        StateError::Blocked(why)
    }

    fn decrypt(
        &self,
        head: StateHead,
        ciphertext: &[u8],
        origin: &str,
    ) -> Result<Current, StateError> {
        let refused = |error: DecryptError| {
            let (lineage, serial) = (&head.lineage, head.serial);
            self.blocked(format!(
                "serial {serial} of lineage {lineage} from {origin} is refused: {error}"
            ))
        };
        let state = self.access.cipher.decrypt_state(&head, ciphertext).map_err(refused)?;
        // The version is authentic, but an earlier runner could have written another one.
        let mark = mark_of(&state).map_err(self.io("read"))?;
        if mark.lineage.as_ref() != Some(&head.lineage) || mark.serial != head.serial {
            return Err(self.blocked(format!("the state from {origin} has another version inside")));
        }
        Ok(Current { head, state })
    }

    fn local(&self) -> Result<Option<Current>, StateError> {
        let stored = self.store.read_stored().map_err(self.io("read"))?;
        let origin = self.store.encrypted_file().display().to_string();
        stored
            .map(|(upload, ciphertext)| self.decrypt(upload.head, &ciphertext, &origin))
            .transpose()
    }

    /// Returns the newest of the local state and the server's.
    async fn newest(&self, local: Option<Current>) -> Result<Option<Current>, StateError> {
        let known = local.as_ref().map(|local| local.head.digest.as_str());
        let mut attempt = 1;
        let newest = loop {
            match self.access.remote.newest(known).await {
                Err(RemoteError::Unreachable(_)) if attempt < READS && local.is_none() => {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                newest => break newest,
            }
        };
        match (newest, local) {
            (Ok(Newest::None), local) => Ok(local),
            (Ok(Newest::Same(head)), Some(local)) if head.version() == local.head.version() => {
                self.store.mark_uploaded(&local.head).map_err(self.io("record"))?;
                Ok(Some(local))
            }
            (Ok(Newest::Same(_)), local) => Ok(local),
            (Ok(Newest::Other(head, ciphertext)), local) => {
                self.replace_by(head, &ciphertext, local)
            }
            (Err(RemoteError::Unreachable(why)), Some(local)) => {
                let text =
                    format!("the server did not respond, so the state of this host is used: {why}");
                self.access.background.line(&text);
                Ok(Some(local))
            }
            (Err(RemoteError::Unreachable(why)), None) => {
                Err(self.io("read")(std::io::Error::other(format!(
                    "it is not on this host, and the server did not respond ({why}); retry"
                ))))
            }
            (Err(RemoteError::Rejected(why)), _) => Err(self.blocked(why)),
        }
    }

    /// Stores the server's version on this host if it is newer than the local one.
    fn replace_by(
        &self,
        head: StateHead,
        ciphertext: &[u8],
        local: Option<Current>,
    ) -> Result<Option<Current>, StateError> {
        if head.fence > self.access.fence {
            return Err(self.blocked("a later execution has written a state"));
        }
        if let Some(local) = local {
            let pending = self.store.pending().map_err(self.io("read"))?.is_some();
            let is_newer = (head.fence, head.serial) > (local.head.fence, local.head.serial);
            match (is_newer, pending) {
                (true, false) => {}
                (true, true) => {
                    return Err(self.blocked(format!(
                        "this host has serial {} of lineage {}, which the server never got, and another host has written serial {} of \
                         lineage {}; on the host with the right state, run `stead-runner state resolve {} --keep-current --reason TEXT`",
                        local.head.serial,
                        local.head.lineage,
                        head.serial,
                        head.lineage,
                        self.component(),
                    )));
                }
                (false, _) => return Ok(Some(local)),
            }
        }
        let current = self.decrypt(head, ciphertext, "the server")?;
        let head = current.head.clone();
        let upload = StateUpload { head, written_by: None, is_decided: false };
        let stored = self.store.write_next(&upload, ciphertext);
        let stored = stored.and_then(|()| self.store.commit_next());
        let stored = stored.and_then(|()| self.store.mark_uploaded(&upload.head));
        stored.map_err(self.io("store"))?;
        Ok(Some(current))
    }

    /// Moves the state out of the file of an earlier version, once the server has it. Can be
    /// repeated after any interruption.
    async fn move_plain(
        &self,
        current: Option<Current>,
        invalidate: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<Option<Current>, StateError> {
        let plain = self.store.plain().map_err(self.io("read"))?.map(Zeroizing::new);
        let current = match (plain, current) {
            (None, current) => current,
            (Some(plain), Some(current)) if *plain == *current.state => {
                invalidate().map_err(self.io("move"))?;
                Some(current)
            }
            (Some(_), Some(current)) => {
                return Err(self.blocked(format!(
                    "{} has another state than serial {} of lineage {}, which is stored encrypted; move that file away, or choose it with \
                     `stead-runner state resolve {} --restore FILE --reason TEXT`",
                    self.store.file().display(),
                    current.head.serial,
                    current.head.lineage,
                    self.component(),
                )));
            }
            (Some(plain), None) => {
                let (upload, ciphertext) = self.encrypt(&plain)?;
                let stored = self.store.write_next(&upload, &ciphertext);
                stored.map_err(self.io("encrypt"))?;
                if let Err(error) = self.access.remote.put(&upload, ciphertext.into()).await {
                    self.store.discard_next();
                    return Err(self.blocked(format!(
                        "it is still a file in clear on this host, and the server has not stored it: {error}; retry"
                    )));
                }
                let stored = self.store.commit_next();
                let stored = stored.and_then(|()| self.store.mark_uploaded(&upload.head));
                stored.map_err(self.io("store"))?;
                invalidate().map_err(self.io("move"))?;
                self.access.background.line(
                    "the state is now stored encrypted on this host and on the server; plans that waited are invalid",
                );
                Some(Current { head: upload.head, state: plain })
            }
        };
        self.store.retire_plain().map_err(self.io("move"))?;
        Ok(current)
    }

    /// Refuses a state that has the known version and other content.
    fn check_digest(
        &self,
        current: Option<&Current>,
        known: &KnownState,
    ) -> Result<(), StateError> {
        let (Some(current), Some(digest)) = (current, &known.digest) else { return Ok(()) };
        let is_known = known.newest.lineage.as_ref() == Some(&current.head.lineage)
            && known.newest.serial == current.head.serial;
        if is_known && *digest != current.head.digest {
            return Err(self.blocked(format!(
                "serial {} of lineage {} has other content than the one that this runner recorded",
                current.head.serial, current.head.lineage
            )));
        }
        Ok(())
    }

    fn encrypt(&self, state: &[u8]) -> Result<(StateUpload, Vec<u8>), StateError> {
        let mark = mark_of(state).map_err(self.io("read"))?;
        let head = StateHead {
            lineage: mark.lineage.unwrap_or_default(),
            serial: mark.serial,
            fence: self.access.fence,
            digest: self.access.cipher.digest(state),
            is_empty: is_empty(state),
        };
        let ciphertext = self.access.cipher.encrypt_state(&head, state);
        let ciphertext = ciphertext.map_err(self.io("encrypt"))?;
        Ok((StateUpload { head, written_by: None, is_decided: false }, ciphertext))
    }

    /// Returns lineage and serial of the state.
    pub async fn mark(&self) -> StateMark {
        let current = self.current.lock().await;
        current.as_ref().map_or_else(StateMark::default, |current| StateMark {
            lineage: Some(current.head.lineage.clone()),
            serial: current.head.serial,
        })
    }

    /// Returns the state, if the component has one.
    pub async fn read(&self) -> Option<Bytes> {
        let current = self.current.lock().await;
        current.as_ref().map(|current| Bytes::copy_from_slice(&current.state))
    }

    /// Writes a state. Returns when it is on this host's disk or on the server, and on both if the
    /// server responds.
    pub async fn write(&self, state: Zeroizing<Vec<u8>>) -> Result<(), WriteError> {
        if state.len() as u64 > STATE_BYTES {
            return Err(WriteError::TooLarge);
        }
        let mut current = self.current.lock().await;
        let (upload, ciphertext) = self.encrypt(&state).map_err(|error| match error {
            StateError::Io { source, .. } => WriteError::Invalid(source.to_string()),
            StateError::Blocked(why) => WriteError::Invalid(why),
        })?;
        if !upload.head.is_valid() {
            return Err(WriteError::Invalid("its lineage or serial is invalid".into()));
        }
        if current.as_ref().is_some_and(|current| current.head.version() == upload.head.version()) {
            return Ok(());
        }
        let ciphertext = Bytes::from(ciphertext);
        loop {
            match self.store_once(&upload, &ciphertext).await {
                Ok(()) => break,
                Err(WriteError::NotStored(why)) => {
                    self.access.background.line(&format!("the state waits: {why}"));
                    tokio::select! {
                        () = self.access.cancel.requested.cancelled() => {
                            return Err(WriteError::NotStored(why));
                        }
                        () = tokio::time::sleep(5 * PAUSE) => {}
                    }
                }
                Err(final_error) => return Err(final_error),
            }
        }
        if let Err(error) = self.access.background.state(self.component(), &upload.head) {
            let line = format!("cannot record the version of the state in the journal: {error}");
            self.access.background.line(&line);
        }
        *current = Some(Current { head: upload.head, state });
        Ok(())
    }

    async fn store_once(&self, upload: &StateUpload, ciphertext: &Bytes) -> Result<(), WriteError> {
        // The agent needs the origin for a late upload, and the token of the job proves it now.
        let spooled = StateUpload { written_by: Some(self.access.written_by), ..upload.clone() };
        let written = self.store.write_next(&spooled, ciphertext).or_else(|_full| {
            self.store.free_reserve()?;
            self.store.write_next(&spooled, ciphertext)
        });
        let waits_for_server = written.is_err() || !self.is_spooling.load(Ordering::Relaxed);
        let sent = match waits_for_server {
            true => self.access.remote.put(upload, ciphertext.clone()).await.map(Some),
            false => Ok(None),
        };
        let commit = || {
            let committed = self.store.commit_next();
            committed.map_err(|error| WriteError::NotStored(error.to_string()))
        };
        match (written, sent) {
            (_, Err(RemoteError::Rejected(why))) => {
                self.store.discard_next();
                Err(WriteError::Conflict(why))
            }
            (Ok(()), Ok(Some(_))) => {
                commit()?;
                let _uploaded_again = self.store.mark_uploaded(&upload.head);
                Ok(())
            }
            (Ok(()), Ok(None)) => commit(),
            (Ok(()), Err(RemoteError::Unreachable(why))) => {
                commit()?;
                self.is_spooling.store(true, Ordering::Relaxed);
                let serial = upload.head.serial;
                self.access.background.line(&format!(
                    "state_upload_pending: only this host has serial {serial} of the state, because the server did not respond: {why}"
                ));
                Ok(())
            }
            // The server has the only copy until the next job reads it.
            (Err(_full), Ok(_)) => Ok(()),
            (Err(full), Err(RemoteError::Unreachable(why))) => Err(WriteError::NotStored(format!(
                "this host cannot store it ({full}), and the server did not respond ({why})"
            ))),
        }
    }

    /// Stores a state on this host that only the server has, and uploads one that only this host
    /// has. Called at the end of an apply. What fails here is done by the agent or by the next job.
    pub async fn settle(&self) {
        let current = self.current.lock().await;
        let Some(current) = current.as_ref() else { return };
        let stored = self.store.stored().ok().flatten();
        if stored.is_none_or(|stored| stored.head.version() != current.head.version())
            && let Ok((upload, ciphertext)) = self.encrypt(&current.state)
            && self.store.write_next(&upload, &ciphertext).is_ok()
        {
            let committed = self.store.commit_next();
            let _read_again = committed.and_then(|()| self.store.mark_uploaded(&upload.head));
        }
        if let Ok(Some(pending)) = self.store.pending()
            && pending.head.fence == self.access.fence
            && let Ok(Some((upload, ciphertext))) = self.store.read_stored()
        {
            let by_job = StateUpload { written_by: None, ..upload };
            if self.access.remote.put(&by_job, ciphertext.into()).await.is_ok() {
                let _uploaded_again = self.store.mark_uploaded(&by_job.head);
            }
        }
    }

    /// Adds a line of the runner to the job's log.
    pub(super) fn line(&self, text: &str) {
        self.access.background.line(text);
    }

    /// Returns the keyed digest of the current state.
    pub async fn digest(&self) -> Option<String> {
        self.current.lock().await.as_ref().map(|current| current.head.digest.clone())
    }
}
