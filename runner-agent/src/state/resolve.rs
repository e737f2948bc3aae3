//! Decision of a user about the state: after a failed apply, or if host and server have states that
//! exclude each other.
//!
//! ```text
//! decide  lock ─▶ finish an interrupted write ─▶ version after the newest one of host, server, journal and log
//! stage   the server's version as a file ─▶ state.encrypted.next
//!         upload, under the fence of the server's newest version. The server rejects it if another host wrote in between,
//!         or while a job runs on the component
//! finish  rename ─▶ set aside rescues ─▶ journal
//! ```
//!
//! Every choice leads to a state that host and server both have, so the next job begins with it, unless
//! the vendor's log names another lineage: then the vendor must accept the new one.
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use schemas::{
    manifest::{Fence, StateVersion},
    runner::{StateHead, StateUpload},
};
use zeroize::Zeroizing;

use super::{
    NOTHING, RESOLVED, StateError, StateMark, StateStore,
    copies::{Current, encrypt},
    known::{has_other_content, known},
    local::write_copy,
    mark_of,
    opening::is_same,
    remote::Newest,
    serial::{with_serial, without_resources},
};
use crate::{
    data, ids,
    journal::{Entry, JournalEvent},
};

/// Fence of a component for which no execution has written a state.
const NO_FENCE: Fence = Fence { epoch: 0, position: 0 };

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
    pub(super) server: Option<(StateHead, Bytes)>,
    /// Newest version that the vendor's log names.
    pub(super) recorded: Option<StateVersion>,
    /// Highest serial of each lineage in the journal.
    pub(super) highest: BTreeMap<String, u64>,
    /// Fence of the newest job in the journal.
    pub(super) claimed: Option<Fence>,
    /// True if the server was asked.
    pub(super) is_online: bool,
    /// True if the user chose a state although a newer one is known.
    pub(super) allows_older: bool,
}

impl Basis {
    /// Returns the basis of a decision without a server.
    pub fn offline(entries: &[Entry], component: &str) -> Self {
        let highest = known(entries).remove(component).unwrap_or_default().highest;
        let claimed = entries.iter().filter_map(|entry| {
            let JournalEvent::Verified { fence, .. } = &entry.event else { return None };
            Some(*fence)
        });
        Basis { highest, claimed: claimed.max(), ..Basis::default() }
    }

    /// Adds the response of the server.
    pub(super) fn online(self, newest: Newest, recorded: Option<StateVersion>) -> Self {
        let server = match newest {
            Newest::Other(head, ciphertext) => Some((head, ciphertext.into())),
            Newest::None | Newest::Same(_) => None,
        };
        Basis { server, recorded, is_online: true, ..self }
    }

    /// Sets whether the user chose a state although a newer one is known.
    pub fn with_older(self, allows_older: bool) -> Self {
        Basis { allows_older, ..self }
    }

    fn head(&self) -> Option<&StateHead> {
        self.server.as_ref().map(|(head, _)| head)
    }
}

/// Versions that a new version must follow.
struct Follows {
    /// Version of the server, if this install has signed it.
    server: Option<StateHead>,
    /// The server requires the fence of its newest version.
    fence: Fence,
    /// Highest serial of each lineage that host, server, journal and log know.
    highest: BTreeMap<String, u64>,
}

/// Decision that was checked. While this value exists, no other process begins or ends an apply of
/// the component, or resolves its state.
#[derive(Debug)]
pub struct Resolution {
    store: StateStore,
    decision: Prepared,
    mark: StateMark,
    /// Version of the server that the decision replaces, and the file that keeps it.
    former: Option<(PathBuf, StateHead, Bytes)>,
    /// Version of this host that the decision replaces.
    host: Option<StateHead>,
    /// Newest version that the vendor's log names.
    recorded: Option<StateVersion>,
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

    /// Describes the versions that the decision replaces.
    pub fn replaced(&self) -> Vec<String> {
        let former = self.former.as_ref().map(|(_, head, _)| (head, "the server"));
        let host = self.host.as_ref().map(|head| (head, "this host"));
        let replaced = former.into_iter().chain(host).filter(|_| self.upload().is_some());
        let text = |(head, place): (&StateHead, &str)| {
            format!("serial {} of lineage {} on {place}", head.serial, head.lineage)
        };
        replaced.map(text).collect()
    }

