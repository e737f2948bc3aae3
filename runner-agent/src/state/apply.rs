//! The time in which the state on disk may be incomplete: from the beginning of an apply to its known end.
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use domain::ids::ExecutionId;
use rand::RngCore as _;
use serde::{Deserialize, Serialize};

use super::{IN_PROGRESS, RESERVE, StateError, StateMark, StateStore};
use crate::{data, host::Process};

/// Least disk space that is reserved for a rescue.
const LEAST_RESERVE: u64 = 64 << 20;
/// The reserve is written in blocks of this size.
const BLOCK: usize = 1 << 20;

/// What is known of an apply that began.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InProgress {
    pub execution: ExecutionId,
    /// Terraform leaves a state there that it could not write.
    pub module_dir: PathBuf,
    /// The process that rescues the state when the apply ends.
    pub process: Process,
    /// Whether the marker said that nothing of the component existed.
    pub had_nothing: bool,
    /// Whether the plugin keeps its state in the file of the store.
    pub uses_file: bool,
}

impl InProgress {
    /// Whether another process still runs the apply.
    pub(super) fn is_running(&self) -> io::Result<bool> {
        Ok(self.process.pid != std::process::id() && self.process.is_alive()?)
    }
}

/// How an apply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyEnd {
    /// It ended before it could change anything.
    Unchanged,
    /// It may have changed anything.
    Changed,
}

impl StateStore {
    /// Prepares for an apply: nothing may change before this returns. Reserves disk space, records the apply, and removes
    /// the marker that nothing exists.
    pub fn begin_apply(
        &self,
        execution: ExecutionId,
        module_dir: &Path,
        uses_file: bool,
    ) -> Result<(), StateError> {
        let had_nothing = self.is_marked_as_nothing();
        self.reserve()?;
        let context = || format!("cannot record that an apply of {} begins", self.component);
        let recorded = Process::of(std::process::id()).and_then(|process| {
            let module_dir = module_dir.into();
            let record = InProgress { execution, module_dir, process, had_nothing, uses_file };
            data::replace_json(&self.dir.join(IN_PROGRESS), &record)
        });
        let begun = recorded.and_then(|()| self.unmark_as_nothing());
        begun.map_err(StateError::io(context()))
    }

    /// Ends an apply that this process began. An error means that the state is not known to be complete: the record stays,
    /// and with it the work directory.
    pub fn end_apply(&self, end: ApplyEnd) -> Result<(), StateError> {
        match self.in_progress()? {
            Some(record) => self.close(&record, end),
            None => Ok(()),
        }
    }

    /// Refuses a plan or an apply while the state of a former apply is not resolved. Rescues what a shim that died left.
    pub fn require_resolved(&self) -> Result<(), StateError> {
        if let Some(record) = self.in_progress()? {
            let execution = record.execution;
            match record.is_running() {
                Ok(false) => self.close(&record, ApplyEnd::Changed)?,
                Ok(true) => {
                    return Err(StateError::Blocked(format!(
                        "cannot plan {}: its apply {execution} still runs; wait for its end",
                        self.component
                    )));
                }
                Err(source) => {
                    let context = format!("cannot tell whether {execution} still runs");
                    return Err(StateError::Io { context, source });
                }
            }
        }
        let context = || format!("cannot look for rescued state of {}", self.component);
        match self.unresolved().map_err(StateError::io(context()))?.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(self.blocked(&format!(
                "a former apply could not write its state, which was rescued to {}",
                first.display()
            ))),
        }
    }

    fn close(&self, record: &InProgress, end: ApplyEnd) -> Result<(), StateError> {
        let context = || format!("cannot end the apply of {}", self.component);
        let is_rescued = record.uses_file && self.rescue(record)?;
        let mark = if record.uses_file { self.mark() } else { Ok(StateMark::default()) };
        let has_state = mark.as_ref().is_ok_and(|mark| mark.lineage.is_some());
        let is_unchanged = end == ApplyEnd::Unchanged && mark.is_ok();
        if record.uses_file && !is_rescued && !has_state && !is_unchanged {
            return Err(self.blocked(&format!(
                "its apply {} left no complete state in {}; what it left is there and in {}",
                record.execution,
                self.file().display(),
                record.module_dir.display()
            )));
        }
        if is_unchanged && record.had_nothing && !is_rescued && !has_state {
            self.mark_as_nothing()?;
        }
        self.forget_apply().map_err(StateError::io(context()))
    }

    /// Removes the record of an apply, durably.
    pub(super) fn forget_apply(&self) -> io::Result<()> {
        self.free_reserve()?;
        data::remove(&self.dir.join(IN_PROGRESS))?;
        data::sync_parent(&self.dir.join(IN_PROGRESS))
    }

    /// The apply that began and is not known to have ended with a complete state.
    pub(super) fn in_progress(&self) -> Result<Option<InProgress>, StateError> {
        let path = self.dir.join(IN_PROGRESS);
        data::read_json(&path).map_err(StateError::io(format!("cannot read {}", path.display())))
    }

    /// Writes the reserve. Random bytes: a file system that compresses would keep no space for zeros.
    fn reserve(&self) -> Result<(), StateError> {
        let size = LEAST_RESERVE.max(2 * self.largest_file());
        let path = self.dir.join(RESERVE);
        let write = || -> io::Result<()> {
            data::remove(&path)?;
            let mut file = data::fresh(&path)?;
            let mut block = vec![0; BLOCK];
            rand::thread_rng().fill_bytes(&mut block);
            for _ in 0..size.div_ceil(BLOCK as u64) {
                file.write_all(&block)?;
            }
            file.sync_all()
        };
        write().map_err(|error| {
            let _best_effort = data::remove(&path);
            StateError::Blocked(format!(
                "cannot apply {}: {} MiB in {} cannot be reserved for its state ({error}); free disk space and retry",
                self.component,
                size.div_ceil(BLOCK as u64),
                self.dir.display()
            ))
        })
    }

    /// Frees the reserve for the rescue.
    pub(super) fn free_reserve(&self) -> io::Result<()> {
        data::remove(&self.dir.join(RESERVE))
    }

    /// The state's size, also where a plugin keeps it in a file of another name.
    fn largest_file(&self) -> u64 {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).max().unwrap_or(0)
    }
}

/// Executions whose files hold state that was not rescued yet, of all components below `root`.
pub fn executions_in_progress(root: &Path) -> io::Result<BTreeSet<ExecutionId>> {
    let mut found = BTreeSet::new();
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let record: Option<InProgress> = match data::read_json(&entry?.path().join(IN_PROGRESS)) {
            // Not a directory.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOTDIR) => None,
            record => record?,
        };
        found.extend(record.map(|record| record.execution));
    }
    Ok(found)
}
