//! Decision of a user about the state: after a failed apply, or if host and server have states that
//! exclude each other.
//!
//! ```text
//! decide     lock ─▶ finish an interrupted write ─▶ version after the newest one of host, server and journal
//! stage      state.encrypted.next
//!            upload, under the fence of the server's newest version: another host's write in between rejects it
//! carry_out  rename ─▶ set aside rescues ─▶ journal
//! ```
//!
//! Every choice leads to a state that host and server both have, so the next job begins with it.
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use schemas::{
    manifest::Fence,
    runner::{StateHead, StateUpload},
};
use zeroize::Zeroizing;

use super::{
    NOTHING, RESOLVED, StateError, StateMark, StateStore,
    copies::{Current, encrypt},
    mark_of,
    opening::is_same,
    remote::Newest,
    serial::{with_serial, without_resources},
};
use crate::data;
use crate::ids;

/// State that the user chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Restore(PathBuf),
    /// The newest state of this host.
    KeepCurrent,
    /// The newest state of the server.
    FromServer,
    /// No state, because the component has no resources.
    NothingExists,
}

/// Versions beside those of this host that a decision must follow.
#[derive(Debug, Default)]
pub struct Basis {
    /// Newest version of the server, with its ciphertext.
    pub(super) server: Option<(StateHead, Vec<u8>)>,
    /// Highest serial of each lineage in the journal.
    pub(super) highest: BTreeMap<String, u64>,
    /// True if the server was asked.
    pub(super) is_online: bool,
}

impl Basis {
    /// Returns the basis of a decision: the newest version of the server, and the highest serials
    /// of the journal.
    pub(super) fn of(newest: Newest, highest: BTreeMap<String, u64>) -> Self {
        let server = match newest {
            Newest::Other(head, ciphertext) => Some((head, ciphertext)),
            Newest::None | Newest::Same(_) => None,
        };
        Basis { server, highest, is_online: true }
    }

    fn head(&self) -> Option<&StateHead> {
        self.server.as_ref().map(|(head, _)| head)
    }
}

/// Decision that was checked. While this value exists, no other process begins or ends an apply of
/// the component, or resolves its state.
#[derive(Debug)]
pub struct Resolution {
    store: StateStore,
    decision: Prepared,
    mark: StateMark,
    _alone: File,
}

/// Decision with its state.
enum Prepared {
    /// Version to store on this host and on the server.
    Write { upload: StateUpload, ciphertext: Bytes, is_nothing: bool },
    /// The copy of this host, which the server has. Without a server, it gets the copy from the next
    /// job.
    Keep,
    /// No party has a state.
    NothingExists,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepared(…)")
    }
}

impl Resolution {
    /// Returns lineage and serial of the state that the decision makes current.
    pub fn mark(&self) -> &StateMark {
        &self.mark
    }

    /// Returns true if the decision changes the state of this host or of the server.
    pub fn changes(&self) -> bool {
        match &self.decision {
            Prepared::Keep => false,
            Prepared::Write { .. } | Prepared::NothingExists => true,
        }
    }

    /// Returns the version that the server must store before the decision is carried out.
    pub(super) fn upload(&self) -> Option<(&StateUpload, Bytes)> {
        match &self.decision {
            Prepared::Write { upload, ciphertext, .. } => Some((upload, ciphertext.clone())),
            Prepared::Keep | Prepared::NothingExists => None,
        }
    }

    /// Writes the chosen state to this host's disk, before the server gets it. After a crash, the
    /// next job uses it if the server has it.
    pub(super) fn stage(&self) -> Result<(), StateError> {
        match &self.decision {
            Prepared::Write { upload, ciphertext, .. } => {
                let written = self.store.write_next(upload, ciphertext).or_else(|_full| {
                    self.store.free_reserve()?;
                    self.store.write_next(upload, ciphertext)
                });
                written.map_err(self.failed())
            }
            Prepared::Keep | Prepared::NothingExists => Ok(()),
        }
    }

    /// Removes the staged state of a decision that the server rejected.
    pub(super) fn unstage(&self) {
        self.store.discard_next();
    }

    /// Carries out a staged decision. Deletes no state: replaced files get names that begin with
    /// `resolved-`.
    pub(super) fn finish(&self, is_uploaded: bool) -> Result<(), StateError> {
        self.store.carry_out(&self.decision, is_uploaded).map_err(self.failed())
    }

