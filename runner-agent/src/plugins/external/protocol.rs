//! Version 1 of what a runner and a plugin executable say: one JSON object in one line each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    plugins::plugin::{Changes, Operation, Work},
    state::StateMark,
};

/// The version that is spoken.
pub(super) const PROTOCOL: u32 = 1;

/// From the runner: `{"id":1,"call":"describe",…}`.
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
    Health(Given<'w>),
    Build(Given<'w>),
    State(Given<'w>),
    Plan {
        #[serde(flatten)]
        given: Given<'w>,
        plan_file: PathBuf,
    },
    Apply {
        #[serde(flatten)]
        given: Given<'w>,
        plan_file: PathBuf,
        state: StateMark,
    },
    Destroy {
        #[serde(flatten)]
        given: Given<'w>,
        plan_file: PathBuf,
        state: StateMark,
    },
    Outputs(Given<'w>),
    Cancel {
        of: u64,
    },
}

impl Call<'_> {
    pub(super) fn word(&self) -> &'static str {
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

/// What every call about a component says of it.
#[derive(Serialize)]
pub(super) struct Given<'w> {
    component: &'w str,
    operation: Operation,
    inputs: &'w Value,
    source_dir: PathBuf,
    state_dir: PathBuf,
    work_dir: PathBuf,
}

impl<'w> Given<'w> {
    pub(super) fn of(work: &'w Work<'w>) -> Self {
        Given {
            component: work.name,
            operation: work.operation,
            inputs: &work.manifest.inputs,
            source_dir: work.source.clone(),
            state_dir: work.state.dir().to_owned(),
            work_dir: work.job.work_dir.clone(),
        }
    }
}

/// From the plugin. Each names the call that it is about.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Message {
    /// The answer, and the end of the call.
    Result {
        id: u64,
        #[serde(default)]
        value: Value,
    },
    /// The refusal, and the end of the call.
    Error { id: u64, code: Code, message: String },
    /// A line for the job's log.
    Log { line: String },
    /// A new phase.
    Progress { phase: String },
}

/// Why a plugin did not do it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Code {
    /// It was asked to stop, and has.
    Cancelled,
    /// What the plan was made from has changed.
    PlanStale,
    /// It needs something that is not installed; the message names it.
    ToolMissing,
    /// The inputs are not what it understands.
    Refused,
    /// Anything else.
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
    /// Names of outputs that are sensitive; their values are never sent.
    #[serde(default)]
    pub withheld: Vec<String>,
}
