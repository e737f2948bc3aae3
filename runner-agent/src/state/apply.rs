//! Start and end of an apply. In between, the state on disk may be incomplete.
use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use domain::ids::ExecutionId;
use rand::RngCore as _;
use serde::{Deserialize, Serialize};

use super::{IN_PROGRESS, LOCK, RESERVE, StateError, StateMark, StateStore};
use crate::{data, host::Process, processes};

/// Smallest disk space in bytes that is reserved for a rescue.
const LEAST_RESERVE: u64 = 64 << 20;
/// Block size of the reserve in bytes.
const BLOCK: usize = 1 << 20;
/// Longest wait for the lock of a component: its holder may be writing the reserve or rescuing a
/// large state.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Record of an apply that began.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InProgress {
    pub execution: ExecutionId,
    /// Directory in which Terraform leaves a state that it could not write.
    pub module_dir: PathBuf,
    /// Process that rescues the state when the apply ends.
    pub process: Process,
    /// True if the component was marked as having no resources before the apply.
    pub had_nothing: bool,
    /// True if the plugin keeps its state in the file of the store.
    pub uses_file: bool,
}

impl InProgress {
    /// Returns an error if a process of the execution still runs, because Terraform can outlive its
    /// shim. The processes of an execution have its id in their environment, or are in the shim's
    /// session.
    pub(super) fn require_ended(&self) -> Result<(), StateError> {
        let context = format!("cannot determine whether the apply {} still runs", self.execution);
        match self.runs().map_err(StateError::io(context))? {
            None => Ok(()),
            Some(process) => Err(StateError::Blocked(format!(
                "the apply {} still runs: {process}; wait for its end",
                self.execution
            ))),
        }
    }

    fn runs(&self) -> io::Result<Option<String>> {
        if let Some(found) = processes::of_execution(&self.execution.to_string())?.first() {
            return Ok(Some(found.label()));
        }
        // The calling process may have begun the apply itself.
        let is_own = self.process.pid == std::process::id();
        let lives = !is_own && (self.process.is_alive()? || self.process.session_lives()?);
        Ok(lives.then(|| format!("shim (pid {})", self.process.pid)))
    }
}

/// End of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyEnd {
    /// The apply ended before it could change anything.
    Unchanged,
    /// The apply may have changed anything.
    Changed,
}

impl StateStore {
    /// Prepares for an apply: reserves disk space, records the apply, and removes the marker that
    /// the component has no resources. The caller must change nothing before the return. After an
    /// error, no apply has begun.
    pub fn begin_apply(
        &self,
        execution: ExecutionId,
        module_dir: &Path,
        uses_file: bool,
    ) -> Result<(), StateError> {
        let _lock = self.lock()?;
        // Another apply may have begun since the caller checked.
        self.resolved()?;
        let had_nothing = self.is_marked_as_nothing();
        self.reserve()?;
        let context = || format!("cannot record the start of an apply of {}", self.component);
        let recorded = Process::of(std::process::id()).and_then(|process| {
            let module_dir = module_dir.into();
            let record = InProgress { execution, module_dir, process, had_nothing, uses_file };
            data::replace_json(&self.dir.join(IN_PROGRESS), &record)
        });
        let result = recorded.and_then(|()| self.unmark_as_nothing());
        result.map_err(|error| {
            if had_nothing {
                let _best_effort = self.mark_as_nothing();
            }
            let _best_effort = self.forget_apply();
            StateError::io(context())(error)
        })
    }

    /// Ends an apply that this process began. After an error the state may be incomplete: the
    /// record and the work directory stay.
    pub fn end_apply(&self, end: ApplyEnd) -> Result<(), StateError> {
        let _lock = self.lock()?;
        match self.in_progress()? {
            Some(record) => self.close(&record, end),
            None => Ok(()),
        }
    }

    /// Refuses a plan or an apply while the state of a former apply is unresolved. Rescues the
    /// state of an apply whose shim died.
    pub fn require_resolved(&self) -> Result<(), StateError> {
        let _lock = self.lock()?;
        self.resolved()
    }

