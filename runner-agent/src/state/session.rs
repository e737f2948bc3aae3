//! State of one component during one job: opened once, then served to Terraform and written by it.
//!
//! ```text
//! write  encrypt ─▶ state.encrypted.next ─▶ upload ─▶ rename ─▶ journal ─▶ acknowledge
//!                                            ├─ no response: acknowledge, the agent uploads later
//!                                            └─ rejected: keep an encrypted rescue, and fail
//! ```
//!
//! A write is a task of its own: it ends also if Terraform does not wait for it. The next job
//! finishes a write that even the end of the shim interrupted, see `opening`.
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
use tokio::sync::{Mutex, oneshot, watch};
use zeroize::Zeroizing;

use super::{
    StateError, StateMark, StateStore,
    cipher::Cipher,
    copies::{Current, encrypt},
    remote::{Remote, RemoteError, Waiting},
};
use crate::{
    plugins::{Background, Cancel},
    tasks,
};

/// Pause before another attempt to write a state that neither this host nor the server stored.
const PAUSE: Duration = Duration::from_secs(5);

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
    pub(super) store: StateStore,
    pub(super) access: Access,
    current: Mutex<Option<Current>>,
    /// True after the server did not respond: later writes do not wait for it, until the agent has
    /// uploaded all.
    is_spooling: AtomicBool,
    /// Number of writes that have begun and not ended.
    writes: watch::Sender<usize>,
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

/// Write that has begun, until it is dropped.
struct Writing(Arc<Session>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writes.send_modify(|writes| *writes -= 1);
    }
}

impl Session {
    pub(super) fn new(store: StateStore, access: Access) -> Self {
        let (current, is_spooling) = (Mutex::new(None), AtomicBool::new(false));
        Session { store, access, current, is_spooling, writes: watch::Sender::new(0) }
    }

    pub(super) async fn set_current(&self, current: Option<Current>) {
        *self.current.lock().await = current;
    }

    pub(super) fn component(&self) -> &str {
        &self.store.component
    }

    pub(super) fn io(&self, what: &str) -> impl FnOnce(std::io::Error) -> StateError + use<> {
        StateError::io(format!("cannot {what} the state of {}", self.component()))
    }

    /// Returns lineage and serial of the state.
    pub async fn mark(&self) -> StateMark {
        let current = self.current.lock().await;
        current.as_ref().map_or_else(StateMark::default, Current::mark)
    }

    /// Returns the state, if the component has one.
    pub async fn read(&self) -> Option<Bytes> {
        let current = self.current.lock().await;
        // The copy is overwritten when the response has been sent.
        current.as_ref().map(|current| Bytes::from_owner(current.state.clone()))
    }

    /// Returns the keyed digest of the current state.
    pub async fn digest(&self) -> Option<String> {
        self.current.lock().await.as_ref().map(|current| current.head.digest.clone())
    }