    /// Carries out the decision on this host only. The next job uploads its state.
    pub fn carry_out(&self) -> Result<(), StateError> {
        self.stage()?;
        self.finish(false)
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> StateError + use<> {
        StateError::io(format!("cannot resolve the state of {}", self.store.component))
    }
}

impl StateStore {
    /// Locks the component and checks a decision. Finishes an interrupted write, and changes no
    /// other state.
    pub fn decide(&self, decision: Decision, basis: &Basis) -> Result<Resolution, StateError> {
        if !self.dir.is_dir() {
            if basis.server.is_none() {
                return Err(StateError::Blocked(format!(
                    "cannot resolve the state of {}: neither {} nor the server has such a component; `stead-runner state list` shows all \
                     components",
                    self.component,
                    self.dir.parent().unwrap_or(&self.dir).display()
                )));
            }
            let context = format!("cannot create {}", self.dir.display());
            data::directory(&self.dir).map_err(StateError::io(context))?;
        }
        let alone = self.lock()?;
        if let Some(record) = self.in_progress()? {
            record.require_ended()?;
        }
        if self.cipher.is_some() {
            let context = || format!("cannot finish a write of the state of {}", self.component);
            self.finish_next(basis.head()).map_err(StateError::io(context()))?;
        }
        let (decision, mark) = match &decision {
            Decision::Restore(file) => {
                let context = format!("cannot restore the state from {}", file.display());
                self.restore(file, basis).map_err(StateError::io(context))?
            }
            Decision::KeepCurrent => self.keep(basis)?,
            Decision::FromServer => self.take(basis)?,
            Decision::NothingExists => {
                let context = format!("cannot resolve the state of {}", self.component);
                self.nothing(basis).map_err(StateError::io(context))?
            }
        };
        Ok(Resolution { store: self.clone(), decision, mark, _alone: alone })
    }

    /// Returns the version of this host's copy, if its first line can be read.
    fn host(&self) -> Option<StateHead> {
        self.stored().ok().flatten().map(|stored| stored.head)
    }

    /// Returns the highest known serial of a lineage.
    fn highest(&self, lineage: &str, basis: &Basis) -> Option<u64> {
        let heads = [self.host(), basis.head().cloned()];
        let of_lineage = heads.into_iter().flatten().filter(|head| head.lineage == lineage);
        of_lineage.map(|head| head.serial).chain(basis.highest.get(lineage).copied()).max()
    }

    /// Prepares a new version with this state. A known lineage gets the serial after the highest
    /// one, so that no other runner continues from that.
    fn version(
        &self,
        state: &[u8],
        basis: &Basis,
        is_nothing: bool,
    ) -> io::Result<(Prepared, StateMark)> {
        let mark = mark_of(state)?;
        let lineage = mark.lineage.clone().unwrap_or_default();
        let numbered = match self.highest(&lineage, basis) {
            Some(highest) => {
                let serial = mark.serial.max(highest).checked_add(1);
                let serial = serial.ok_or_else(|| io::Error::other("its serial is too high"))?;
                Zeroizing::new(with_serial(state, serial)?)
            }
            None => Zeroizing::new(state.to_vec()),
        };
        // The server requires the fence of its newest version.
        let fence = basis.head().map(|head| head.fence);
        let fence = fence.or_else(|| self.host().map(|head| head.fence));
        let fence = fence.unwrap_or(Fence { epoch: 0, position: 0 });
        let (head, ciphertext) = encrypt(self.require_cipher()?, &numbered, fence)?;
        if !head.is_valid() {
            return Err(io::Error::other("its lineage or serial is invalid"));
        }
        let mark = match is_nothing {
            true => StateMark::default(),
            false => StateMark { lineage: Some(lineage), serial: head.serial },
        };
        let upload = StateUpload { head, written_by: None, is_decided: true };
        Ok((Prepared::Write { upload, ciphertext, is_nothing }, mark))
    }

    fn restore(&self, file: &Path, basis: &Basis) -> io::Result<(Prepared, StateMark)> {
        self.version(&self.read_chosen(file)?, basis, false)
    }

