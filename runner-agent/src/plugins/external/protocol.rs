//! Version 1 of the protocol between a runner and a plugin executable: one JSON object per line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    plugins::plugin::{Changes, Operation, Work},
    state::StateMark,
};

pub(super) const PROTOCOL: u32 = 1;

/// Call from the runner: `{"id":1,"call":"describe",…}`.
#[derive(Serialize)]
pub(super) struct Request<'w> {
    pub id: u64,
    #[serde(flatten)]
    pub call: Call<'w>,
}

#[derive(Serialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub(super) enum Call<'w> {
    Describe {
        protocol: u32,
    },
    Health(CallContext<'w>),
    Build(CallContext<'w>),
    State(CallContext<'w>),
    Plan {
        #[serde(flatten)]
        context: CallContext<'w>,
        plan_file: PathBuf,
    },
    Apply {
        #[serde(flatten)]
        context: CallContext<'w>,
        plan_file: PathBuf,
        state: StateMark,
    },
    Destroy {
        #[serde(flatten)]
        context: CallContext<'w>,
        plan_file: PathBuf,
        state: StateMark,
    },
    Outputs(CallContext<'w>),
    Cancel {
        of: u64,
    },
}

impl Call<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Call::Describe { .. } => "describe",
            Call::Health(_) => "health",
            Call::Build(_) => "build",
            Call::State(_) => "state",
            Call::Plan { .. } => "plan",
            Call::Apply { .. } => "apply",
            Call::Destroy { .. } => "destroy",
            Call::Outputs(_) => "outputs",
            Call::Cancel { .. } => "cancel",
        }
    }
}

/// Fields of every call about a component.
#[derive(Serialize)]
pub(super) struct CallContext<'w> {
    component: &'w str,
    operation: Operation,
    inputs: &'w Value,
    source_dir: PathBuf,
    state_dir: PathBuf,
    work_dir: PathBuf,
}

impl<'w> CallContext<'w> {
    pub(super) fn of(work: &'w Work<'w>) -> Self {
        CallContext {
            component: work.name,
            operation: work.operation,
            inputs: &work.manifest.inputs,
            source_dir: work.source.clone(),
            state_dir: work.state.dir().to_owned(),
            work_dir: work.job.work_dir.clone(),
        }
    }
}

/// Message from the plugin to the runner.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Message {
    /// Result, which ends the call.
    Result {
        id: u64,
        #[serde(default)]
        value: Value,
    },
    /// Error, which ends the call.
    Error { id: u64, code: ErrorCode, message: String },
    /// Line for the job's log.
    Log { line: String },
    /// Start of a phase.
    Progress { phase: String },
}

/// Reason why a plugin did not complete a call.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErrorCode {
    /// The plugin stopped on request.
    Cancelled,
    /// The plan no longer matches its inputs.
    PlanStale,
    /// A tool is not installed. The message names the tool.
    ToolMissing,
    /// The plugin does not support the inputs.
    Refused,
    Failed,
}

#[derive(Deserialize)]
pub(super) struct Described {
    pub protocol: u32,
    pub name: String,
    pub version: String,
    /// Job kinds: `build`, `plan`, `apply`.
    pub kinds: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct PlanValue {
    #[serde(flatten)]
    pub changes: Changes,
}

#[derive(Deserialize)]
pub(super) struct OutputsValue {
    #[serde(default)]
    pub outputs: Map<String, Value>,
    /// Names of sensitive outputs, whose values the plugin does not send.
    #[serde(default)]
    pub withheld: Vec<String>,
}
