//! Interface of a plugin, and its input. `dispatch` handles artifacts, plan files, approval,
//! staleness and reports in the same way for all plugins.

use std::{collections::BTreeMap, path::PathBuf};

use domain::digest::Digest;
use schemas::plugin::BuiltImage;
pub(crate) use schemas::plugin::{
    Action, AttributeDetails, Changes, DetailValue, Operation, OutputChange, PlanDetails,
    ResourceChange, ResourceDetails,
};
use schemas::{
    manifest::Manifest,
    runner::{FailureReason, JobKind},
};
use serde_json::{Map, Value};

use super::{
    contract::{JobContext, Outcome, PluginError, Sink},
    plans::ApprovedPlan,
};
use crate::state::{StateError, StateMark, StateStore};

/// Implementation of one component type. By default, `build`, `plan`, `state`, `apply`, `outputs`
/// and `act` return a refusal.
///
/// Order of the main calls in one job: `describe`, `health`, then by the manifest's kind
/// `resolve` · `build` · `preflight state plan` · `state apply|destroy outputs` · `act`.
pub(crate) trait Plugin {
    /// Returns the name and the supported job kinds.
    fn describe(&self) -> Description;

    /// Checks that everything is installed that the plugin needs.
    async fn health(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt>;

    /// Checks everything that a deploy of the component requires, before its plan.
    async fn preflight(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Ok(())
    }

    /// Resolves a reference to the output `commit`.
    async fn resolve(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Outputs, Halt> {
        Err(self.describe().unsupported(JobKind::Resolve))
    }

    /// Checks the source in [`Work::source`] and turns it into the content of the artifact.
    async fn build(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Err(self.describe().unsupported(JobKind::Build))
    }

    /// Returns the image that a build created instead of the content of [`Work::root`].
    fn built_image(&self) -> Option<&BuiltImage> {
        None
    }

    /// Determines the changes of an apply and writes all of them to a plan file.
    async fn plan(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Planned, Halt> {
        Err(self.describe().unsupported(JobKind::Plan))
    }

    /// Opens the state of the component, before any other use of it.
    async fn open(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Ok(())
    }

    /// Returns the keyed digest of the current state, if the runner stores it encrypted.
    async fn digest(&mut self) -> Option<String> {
        None
    }

    /// Ends the use of the state after an apply.
    async fn settle(&mut self) {}

    /// Returns lineage and serial of the current state. Other values mean that the state has
    /// changed.
    async fn state(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<StateMark, Halt> {
        Err(self.describe().unsupported(JobKind::Plan))
    }

    /// Performs the steps of an apply that can fail before it changes anything.
    async fn prepare(
        &mut self,
        _: &Work<'_>,
        _: &ApprovedPlan,
        _: &mut dyn Sink,
    ) -> Result<(), Halt> {
        Ok(())
    }

    /// Returns whether the runner stores the plugin's state.
    fn uses_state_file(&self) -> bool {
        false
    }

    /// Returns whether the apply that just ended cannot have changed anything.
    fn changed_nothing(&self) -> bool {
        false
    }

    /// Applies exactly the approved plan file.
    async fn apply(
        &mut self,
        _: &Work<'_>,
        _: &ApprovedPlan,
        _: &mut dyn Sink,
    ) -> Result<(), Halt> {
        Err(self.describe().unsupported(JobKind::Apply))
    }

    /// Applies exactly the approved plan file of a destroy.
    async fn destroy(
        &mut self,
        work: &Work<'_>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        self.apply(work, plan, sink).await
    }

    /// Returns the outputs of the component for other components.
    async fn outputs(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Outputs, Halt> {
        Err(self.describe().unsupported(JobKind::Apply))
    }

    /// Runs a vendor's scripts and returns their outputs.
    async fn act(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<Outputs, Halt> {
        Err(self.describe().unsupported(JobKind::Action))
    }
}

/// Name and capabilities of a plugin.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub name: String,
    pub kinds: Vec<JobKind>,
}

impl Description {
    pub(crate) fn unsupported(&self, kind: JobKind) -> Halt {
        let refusal = format!("the plugin {} does not support {} jobs", self.name, kind.as_str());
        Halt::Error(PluginError::Refused(refusal))
    }
}

/// One job with everything that its plugin needs.
pub(crate) struct Work<'a> {
    pub manifest: &'a Manifest,
    pub job: &'a JobContext,
    /// Name of the component or of the action, or address of the repository to resolve.
    pub name: &'a str,
    pub operation: Operation,
    /// True if the component was deployed before and still exists, according to the vendor.
    pub present: bool,
    /// True if the plan is only a check, which is never applied.
    pub is_check: bool,
    /// State of this component in this install. Its directory exists with mode 0700.
    pub state: StateStore,
    /// Directory with all files of the artifact, if the manifest has an artifact.
    pub root: PathBuf,
    /// Directory of the component: [`Work::root`], or a directory below it if the artifact
    /// contains other directories of the repository.
    pub source: PathBuf,
    /// Directory of the component in each unpacked artifact of the manifest.
    pub directories: Vec<PathBuf>,
    /// Kubeconfig of the job, if the runner prepared one.
    pub kubeconfig: Option<PathBuf>,
}

/// Result of a plan.
#[derive(Debug)]
pub(crate) struct Planned {
    /// Plan file in the work directory.
    pub file: PathBuf,
    /// Further files that the apply needs, by name.
    pub extra_files: BTreeMap<String, PathBuf>,
    /// Name and version of the tool that made the plan.
    pub tool: String,
    /// Digest of the executable of the tool. Absent if the plugin is the tool.
    pub tool_digest: Option<Digest>,
    pub changes: Changes,
}

/// Outputs for other components.
#[derive(Default)]
pub(crate) struct Outputs {
    pub plain: Map<String, Value>,
    /// Sensitive outputs, which are reported encrypted.
    pub sensitive: Map<String, Value>,
    /// Names of sensitive outputs whose values stay on this host.
    pub withheld: Vec<String>,
}

/// Reason why a plugin stopped before the end of its work.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The work ended with this outcome.
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

impl From<StateError> for Halt {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Blocked(why) | StateError::Refused(why) => PluginError::Refused(why).into(),
            StateError::Io { context, source } => PluginError::Io { context, source }.into(),
            StateError::Stopped { .. } => Halt::cancelled(false),
        }
    }
}

/// Adds the operation that failed to an I/O error.
pub(crate) trait IoContext<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PluginError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PluginError> {
        self.map_err(|source| PluginError::Io { context: what(), source })
    }
}