    /// Returns the lineage in the vendor's log, if the decision selects another one.
    pub fn other_recorded_lineage(&self) -> Option<&str> {
        let recorded = &self.recorded.as_ref()?.lineage;
        let is_other = self.mark.lineage.as_ref().is_some_and(|lineage| lineage != recorded);
        is_other.then_some(recorded)
    }

    /// Returns the version that the server must store before the decision is carried out.
    pub(super) fn upload(&self) -> Option<(&StateUpload, Bytes)> {
        match &self.decision {
            Prepared::Write { upload, ciphertext, .. } => Some((upload, ciphertext.clone())),
            Prepared::Keep | Prepared::NothingExists => None,
        }
    }

    /// Writes the chosen state to this host's disk, before the server gets it. After a crash, the
    /// next job uses it if the server has it. The server's former version is kept on this host: no
    /// command reads it from the server, which deletes it after some more versions.
    pub(super) fn stage(&self) -> Result<(), StateError> {
        let Prepared::Write { upload, ciphertext, .. } = &self.decision else { return Ok(()) };
        let write = |path: &Path, upload: &StateUpload, ciphertext: &Bytes| {
            write_copy(path, upload, ciphertext).or_else(|_full| {
                self.store.free_reserve()?;
                write_copy(path, upload, ciphertext)
            })
        };
        let staged = || -> io::Result<()> {
            if let Some((path, head, ciphertext)) = &self.former {
                let head = head.clone();
                let former = StateUpload { head, written_by: None, is_decided: false };
                write(path, &former, ciphertext)?;
            }
            write(&self.store.next_file(), upload, ciphertext)?;
            data::sync_parent(&self.store.next_file())
        };
        staged().inspect_err(|_| self.unstage()).map_err(self.failed())
    }

