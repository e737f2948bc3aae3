//! State of the components of an install: its location, the protection of an apply, and rescued
//! state.
//!
//! ```text
//! state/<component>/terraform.tfstate      the state
//!                   no-prior-state         the component has no state, because it has no resources
//!                   apply-in-progress.json an apply began, and its state is not known to be complete
//!                   apply-reserve          disk space for the rescue, while an apply runs
//!                   apply-lock             locked while an apply begins or ends, and while a user resolves the state
//!                   errored-<execution>.*  rescued state: no plan starts until a user resolves it
//!                   resolved-<ulid>.*      files that a resolution set aside
//!
//! begin_apply ─▶ apply ─▶ rescue ─▶ end_apply        if the shim dies, the next plan does the last two steps
//! ```
//!
//! [`StateStore`] is the only code that knows these names.
mod apply;
mod dump;
mod known;
mod rescue;
mod resolve;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

pub(crate) use self::dump::StateDump;
pub use self::{
    apply::{ApplyEnd, executions_in_progress},
    known::{KnownState, StateRefusal, carried, known},
    resolve::{Decision, Overview, Resolution, overview},
};
pub use schemas::plugin::StateMark;

use crate::data;

const STATE: &str = "terraform.tfstate";
const NOTHING: &str = "no-prior-state";
const IN_PROGRESS: &str = "apply-in-progress.json";
const RESERVE: &str = "apply-reserve";
const LOCK: &str = "apply-lock";
const ERRORED: &str = "errored-";
const RESOLVED: &str = "resolved-";

/// Parses lineage and serial of a Terraform state.
fn mark_of(bytes: &[u8]) -> io::Result<StateMark> {
    let mark: StateMark = serde_json::from_slice(bytes)?;
    match mark.lineage {
        Some(_) => Ok(mark),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the state has no lineage")),
    }
}

/// Reason to refuse a plan or an apply.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A user must act first. The message names the action.
    #[error("{0}")]
    Blocked(String),
    /// Reading or writing the state failed.
    #[error("{context}")]
    Io { context: String, source: io::Error },
}

impl StateError {
    fn io(context: String) -> impl FnOnce(io::Error) -> Self {
        move |source| StateError::Io { context, source }
    }
}

/// State of one component, in a directory of this host.
#[derive(Debug, Clone)]
pub struct StateStore {
    dir: PathBuf,
    component: String,
}

impl StateStore {
    /// Returns the store of `component` below `root`, without creating it.
    pub fn new(root: &Path, component: &str) -> Self {
        StateStore { dir: root.join(component), component: component.into() }
    }

    /// Returns the directory of the component, in which external plugins store their files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the file that Terraform reads and writes.
    pub fn file(&self) -> PathBuf {
        self.dir.join(STATE)
    }

    /// Returns lineage and serial of the state. An empty file is not a state: Terraform creates an
    /// empty file with its lock, before it writes.
    pub fn mark(&self) -> Result<StateMark, StateError> {
        let context = || format!("cannot read the state of {}", self.component);
        match fs::read(self.file()) {
            Ok(bytes) if bytes.is_empty() => Ok(StateMark::default()),
            Ok(bytes) => mark_of(&bytes).map_err(StateError::io(context())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StateMark::default()),
            Err(error) => Err(StateError::io(context())(error)),
        }
    }

    /// Returns the outputs in the state, also the sensitive ones. Empty without a state.
    pub(crate) fn outputs(&self) -> io::Result<BTreeMap<String, Value>> {
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            outputs: BTreeMap<String, Output>,
        }
        #[derive(Deserialize)]
        struct Output {
            #[serde(default)]
            value: Value,
        }
        let bytes = match fs::read(self.file()) {
            Ok(bytes) if bytes.is_empty() => return Ok(BTreeMap::new()),
            Ok(bytes) => Zeroizing::new(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let State { outputs } = serde_json::from_slice(&bytes)?;
        Ok(outputs.into_iter().map(|(name, output)| (name, output.value)).collect())
    }

    /// Returns whether the marker says that the component has no resources.
    pub fn is_marked_as_nothing(&self) -> bool {
        self.dir.join(NOTHING).exists()
    }

    /// Creates the marker that the component has no resources, so that a plan needs no state.
    pub fn mark_as_nothing(&self) -> Result<(), StateError> {
        let path = self.dir.join(NOTHING);
        data::replace(&path, b"")
            .map_err(StateError::io(format!("cannot write {}", path.display())))
    }

    /// Removes the marker durably. From now on a missing state counts as lost.
    fn unmark_as_nothing(&self) -> io::Result<()> {
        let path = self.dir.join(NOTHING);
        data::remove(&path)?;
        data::sync_parent(&path)
    }

    /// Returns the rescued files that no user has resolved yet.
    pub fn unresolved(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(ERRORED) {
                found.push(entry.path());
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn blocked(&self, why: &str) -> StateError {
        let component = &self.component;
        StateError::Blocked(format!(
            "cannot plan {component}: {why}; on the runner's host, choose the state with `stead-runner state resolve \
             {component} --reason TEXT` and one of --restore FILE, --keep-current and --nothing-exists"
        ))
    }
}

#[cfg(test)]
mod tests;
