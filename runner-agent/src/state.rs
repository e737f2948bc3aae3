//! State of the components of an install: its location, the protection of an apply, and rescued
//! state.
//!
//! ```text
//! state/<component>/state.encrypted        the state, see `local`
//!                   no-prior-state         the component has no state, because it has no resources
//!                   apply-in-progress.json an apply began, and its state is not known to be complete
//!                   apply-reserve          disk space for the rescue, while an apply runs
//!                   apply-lock             locked while an apply begins or ends, and while a user resolves the state
//!                   errored-<execution>.*  rescued state, encrypted: no plan starts until a user resolves it
//!                   resolved-<ulid>.*      files that a resolution set aside
//!                   plugin/                files of an external plugin, all that its jobs can change
//!
//! begin_apply ─▶ apply ─▶ rescue ─▶ end_apply        if the shim dies, the next plan does the last two steps
//! ```
//!
//! `opening` decides which state a job begins with, `session` serves and writes it, `reader` reads
//! the state of another component, and `resolve` carries out the decision of a user.
//!
//! [`StateStore`] is the only code that knows these names.
mod apply;
mod backend;
mod cipher;
mod copies;
mod dump;
mod known;
mod local;
mod online;
mod open;
mod opening;
mod overview;
mod plugin_files;
mod reader;
mod remote;
mod rescue;
mod resolve;
mod serial;
mod session;

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
    backend::Backend,
    cipher::{Cipher, StateKeys},
    known::{KnownState, StateRefusal, carried, known},
    local::pending_uploads,
    online::Online,
    open::Known,
    overview::{Overview, overview},
    reader::Reading,
    remote::Remote,
    resolve::{Basis, Decision, Resolution},
    session::{Access, Session},
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
    /// The server refuses the call, and no other state would change that.
    #[error("{0}")]
    Refused(String),
    /// Reading or writing the state failed.
    #[error("{context}")]
    Io { context: String, source: io::Error },
    /// The job was stopped while it waited for the server.
    #[error("{context}: the job was stopped")]
    Stopped { context: String },
}

impl StateError {
    pub(crate) fn io(context: String) -> impl FnOnce(io::Error) -> Self {
        move |source| StateError::Io { context, source }
    }
}

/// State of one component, in a directory of this host.
#[derive(Debug, Clone)]
pub struct StateStore {
    dir: PathBuf,
    component: String,
    /// Keys of the component. Without them, the state can be stored and uploaded, but not read.
    cipher: Option<Cipher>,
}

impl StateStore {
    /// Returns the store of `component` below `root`, without creating it.
    pub fn new(root: &Path, component: &str) -> Self {
        StateStore { dir: root.join(component), component: component.into(), cipher: None }
    }

    /// Adds the keys of the component.
    pub fn with_cipher(self, cipher: Option<Cipher>) -> Self {
        StateStore { cipher, ..self }
    }

    /// Returns the name of the component.
    pub fn component(&self) -> &str {
        &self.component
    }

    fn require_cipher(&self) -> io::Result<&Cipher> {
        self.cipher.as_ref().ok_or_else(|| {
            io::Error::other(format!("this job has no keys for the state of {}", self.component))
        })
    }

    /// Returns the directory of the component.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the file in which earlier versions kept the state.
    pub fn file(&self) -> PathBuf {
        self.dir.join(STATE)
    }

    /// Returns lineage and serial of the state on this host, also of one in the file of an earlier
    /// version.
    pub fn mark(&self) -> Result<StateMark, StateError> {
        let read = || -> io::Result<StateMark> {
            if let Some(plain) = self.plain()? {
                return mark_of(&plain);
            }
            Ok(self.stored()?.map_or_else(StateMark::default, |stored| StateMark {
                lineage: Some(stored.head.lineage),
                serial: stored.head.serial,
            }))
        };
        read().map_err(StateError::io(format!("cannot read the state of {}", self.component)))
    }

    /// Decrypts the state on this host.
    pub fn read(&self) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        if let Some(plain) = self.plain()? {
            return Ok(Some(Zeroizing::new(plain)));
        }
        let Some((upload, ciphertext)) = self.read_stored()? else { return Ok(None) };
        let state = self.require_cipher()?.decrypt_state(&upload.head, &ciphertext);
        state.map(Some).map_err(io::Error::other)
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
             {component} --reason TEXT` and one of --restore FILE, --keep-current, --from-server and --nothing-exists"
        ))
    }
}

/// Returns the outputs in a state, also the sensitive ones. Empty without a state.
pub(crate) fn outputs(state: Option<&[u8]>) -> io::Result<BTreeMap<String, Value>> {
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
    let Some(bytes) = state else { return Ok(BTreeMap::new()) };
    let State { outputs } = serde_json::from_slice(bytes)?;
    Ok(outputs.into_iter().map(|(name, output)| (name, output.value)).collect())
}

#[cfg(test)]
mod tests;
