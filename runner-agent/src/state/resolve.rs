//! Decision of a user about the state after a failed apply.
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use schemas::{
    manifest::Fence,
    runner::{StateHead, StateUpload},
};
use zeroize::Zeroizing;

use super::{
    NOTHING, RESOLVED, StateError, StateMark, StateStore,
    local::is_empty,
    mark_of,
    serial::{with_serial, without_resources},
};
use crate::data;
use crate::ids;

/// State that the user chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Restore(PathBuf),
    KeepCurrent,
    /// No state, because the component has no resources.
    NothingExists,
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

impl Resolution {
    /// Returns lineage and serial of the state that the decision makes current.
    pub fn mark(&self) -> &StateMark {
        &self.mark
    }

    /// Carries out the decision. Deletes no state: replaced files get names that begin with
    /// `resolved-`.
    pub fn carry_out(&self) -> Result<(), StateError> {
        let context = || format!("cannot resolve the state of {}", self.store.component);
        self.store.carry_out(&self.decision).map_err(StateError::io(context()))
    }
}

/// Decision with its state.
enum Prepared {
    /// State to store as the newest one.
    Store(Zeroizing<Vec<u8>>),
    KeepCurrent,
    /// No state is known on this host.
    NothingExists,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepared(…)")
    }
}

/// Component and its state, for `stead-runner state list`.
#[derive(Debug)]
pub struct Overview {
    pub component: String,
    /// Lineage and serial of the component's state, or the error from reading it.
    pub mark: Result<StateMark, StateError>,
    /// Reason that blocks plans of the component.
    pub blocked: Option<String>,
}

impl StateStore {
    /// Locks the component and checks a decision. Changes no state.
    pub fn decide(&self, decision: Decision) -> Result<Resolution, StateError> {
        if !self.dir.is_dir() {
            return Err(StateError::Blocked(format!(
                "cannot resolve the state of {}: {} has no such component; `stead-runner state list` shows all components",
                self.component,
                self.dir.parent().unwrap_or(&self.dir).display()
            )));
        }
        let alone = self.lock()?;
        if let Some(record) = self.in_progress()? {
            record.require_ended()?;
        }
        let (decision, mark) = self.prepare(&decision)?;
        Ok(Resolution { store: self.clone(), decision, mark, _alone: alone })
    }

    /// Returns the state that a decision makes current, with its mark. A state of the known lineage
    /// gets the serial after the known one, so that no other runner continues from that.
    fn prepare(&self, decision: &Decision) -> Result<(Prepared, StateMark), StateError> {
        let read = || -> io::Result<(Prepared, StateMark)> {
            let stored = self.stored()?.map(|stored| stored.head);
            match decision {
                Decision::Restore(file) => {
                    let mut state = self.read_chosen(file)?;
                    let mut mark = mark_of(&state)?;
                    let known = stored.filter(|head| Some(&head.lineage) == mark.lineage.as_ref());
                    if let Some(known) = known {
                        mark.serial = mark.serial.max(known.serial) + 1;
                        state = Zeroizing::new(with_serial(&state, mark.serial)?);
                    }
                    Ok((Prepared::Store(state), mark))
                }
                Decision::KeepCurrent => Ok((Prepared::KeepCurrent, StateMark::default())),
                Decision::NothingExists => {
                    let empty =
                        stored.map(|head| without_resources(&head.lineage, head.serial + 1));
                    let empty = empty.transpose()?.map(Zeroizing::new);
                    let decision = empty.map_or(Prepared::NothingExists, Prepared::Store);
                    Ok((decision, StateMark::default()))
                }
            }
        };
        let prepared = read().map_err(match decision {
            Decision::Restore(file) => {
                StateError::io(format!("cannot restore the state from {}", file.display()))
            }
            Decision::KeepCurrent | Decision::NothingExists => {
                StateError::io(format!("cannot read the state of {}", self.component))
            }
        })?;
        match (prepared, self.mark()) {
            ((Prepared::KeepCurrent, _), Ok(StateMark { lineage: None, .. })) => {
                Err(StateError::Blocked(format!(
                    "cannot keep the state of {}: the component has none; use --restore or --nothing-exists",
                    self.component
                )))
            }
            ((Prepared::KeepCurrent, _), mark) => Ok((Prepared::KeepCurrent, mark?)),
            (prepared, _) => Ok(prepared),
        }
    }

    fn carry_out(&self, decision: &Prepared) -> io::Result<()> {
        self.free_reserve()?;
        match decision {
            Prepared::Store(state) => self.replace_state(state)?,
            Prepared::KeepCurrent => {}
            Prepared::NothingExists => {
                self.set_aside_plain()?;
                data::replace(&self.dir.join(NOTHING), b"")?;
            }
        }
        for file in self.unresolved()? {
            self.set_aside(&file)?;
        }
        match decision {
            Prepared::Store(_) | Prepared::KeepCurrent => self.unmark_as_nothing()?,
            Prepared::NothingExists => {}
        }
        self.forget_apply()
    }

    /// Makes a state the newest one. The agent uploads it as a decision of the customer.
    fn replace_state(&self, state: &[u8]) -> io::Result<()> {
        let cipher = self.require_cipher()?;
        let mark = mark_of(state)?;
        let former = self.stored()?.map(|stored| stored.head.fence);
        let head = StateHead {
            lineage: mark.lineage.unwrap_or_default(),
            serial: mark.serial,
            fence: former.unwrap_or(Fence { epoch: 0, position: 0 }),
            digest: cipher.digest(state),
            is_empty: is_empty(state),
        };
        let ciphertext = cipher.encrypt_state(&head, state)?;
        let upload = StateUpload { head, written_by: None, is_decided: true };
        self.write_next(&upload, &ciphertext)?;
        match fs::hard_link(self.encrypted_file(), self.aside(&self.encrypted_file())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _linked_or_absent => {}
        }
        self.commit_next()?;
        self.set_aside_plain()
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

    fn set_aside(&self, file: &Path) -> io::Result<()> {
        match fs::rename(file, self.aside(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _renamed_or_absent => data::sync_parent(file),
        }
    }
}

/// Returns all components below `root`, by name.
pub fn overview(root: &Path) -> io::Result<Vec<Overview>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let component = entry.file_name().to_string_lossy().into_owned();
        let store = StateStore::new(root, &component);
        let blocked = match (store.unresolved()?.first(), store.in_progress()) {
            (Some(file), _) => Some(format!("rescued state in {}", file.display())),
            (None, Ok(Some(record))) => Some(format!("apply {} did not end", record.execution)),
            (None, Err(error)) => Some(error.to_string()),
            (None, Ok(None)) => None,
        };
        all.push(Overview { component, mark: store.mark(), blocked });
    }
    all.sort_unstable_by(|one, other| one.component.cmp(&other.component));
    Ok(all)
}