    /// Removes the files of a decision that the server rejected.
    pub(super) fn unstage(&self) {
        self.store.discard_next();
        if let Some((path, ..)) = &self.former {
            let _best_effort = data::remove(path);
        }
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
            if basis.server.is_none() && basis.recorded.is_none() {
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
        let alone = self.lock_idle()?;
        if self.cipher.is_some() {
            let context = || format!("cannot finish a write of the state of {}", self.component);
            self.finish_next(basis.head()).map_err(StateError::io(context()))?;
        }
        let (decision, mark) = match &decision {
            Decision::Restore(file) => {
                let context = format!("cannot restore the state from {}", file.display());
                let state = self.read_chosen(file).map_err(StateError::io(context))?;
                self.version(&state, basis, false)?
            }
            Decision::KeepCurrent => self.keep(basis)?,
            Decision::FromServer => self.take(basis)?,
            Decision::NothingExists => self.nothing(basis)?,
        };
        let former = basis.server.clone().map(|(head, ciphertext)| {
            (self.aside(Path::new("server.encrypted")), head, ciphertext)
        });
        let (host, recorded) = (self.host(), basis.recorded.clone());
        let store = self.clone();
        Ok(Resolution { store, decision, mark, former, host, recorded, _alone: alone })
    }

    /// Returns the version of this host's copy, if its first line can be read.
    fn host(&self) -> Option<StateHead> {
        self.stored().ok().flatten().map(|stored| stored.head)
    }

    /// Returns what a new version must follow. The server's word counts only as far as this install
    /// has signed it: the decision is signed as well, and must not get a serial or a fence after which
    /// no state is valid.
    fn follows(&self, basis: &Basis) -> Result<Follows, StateError> {
        let server = basis.server.clone().and_then(|(head, ciphertext)| {
            self.decrypt_copy(head, &ciphertext, "the server").ok().map(|current| current.head)
        });
        let host = self.host();
        let fence = match (&server, basis.head()) {
            (Some(server), _) => server.fence,
            (None, Some(unproven)) if basis.claimed.is_none_or(|own| unproven.fence > own) => {
                return Err(StateError::Refused(format!(
                    "cannot resolve the state of {}: this install did not sign the newest version of the server, and that version claims \
                     to be from a later job than all jobs of this runner; retry after the next job of this runner",
                    self.component
                )));
            }
            (None, Some(unproven)) => unproven.fence,
            (None, None) => host.as_ref().map_or(NO_FENCE, |host| host.fence),
        };
        let mut highest = basis.highest.clone();
        let recorded = basis.recorded.clone().map(|version| (version.lineage, version.serial));
        let heads = [host, server.clone()].into_iter().flatten();
        for (lineage, serial) in heads.map(|head| (head.lineage, head.serial)).chain(recorded) {
            let most = highest.entry(lineage).or_default();
            *most = serial.max(*most);
        }
        Ok(Follows { server, fence, highest })
    }

    /// Prepares a new version with this state. A known lineage gets the serial after the highest
    /// one, so that no other runner continues from that.
    fn version(
        &self,
        state: &[u8],
        basis: &Basis,
        is_nothing: bool,
    ) -> Result<(Prepared, StateMark), StateError> {
        let Follows { fence, highest, .. } = self.follows(basis)?;
        let context = || format!("cannot choose the state of {}", self.component);
        let mark = mark_of(state).map_err(StateError::io(context()))?;
        let lineage = mark.lineage.clone().unwrap_or_default();
        let highest = highest.get(&lineage).copied();
        if let Some(highest) = highest.filter(|most| mark.serial < *most && !is_nothing)
            && !basis.allows_older
        {
            return Err(StateError::Refused(format!(
                "{}: it is serial {} of lineage {lineage}, but serial {highest} is known, and the next plan would create again what was \
                 created since; choose the newer one, or add --older",
                context(),
                mark.serial
            )));
        }
        let encrypted = || -> io::Result<(StateHead, Bytes)> {
            let numbered = match highest {
                Some(highest) => {
                    let serial = mark.serial.max(highest).checked_add(1);
                    let serial =
                        serial.ok_or_else(|| io::Error::other("its serial is too high"))?;
                    Zeroizing::new(with_serial(state, serial)?)
                }
                None => Zeroizing::new(state.to_vec()),
            };
            let (head, ciphertext) = encrypt(self.require_cipher()?, &numbered, fence)?;
            match head.is_valid() {
                true => Ok((head, ciphertext)),
                false => Err(io::Error::other("its lineage or serial is invalid")),
            }
        };
        let (head, ciphertext) = encrypted().map_err(StateError::io(context()))?;
        let mark = match is_nothing {
            true => StateMark::default(),
            false => StateMark { lineage: Some(lineage), serial: head.serial },
        };
        let upload = StateUpload { head, written_by: None, is_decided: true };
        Ok((Prepared::Write { upload, ciphertext, is_nothing }, mark))
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
                (Some(plain), true) => self.version(&Zeroizing::new(plain), basis, false),
            };
        }
        let Some(current @ Current { head, .. }) = &self.local_copy()? else {
            return Err(StateError::Blocked(format!("{}: this host has none", context())));
        };
        let is_at_server =
            !basis.is_online || basis.head().is_some_and(|other| is_same(other, head));
        let highest = self.follows(basis)?.highest;
        let is_highest = highest.get(&head.lineage).is_none_or(|most| *most <= head.serial);
        // The log can name other content of the same serial, which each job would compare.
        let is_recorded = basis.recorded.as_ref().is_none_or(|log| !has_other_content(log, head));
        match is_at_server && is_highest && is_recorded {
            true => Ok((Prepared::Keep, current.mark())),
            false => self.version(&current.state, basis, false),
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
        self.version(&current.state, basis, false)
    }

    fn nothing(&self, basis: &Basis) -> Result<(Prepared, StateMark), StateError> {
        // The lineage of the log comes first: jobs refuse each other one.
        let recorded = basis.recorded.clone().map(|version| (version.lineage, version.serial));
        let copies = [self.follows(basis)?.server, self.host()].into_iter().flatten();
        let copies = copies.map(|head| (head.lineage, head.serial));
        let Some((lineage, serial)) = recorded.into_iter().chain(copies).next() else {
            return Ok((Prepared::NothingExists, StateMark::default()));
        };
        let state = without_resources(&lineage, serial);
        let context = format!("cannot resolve the state of {}", self.component);
        self.version(&state.map_err(StateError::io(context))?, basis, true)
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
        let aside = self.aside(file);
        match fs::hard_link(file, &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // The file system has no links.
            Err(_) => {
                let copied = fs::copy(file, &aside).and_then(|_| File::open(&aside)?.sync_all());
                copied.inspect_err(|_| {
                    let _best_effort = data::remove(&aside);
                })
            }
            Ok(()) => Ok(()),
        }
    }
}