    fn keep(&self, basis: &Basis) -> Result<(Prepared, StateMark), StateError> {
        let context = || format!("cannot keep the state of {}", self.component);
        if self.host().is_none() && self.stored().is_ok() {
            let mark = self.mark()?;
            let plain = self.plain().map_err(StateError::io(context()))?;
            return match (plain, basis.is_online) {
                (None, _) => Err(StateError::Blocked(format!(
                    "{}: this host has none; use --from-server, --restore or --nothing-exists",
                    context()
                ))),
                // The next job moves the file.
                (Some(_), false) => Ok((Prepared::Keep, mark)),
                (Some(plain), true) => {
                    let plain = Zeroizing::new(plain);
                    self.version(&plain, basis, false).map_err(StateError::io(context()))
                }
            };
        }
        let Some(Current { head, state }) = self.local_copy()? else {
            return Err(StateError::Blocked(format!("{}: this host has none", context())));
        };
        let is_at_server = match basis.is_online {
            true => basis.head().is_some_and(|server| is_same(server, &head)),
            false => true,
        };
        let is_highest = self.highest(&head.lineage, basis).is_none_or(|most| most <= head.serial);
        match is_at_server && is_highest {
            true => {
                let mark = StateMark { lineage: Some(head.lineage), serial: head.serial };
                Ok((Prepared::Keep, mark))
            }
            false => self.version(&state, basis, false).map_err(StateError::io(context())),
        }
    }

    fn take(&self, basis: &Basis) -> Result<(Prepared, StateMark), StateError> {
        let Some((head, ciphertext)) = &basis.server else {
            return Err(StateError::Blocked(format!(
                "cannot use the server's state of {}: the server has none; use --keep-current, --restore or --nothing-exists",
                self.component
            )));
        };
        // A new version also ends the wait of the vendor for a state that only this host has.
        let current = self.decrypt_copy(head.clone(), ciphertext, "the server")?;
        let context = || format!("cannot use the server's state of {}", self.component);
        self.version(&current.state, basis, false).map_err(StateError::io(context()))
    }

    fn nothing(&self, basis: &Basis) -> io::Result<(Prepared, StateMark)> {
        let newest = basis.head().cloned().or_else(|| self.host());
        let Some(newest) = newest else {
            return Ok((Prepared::NothingExists, StateMark::default()));
        };
        self.version(&without_resources(&newest.lineage, newest.serial)?, basis, true)
    }

    fn carry_out(&self, decision: &Prepared, is_uploaded: bool) -> io::Result<()> {
        self.free_reserve()?;
        match decision {
            Prepared::Write { upload, .. } => {
                self.link_aside(&self.encrypted_file())?;
                self.commit_next()?;
                if is_uploaded {
                    self.mark_uploaded(&upload.head)?;
                }
                self.set_aside_plain()?;
            }
            // Without an encrypted copy, the file is the state.
            Prepared::Keep if self.host().is_some() => self.set_aside_plain()?,
            Prepared::Keep => {}
            Prepared::NothingExists => self.set_aside_plain()?,
        }
        let is_nothing = match decision {
            Prepared::Write { is_nothing, .. } => *is_nothing,
            Prepared::Keep => false,
            Prepared::NothingExists => true,
        };
        if is_nothing {
            data::replace(&self.dir.join(NOTHING), b"")?;
        }
        for file in self.unresolved()? {
            self.set_aside(&file)?;
        }
        if !is_nothing {
            self.unmark_as_nothing()?;
        }
        self.forget_apply()
    }

    fn set_aside_plain(&self) -> io::Result<()> {
        match self.file().is_dir() {
            true => Ok(()),
            false => self.set_aside(&self.file()),
        }
    }

    fn aside(&self, file: &Path) -> PathBuf {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        self.dir.join(format!("{RESOLVED}{}.{name}", ids::new_ulid()))
    }

    /// Gives a file a name that begins with `resolved-`.
    pub(super) fn set_aside(&self, file: &Path) -> io::Result<()> {
        match fs::rename(file, self.aside(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _renamed_or_absent => data::sync_parent(file),
        }
    }

    /// Keeps the content of a file that is about to be replaced, as [`StateStore::set_aside`].
    pub(super) fn link_aside(&self, file: &Path) -> io::Result<()> {
        match fs::hard_link(file, self.aside(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _linked_or_absent => Ok(()),
        }
    }
}
