//! Opens the state of a component at the start of a job: compares this host with the server, and
//! moves the file of an earlier version.
use std::io;

use schemas::{
    manifest,
    runner::{STATE_BYTES, StateHead, StateUpload},
};
use zeroize::Zeroizing;

use super::{
    KnownState, StateError, StateMark, StateRefusal, StateStore,
    copies::{Current, encrypt},
    opening::{self, Opening, Situation},
    remote::Newest,
    session::{Access, Session},
};

/// Newest states that this runner's journal and the vendor's log know.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub own: &'a KnownState,
    pub log: Option<&'a manifest::KnownState>,
}

impl Session {
    /// Opens the newest state. Waits for the server. Moves a plain file of an earlier version:
    /// `invalidate` removes the saved plans of the component.
    pub async fn open(
        store: StateStore,
        access: Access,
        known: Known<'_>,
        invalidate: impl FnOnce() -> io::Result<()>,
    ) -> Result<Self, StateError> {
        let session = Session::new(store, access);
        let current = session.newest(known).await?;
        let current = session.move_plain(current, known, invalidate).await?;
        if let Some(current) = &current {
            session.store.check_digest(&current.head, known.own, known.log)?;
        }
        session.set_current(current).await;
        Ok(session)
    }

    pub(super) fn refused(&self, why: impl std::fmt::Display) -> StateError {
        StateError::Blocked(format!("cannot use the state of {}: {why}", self.component()))
    }

    async fn newest(&self, known: Known<'_>) -> Result<Option<Current>, StateError> {
        let line = |text: &str| self.line(text);
        let waiting = self.waiting(&line);
        // An unreadable file matters only below, when the server's head is known.
        let copies = [self.store.next(), self.store.stored()];
        let digest = copies.into_iter().find_map(|copy| Some(copy.ok()??.head.digest));
        let mut newest = self.access.remote.newest(digest.as_deref(), &waiting).await?;
        {
            let _lock = self.store.lock_idle()?;
            let finished = self.store.finish_next(newest.head());
            if finished.map_err(self.io("finish the write of"))? {
                self.line("a state that an earlier job did not write completely was set aside");
            }
        }
        let local = self.store.local_copy()?;
        let is_pending = self.store.pending().map_err(self.io("read"))?.is_some();
        let (host, fence) = (local.as_ref().map(|local| &local.head), Some(self.access.fence));
        let (server, own) = (newest.head(), known.own);
        let situation = Situation { host, is_pending, server, known: own, fence };
        match (opening::decide(&situation), local) {
            (Opening::Nothing, local) => Ok(local),
            (Opening::Use, Some(local)) => {
                self.store.mark_uploaded(&local.head).map_err(self.io("record"))?;
                Ok(Some(local))
            }
            (Opening::Upload, Some(local)) => {
                // A state that will be refused must not replace the server's.
                if self.store.check_known(&local.mark(), own, known.log).is_ok()
                    && self.store.check_digest(&local.head, own, known.log).is_ok()
                {
                    self.upload(&local).await?;
                }
                Ok(Some(local))
            }
            (Opening::Download | Opening::Use | Opening::Upload, _) => {
                if matches!(newest, Newest::Same(_)) {
                    // The file with that digest was set aside.
                    newest = self.access.remote.newest(None, &waiting).await?;
                }
                self.download(newest).map(Some)
            }
            (Opening::Superseded, _) => {
                Err(self.refused("an execution that began later has written a state"))
            }
            (Opening::Diverged, local) => {
                Err(self.store.diverged(local.as_ref().map(|local| &local.head), newest.head()))
            }
        }
    }

    /// Uploads a state that the server does not have, with the fence of this execution: the
    /// execution that wrote it may be unknown to a server that was restored from a backup.
    async fn upload(&self, local: &Current) -> Result<(), StateError> {
        let encrypted = encrypt(&self.access.cipher, &local.state, self.access.fence);
        let (head, ciphertext) = encrypted.map_err(self.io("encrypt"))?;
        let upload = StateUpload { head, written_by: None, is_decided: false };
        let line = |text: &str| self.line(text);
        let waiting = self.waiting(&line);
        let sent = self.access.remote.put_patiently(&upload, ciphertext, &waiting).await;
        sent.map_err(|error| self.store.with_choices(error))?;
        self.store.mark_uploaded(&upload.head).map_err(self.io("record"))?;
        let serial = upload.head.serial;
        self.line(&format!("the server did not have serial {serial} of the state, and has it now"));
        Ok(())
    }

    /// Stores the server's version on this host.
    fn download(&self, newest: Newest) -> Result<Current, StateError> {
        let Newest::Other(head, ciphertext) = newest else {
            return Err(self.refused("the server has sent no state; retry"));
        };
        let current = self.store.decrypt_copy(head.clone(), &ciphertext, "the server")?;
        let upload = StateUpload { head, written_by: None, is_decided: false };
        let _lock = self.store.lock_idle()?;
        let stored = self.store.write_next(&upload, &ciphertext);
        let stored = stored.and_then(|()| self.store.keep_former(&upload));
        let stored = stored.and_then(|()| self.store.commit_next());
        let stored = stored.and_then(|()| self.store.mark_uploaded(&upload.head));
        stored.map_err(self.io("store"))?;
        Ok(current)
    }

