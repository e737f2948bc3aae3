//! The contract of a plugin, and what it is given. Whatever is the same for all of them (artifacts,
//! plan files, approval, staleness, reports) is done around it, in `dispatch`.

use std::{collections::BTreeMap, path::PathBuf};

use schemas::{
    manifest::Manifest,
    runner::{FailureReason, JobKind},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    contract::{JobContext, Outcome, PluginError, Sink},
    plans::Approved,
};
use crate::state::{StateError, StateMark, StateStore};

/// What knows one component type. A method that a plugin does not have is refused with its name.
///
/// Order of the calls in one job: `describe`, `health`, then by the manifest's kind
/// `build` · `state plan` · `state apply|destroy outputs` · `act`.
pub(crate) trait Plugin {
    /// Who it is and what it does.
    fn describe(&self) -> Description;

    /// Is everything here that it needs? Nothing is changed.
    async fn health(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt>;

    /// Check the source in [`Work::source`] and make it what has to be in the artifact.
    async fn build(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Err(self.describe().lacks(JobKind::Build))
    }

    /// Find out what an apply would change, and write it into a file that says all of it.
    async fn plan(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Planned, Halt> {
        Err(self.describe().lacks(JobKind::Plan))
    }

    /// What the state is now; another mark means that somebody has changed it.
    async fn state(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<StateMark, Halt> {
        Err(self.describe().lacks(JobKind::Plan))
    }

    /// Performs the steps of an apply that can fail before it changes anything.
    async fn prepare(&mut self, _: &Work<'_>, _: &Approved, _: &mut dyn Sink) -> Result<(), Halt> {
        Ok(())
    }

    /// Whether the plugin keeps its state in [`StateStore::file`].
    fn uses_state_file(&self) -> bool {
        false
    }

    /// Whether the apply that just ended could not change anything.
    fn changed_nothing(&self) -> bool {
        false
    }

    /// Do exactly what the approved file says.
    async fn apply(&mut self, _: &Work<'_>, _: &Approved, _: &mut dyn Sink) -> Result<(), Halt> {
        Err(self.describe().lacks(JobKind::Apply))
    }

    /// Do exactly what the approved file says, which is to remove everything.
    async fn destroy(
        &mut self,
        work: &Work<'_>,
        plan: &Approved,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        self.apply(work, plan, sink).await
    }

    /// What the component gives to others.
    async fn outputs(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Outputs, Halt> {
        Err(self.describe().lacks(JobKind::Apply))
    }

    /// Run a vendor's scripts; their outputs.
    async fn act(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Outputs, Halt> {
        Err(self.describe().lacks(JobKind::Action))
    }
}

/// Who a plugin is.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub name: String,
    pub kinds: Vec<JobKind>,
}

impl Description {
    pub(crate) fn lacks(&self, kind: JobKind) -> Halt {
        let refusal = format!("the plugin {} has no {} jobs", self.name, kind.as_str());
        Halt::Error(PluginError::Refused(refusal))
    }
}

/// One job, as its plugin sees it.
pub(crate) struct Work<'a> {
    pub manifest: &'a Manifest,
    pub job: &'a JobContext,
    /// The component's name, or the action's.
    pub name: &'a str,
    pub operation: Operation,
    /// The vendor knows that it was brought before and is still there.
    pub present: bool,
    /// Of this component in this install; its directory exists, mode 0700.
    pub state: StateStore,
    /// The artifact's files, if the manifest has an artifact.
    pub source: PathBuf,
}

/// What a plan plans for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Apply,
    Destroy,
}

/// What a plugin planned.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan file, in the work directory.
    pub file: PathBuf,
    /// Files that the apply needs beside it, by name.
    pub beside: BTreeMap<String, PathBuf>,
    /// Name and version of what made it.
    pub tool: String,
    pub changes: Changes,
}

/// What would change, without a single value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Changes {
    pub noop: bool,
    pub add: u64,
    pub change: u64,
    pub destroy: u64,
    #[serde(default)]
    pub resources: Vec<Change>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputChange>,
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub address: String,
    pub action: Action,
    /// The names of what differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
}

/// One output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputChange {
    pub name: String,
    pub action: Action,
}

/// What would become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Create,
    Update,
    Delete,
    Replace,
    Forget,
}

/// What others may read, and the names of what may not leave.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub plain: Map<String, Value>,
    pub withheld: Vec<String>,
}

/// Why a plugin stopped before the end of its work.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The work itself ended so.
    Outcome(Outcome),
    /// The work could not be done.
    Error(PluginError),
}

impl Halt {
    pub(crate) fn cancelled(forced: bool) -> Self {
        Halt::Outcome(Outcome::Cancelled { forced })
    }

    pub(crate) fn exit(code: i32, detail: String) -> Self {
        let reason = FailureReason::ExitCode;
        Halt::Outcome(Outcome::Failed { reason, exit_code: Some(code), signal: None, detail })
    }

    pub(crate) fn signal(signal: i32, detail: String) -> Self {
        let reason = FailureReason::Signal;
        Halt::Outcome(Outcome::Failed { reason, exit_code: None, signal: Some(signal), detail })
    }
}

impl From<PluginError> for Halt {
    fn from(error: PluginError) -> Self {
        Halt::Error(error)
    }
}

impl From<StateError> for PluginError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Blocked(why) => PluginError::Refused(why),
            StateError::Io { context, source } => PluginError::Io { context, source },
        }
    }
}

impl From<StateError> for Halt {
    fn from(error: StateError) -> Self {
        Halt::Error(error.into())
    }
}

/// What was being done when the disk said no.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PluginError>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PluginError> {
        self.map_err(|source| PluginError::Io { context: what(), source })
    }
}