    /// Refuses to apply if a user has chosen another state on this host since the job opened its
    /// state.
    pub async fn require_unchanged(&self) -> Result<(), String> {
        let current = self.current.lock().await;
        let opened = current.as_ref().map(|current| &current.head);
        let stored = self.store.stored().map_err(|error| error.to_string())?;
        let is_same = match (&stored, opened) {
            (Some(stored), Some(opened)) => stored.head.version() == opened.version(),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        match is_same {
            true => Ok(()),
            false => Err("a user chose another state during the job".into()),
        }
    }

    /// Writes a state. Returns when it is on this host's disk or on the server, and on both if the
    /// server responds. The write continues if the caller stops waiting.
    pub async fn write(self: &Arc<Self>, state: Zeroizing<Vec<u8>>) -> Result<(), WriteError> {
        self.writes.send_modify(|writes| *writes += 1);
        let (writing, (ended, result)) = (Writing(Arc::clone(self)), oneshot::channel());
        tasks::detach("state write", async move {
            // The receiver may have been dropped.
            let _unheard = ended.send(writing.0.write_now(state).await);
        });
        let panicked = || WriteError::NotStored("the runner failed to write the state".into());
        result.await.unwrap_or_else(|_| Err(panicked()))
    }

    async fn write_now(&self, state: Zeroizing<Vec<u8>>) -> Result<(), WriteError> {
        if state.len() as u64 > STATE_BYTES {
            return Err(WriteError::TooLarge);
        }
        let mut current = self.current.lock().await;
        let encrypted = encrypt(&self.access.cipher, &state, self.access.fence);
        let (head, ciphertext) =
            encrypted.map_err(|error| WriteError::Invalid(error.to_string()))?;
        if !head.is_valid() {
            return Err(WriteError::Invalid("its lineage or serial is invalid".into()));
        }
        if current.as_ref().is_some_and(|current| current.head.version() == head.version()) {
            return Ok(());
        }
        loop {
            match self.store_once(&head, &ciphertext).await {
                Ok(()) => break,
                Err(WriteError::NotStored(why)) => {
                    self.line(&format!("the state waits: {why}"));
                    tokio::select! {
                        () = self.access.cancel.requested.cancelled() => {
                            return Err(WriteError::NotStored(why));
                        }
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
                Err(rejected) => {
                    self.keep_rejected(&state);
                    return Err(rejected);
                }
            }
        }
        self.record(&head);
        *current = Some(Current { head, state });
        Ok(())
    }

    async fn store_once(&self, head: &StateHead, ciphertext: &Bytes) -> Result<(), WriteError> {
        // The agent needs the origin for a late upload, and the token of the job proves it now.
        let written_by = Some(self.access.written_by);
        let spooled = StateUpload { head: head.clone(), written_by, is_decided: false };
        let written = self.store.write_next(&spooled, ciphertext).or_else(|_full| {
            self.store.free_reserve()?;
            self.store.write_next(&spooled, ciphertext)
        });
        if written.is_err() {
            // The server alone will have this state. The journal has its own reserve, and proves to
            // the next job that this host wrote it.
            self.record(head);
        }
        let is_spooling = self.is_spooling.load(Ordering::Relaxed)
            && self.store.pending().is_ok_and(|pending| pending.is_some());
        let sent = match written.is_err() || !is_spooling {
            true => {
                let upload = StateUpload { written_by: None, ..spooled };
                self.access.remote.put(&upload, ciphertext.clone()).await.map(Some)
            }
            false => Ok(None),
        };
        let commit = || {
            let committed = self.store.commit_next();
            committed.map_err(|error| WriteError::NotStored(error.to_string()))
        };
        match (written, sent) {
            (_, Err(RemoteError::Rejected(why))) => Err(WriteError::Conflict(why)),
            (_, Err(RemoteError::TooLarge(_))) => Err(WriteError::TooLarge),
            (Ok(()), Ok(Some(_))) => {
                commit()?;
                self.is_spooling.store(false, Ordering::Relaxed);
                let _uploaded_again = self.store.mark_uploaded(head);
                Ok(())
            }
            (Ok(()), Ok(None)) => commit(),
            // The agent uploads the state of an execution that has ended for the server, or that the
            // server does not permit: Terraform must not stop in the middle of an apply for that.
            (
                Ok(()),
                Err(
                    error @ (RemoteError::Unreachable { .. }
                    | RemoteError::Ended(_)
                    | RemoteError::Refused(_)),
                ),
            ) => {
                commit()?;
                self.is_spooling.store(true, Ordering::Relaxed);
                let serial = head.serial;
                self.line(&format!(
                    "state_upload_pending: only this host has serial {serial} of the state, because {error}"
                ));
                Ok(())
            }
            // The server has the only copy until the next job reads it.
            (Err(_full), Ok(_)) => Ok(()),
            (
                Err(full),
                Err(
                    error @ (RemoteError::Unreachable { .. }
                    | RemoteError::Ended(_)
                    | RemoteError::Refused(_)),
                ),
            ) => {
                let why = format!("this host cannot store it ({full}), and {error}");
                Err(WriteError::NotStored(why))
            }
        }
    }

    /// Keeps a state that the server rejected as a rescue, which blocks plans until a user decides.
    fn keep_rejected(&self, state: &[u8]) {
        let (_, execution) = self.access.written_by;
        let rescue = || self.store.store_rescue(state, execution);
        let kept = rescue().or_else(|_full| {
            self.store.free_reserve()?;
            rescue()
        });
        match kept {
            Ok(()) => self.store.discard_next(),
            // The file of the write stays, and the next job sets it aside or is refused.
            Err(error) => self.line(&format!("cannot rescue the rejected state: {error}")),
        }
    }

    fn record(&self, head: &StateHead) {
        if let Err(error) = self.access.background.state(self.component(), head) {
            let line = format!("cannot record the version of the state in the journal: {error}");
            self.line(&line);
        }
    }

    /// Waits for all writes. Then stores a state on this host that only the server has, and uploads
    /// one that only this host has. Called at the end of an apply. What fails here is done by the
    /// agent or by the next job.
    pub async fn settle(&self) {
        let mut writes = self.writes.subscribe();
        while *writes.borrow_and_update() > 0 {
            if writes.changed().await.is_err() {
                break;
            }
        }
        let current = self.current.lock().await;
        let Some(current) = current.as_ref() else { return };
        let stored = self.store.stored().ok().flatten();
        if stored.is_none_or(|stored| stored.head.version() != current.head.version())
            && let Ok((head, ciphertext)) =
                encrypt(&self.access.cipher, &current.state, current.head.fence)
        {
            let upload = StateUpload { head, written_by: None, is_decided: false };
            let written = self.store.write_next(&upload, &ciphertext);
            let committed = written.and_then(|()| self.store.commit_next());
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

    /// Calls `call` with the settings to wait for the server.
    pub(super) fn waiting<'a>(&'a self, line: &'a (dyn Fn(&str) + Sync)) -> Waiting<'a> {
        Waiting { component: self.component(), cancel: &self.access.cancel.requested, line }
    }
}