    /// Locks the component until the returned file is closed: no other process begins or ends an
    /// apply, or resolves the state. The lock is not held during an apply, because the record of
    /// the apply blocks other processes.
    pub(super) fn lock(&self) -> Result<File, StateError> {
        let context = || format!("cannot lock the state of {}", self.component);
        let file = data::append(&self.dir.join(LOCK)).map_err(StateError::io(context()))?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(LOCK_INTERVAL)
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StateError::Blocked(format!(
                        "cannot lock the state of {}: another process has held the lock for {} s; wait for its end and \
                         retry",
                        self.component,
                        LOCK_TIMEOUT.as_secs()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(StateError::io(context())(error)),
            }
        }
    }

    /// Locks the component as [`StateStore::lock`], unless an apply runs: its writes take no lock.
    pub(super) fn lock_idle(&self) -> Result<File, StateError> {
        let lock = self.lock()?;
        match self.in_progress()? {
            Some(record) => record.require_ended().map(|()| lock),
            None => Ok(lock),
        }
    }

    fn resolved(&self) -> Result<(), StateError> {
        if let Some(record) = self.in_progress()? {
            record.require_ended().map_err(|error| match error {
                StateError::Blocked(why) => {
                    StateError::Blocked(format!("cannot plan {}: {why}", self.component))
                }
                error @ (StateError::Refused(_)
                | StateError::Io { .. }
                | StateError::Stopped { .. }) => error,
            })?;
            self.close(&record, ApplyEnd::Changed)?;
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
        let context =
            || format!("cannot remove the record of the ended apply of {}", self.component);
        let is_rescued = record.uses_file && self.rescue(record)?;
        if record.uses_file
            && self.next().is_ok_and(|next| next.is_some_and(|next| !next.is_decided))
        {
            // The end of the shim interrupted the write of a complete state.
            self.finish_next(None).map_err(StateError::io(context()))?;
        }
        let mark = if record.uses_file { self.mark() } else { Ok(StateMark::default()) };
        let has_state = mark.as_ref().is_ok_and(|mark| mark.lineage.is_some());
        let is_unchanged = end == ApplyEnd::Unchanged && mark.is_ok();
        if record.uses_file && !is_rescued && !has_state && !is_unchanged {
            return Err(self.blocked(&format!(
                "its apply {} left no complete state in {}; that file and {} may contain parts of the state",
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

    /// Removes the record of an apply durably.
    pub(super) fn forget_apply(&self) -> io::Result<()> {
        self.free_reserve()?;
        data::remove(&self.dir.join(IN_PROGRESS))?;
        data::sync_parent(&self.dir.join(IN_PROGRESS))
    }

    /// Returns the recorded apply, whose state may be incomplete.
    pub(super) fn in_progress(&self) -> Result<Option<InProgress>, StateError> {
        let path = self.dir.join(IN_PROGRESS);
        data::read_json(&path).map_err(StateError::io(format!("cannot read {}", path.display())))
    }

    /// Writes the reserve. Its bytes are random, because a compressing file system would reserve no
    /// space for zeros.
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
                "cannot apply {}: cannot reserve {} MiB in {} for its state ({error}); free disk space and retry",
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

    /// Returns the size of the largest file: a plugin may keep its state under another name.
    fn largest_file(&self) -> u64 {
        let dirs = [self.dir.clone(), self.plugin_dir()];
        let entries = dirs.iter().flat_map(fs::read_dir).flatten().flatten();
        entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).max().unwrap_or(0)
    }
}

/// Returns the executions whose files may have state to rescue, of all components below `root`.
pub fn executions_in_progress(root: &Path) -> io::Result<BTreeSet<ExecutionId>> {
    let mut found = BTreeSet::new();
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let record: Option<InProgress> = match data::read_json(&entry?.path().join(IN_PROGRESS)) {
            // The entry is not a directory.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOTDIR) => None,
            record => record?,
        };
        found.extend(record.map(|record| record.execution));
    }
    Ok(found)
}