    /// Moves the state out of the file of an earlier version, once the server has it. Can be
    /// repeated after any interruption.
    async fn move_plain(
        &self,
        current: Option<Current>,
        known: Known<'_>,
        invalidate: impl FnOnce() -> io::Result<()>,
    ) -> Result<Option<Current>, StateError> {
        let plain = self.store.plain().map_err(self.io("read"))?.map(Zeroizing::new);
        let current = match plain {
            None => current,
            Some(plain) if current.as_ref().is_some_and(|current| *plain == *current.state) => {
                invalidate().map_err(self.io("move"))?;
                current
            }
            Some(plain) => {
                let head = self.store_plain(&plain, current.as_ref(), known).await?;
                invalidate().map_err(self.io("move"))?;
                self.line(
                    "the state is now stored encrypted on this host and on the server; plans that waited are invalid",
                );
                Some(Current { head, state: plain })
            }
        };
        let _lock = self.store.lock_idle()?;
        self.store.retire_plain().map_err(self.io("move"))?;
        Ok(current)
    }

    /// Stores the state of an earlier version encrypted on this host and on the server, if it
    /// continues the current one.
    async fn store_plain(
        &self,
        plain: &Zeroizing<Vec<u8>>,
        current: Option<&Current>,
        known: Known<'_>,
    ) -> Result<StateHead, StateError> {
        let (path, component) = (self.store.file().display().to_string(), self.component());
        if plain.len() as u64 > STATE_BYTES {
            return Err(self.refused(format!("{path} is larger than 100 MiB; split the component")));
        }
        let encrypted = encrypt(&self.access.cipher, plain, self.access.fence);
        let (head, ciphertext) = encrypted.map_err(self.io("encrypt"))?;
        if !head.is_valid() {
            return Err(self.refused(format!(
                "the lineage or the serial in {path} is invalid; correct them in a copy, and run `stead-runner state resolve \
                 {component} --restore FILE --reason TEXT`"
            )));
        }
        if let Some(Current { head: former, .. }) = current
            && (head.lineage != former.lineage || head.serial <= former.serial)
        {
            return Err(self.refused(format!(
                "{path} has another state than serial {} of lineage {}, which is stored encrypted; choose one of them: \
                 `stead-runner state resolve {component} --reason TEXT` with --restore FILE or --keep-current (the encrypted one)",
                former.serial, former.lineage,
            )));
        }
        let mark = StateMark { lineage: Some(head.lineage.clone()), serial: head.serial };
        // A state that will be refused must not become the server's.
        let checked = self.store.check_known(&mark, known.own, known.log);
        checked.map_err(|StateRefusal(why)| StateError::Blocked(why))?;
        self.store.check_digest(&head, known.own, known.log)?;
        let upload = StateUpload { head, written_by: None, is_decided: false };
        {
            let _lock = self.store.lock_idle()?;
            self.store.write_next(&upload, &ciphertext).map_err(self.io("encrypt"))?;
        }
        let line = |text: &str| self.line(text);
        let waiting = self.waiting(&line);
        let sent = self.access.remote.put_patiently(&upload, ciphertext, &waiting).await;
        sent.map_err(|error| self.store.with_choices(error))?;
        let _lock = self.store.lock_idle()?;
        // A user can have decided while the server was called.
        if self.store.next().ok().flatten().is_none_or(|next| next != upload) {
            let why = "the state on this host was changed while the server stored it; retry";
            return Err(self.refused(why));
        }
        let stored = self.store.keep_former(&upload);
        let stored = stored.and_then(|()| self.store.commit_next());
        let stored = stored.and_then(|()| self.store.mark_uploaded(&upload.head));
        stored.map_err(self.io("store"))?;
        Ok(upload.head)
    }
}

impl StateStore {
    /// Refuses states of host and server that exclude each other.
    pub(super) fn diverged(
        &self,
        host: Option<&StateHead>,
        server: Option<&StateHead>,
    ) -> StateError {
        let name = |head: Option<&StateHead>| match head {
            Some(head) => format!("serial {} of lineage {}", head.serial, head.lineage),
            None => "none".into(),
        };
        let component = &self.component;
        self.with_choices(StateError::Blocked(format!(
            "cannot use the state of {component}: this host has {}, the server has {}, and neither continues the other",
            name(host),
            name(server),
        )))
    }

    /// Adds the choices of the user to an error that only a decision ends.
    pub(super) fn with_choices(&self, error: StateError) -> StateError {
        match error {
            StateError::Blocked(why) => StateError::Blocked(format!(
                "{why}; choose the state on the host that has it: `stead-runner state resolve {} --reason TEXT` with one of \
                 --keep-current, --from-server, --restore FILE and --nothing-exists",
                self.component
            )),
            error @ (StateError::Refused(_)
            | StateError::Io { .. }
            | StateError::Stopped { .. }) => error,
        }
    }
}
