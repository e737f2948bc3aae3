//! Decision of a user about the state after a failed apply.
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{NOTHING, RESOLVED, StateError, StateMark, StateStore, mark_of};
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
    decision: Decision,
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
        let mark = self.mark_after(&decision)?;
        Ok(Resolution { store: self.clone(), decision, mark, _alone: alone })
    }

    fn mark_after(&self, decision: &Decision) -> Result<StateMark, StateError> {
        match decision {
            Decision::Restore(file) => {
                let read = fs::read(file).and_then(|bytes| mark_of(&bytes));
                read.map_err(StateError::io(format!(
                    "cannot restore the state from {}",
                    file.display()
                )))
            }
            Decision::KeepCurrent => match self.mark()? {
                StateMark { lineage: None, .. } => Err(StateError::Blocked(format!(
                    "cannot keep the state of {}: the component has none; use --restore or --nothing-exists",
                    self.component
                ))),
                mark => Ok(mark),
            },
            Decision::NothingExists => Ok(StateMark::default()),
        }
    }

    fn carry_out(&self, decision: &Decision) -> io::Result<()> {
        self.free_reserve()?;
        match decision {
            Decision::Restore(file) => {
                let bytes = fs::read(file)?;
                self.set_aside(&self.file())?;
                data::replace(&self.file(), &bytes)?;
            }
            Decision::KeepCurrent => {}
            Decision::NothingExists => {
                self.set_aside(&self.file())?;
                data::replace(&self.dir.join(NOTHING), b"")?;
            }
        }
        for file in self.unresolved()? {
            self.set_aside(&file)?;
        }
        if *decision != Decision::NothingExists {
            self.unmark_as_nothing()?;
        }
        self.forget_apply()
    }

    fn set_aside(&self, file: &Path) -> io::Result<()> {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let aside = self.dir.join(format!("{RESOLVED}{}.{name}", ids::new_ulid()));
        match fs::rename(file, aside) {
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
