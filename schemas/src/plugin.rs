//! Protocol between a runner and a plugin executable: one JSON object per line, in both directions.
//!
//! `docs/plugins.md` specifies the protocol. Both sides can use these types: the runner writes
//! [`Request`] and reads [`Message`], and a plugin in Rust reads [`Request`] and writes
//! [`Message`]. Both ignore unknown members.
pub mod artifact;
mod build;
mod changes;
pub mod details;
pub mod details_text;
mod file;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::{
    build::{Built, BuiltBlob, BuiltImage},
    changes::{Action, Changes, OutputChange, ResourceChange},
    details::{AttributeDetails, DetailValue, PlanDetails, ResourceDetails},
    file::{FileError, FileRef},
};

/// Protocol versions that these types implement, in ascending order.
pub const PROTOCOLS: [u32; 2] = [1, 2];
/// Maximum length of a message in bytes, including its newline.
pub const MESSAGE_LIMIT: usize = 1 << 20;
/// Maximum size of a file that replaces a part of a message, in bytes. The server accepts reports
/// of at most 8 MiB, which also contain data of the runner.
pub const FILE_LIMIT: u64 = 7 << 20;

/// Returns the highest version that both sides support.
///
/// A runner of version 1 offers only `protocol`. Later runners also offer `protocols`.
pub fn highest_common(offered: u32, all_offered: &[u32], own: &[u32]) -> Option<u32> {
    let is_offered = |version: &u32| *version == offered || all_offered.contains(version);
    own.iter().copied().filter(is_offered).max()
}

/// Call from the runner: `{"id":1,"call":"describe",…}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Number of the call in this process, from 1.
    pub id: u64,
    /// Call with its parameters.
    #[serde(flatten)]
    pub call: Call,
}

/// Call with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Returns a [`Described`].
    Describe {
        /// Lowest version that the runner supports: 1.
        protocol: u32,
        /// All versions that the runner supports. Empty: only `protocol`.
        #[serde(default)]
        protocols: Vec<u32>,
    },
    /// Checks tools and inputs. Changes nothing.
    Health(CallContext),
    /// Checks everything that a deploy requires. Returns a [`Preflight`]. Optional, from version 2.
    Preflight(CallContext),
    /// Checks the source, or creates the content of the artifact from it.
    Build(CallContext),
    /// Returns the current [`StateMark`].
    State(CallContext),
    /// Writes a plan file. Returns [`Changes`].
    Plan {
        /// Component and directories.
        #[serde(flatten)]
        context: CallContext,
        /// File that the plugin writes.
        plan_file: PathBuf,
    },
    /// Applies a plan file.
    Apply {
        /// Component and directories.
        #[serde(flatten)]
        context: CallContext,
        /// Approved plan file.
        plan_file: PathBuf,
        /// State that the plan was made from.
        state: StateMark,
    },
    /// Applies the plan file of a destroy.
    Destroy {
        /// Component and directories.
        #[serde(flatten)]
        context: CallContext,
        /// Approved plan file.
        plan_file: PathBuf,
        /// State that the plan was made from.
        state: StateMark,
    },
    /// Returns [`OutputValues`].
    Outputs(CallContext),
    /// Stops an open call. Has no response.
    Cancel {
        /// Id of the open call.
        of: u64,
    },
    /// Call of a later version. A plugin responds with [`ErrorCode::Unsupported`].
    #[serde(other, skip_serializing)]
    Unknown,
}

impl Call {
    /// Returns the name of the call.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Describe { .. } => "describe",
            Call::Health(_) => "health",
            Call::Preflight(_) => "preflight",
            Call::Build(_) => "build",
            Call::State(_) => "state",
            Call::Plan { .. } => "plan",
            Call::Apply { .. } => "apply",
            Call::Destroy { .. } => "destroy",
            Call::Outputs(_) => "outputs",
            Call::Cancel { .. } => "cancel",
            Call::Unknown => "unknown",
        }
    }
}

/// Parameters of every call about a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallContext {
    /// Name of the component.
    pub component: String,
    /// Operation that a plan prepares.
    pub operation: Operation,
    /// Rendered inputs of the manifest. Absent if `inputs_file` replaces them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Value>,
    /// File with the inputs as JSON, if they exceed the limit of a message. From version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_file: Option<FileRef>,
    /// Directory with the files of the artifact. Empty without an artifact.
    pub source_dir: PathBuf,
    /// State directory of the component in this install.
    pub state_dir: PathBuf,
    /// Work directory of the job.
    pub work_dir: PathBuf,
}

/// Operation that a plan prepares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Creates or updates the component.
    Apply,
    /// Destroys the component.
    Destroy,
}

/// Identity of one state: its lineage and serial. A component without a state has no lineage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMark {
    /// Random string that the first apply creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// Number that increases with each change.
    #[serde(default)]
    pub serial: u64,
}

/// Message from the plugin to the runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Result, which ends the call.
    Result {
        /// Id of the call.
        id: u64,
        /// Value of the result.
        #[serde(default)]
        value: Value,
        /// File with the value as JSON, for `plan`, `outputs` and `build`. From version 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value_file: Option<FileRef>,
    },
    /// Error, which ends the call.
    Error {
        /// Id of the call.
        id: u64,
        /// Kind of the error.
        code: ErrorCode,
        /// Explanation for users, without secrets.
        message: String,
    },
    /// Line for the job's log.
    Log {
        /// Text of the line. A newline in the text starts another line of the log.
        line: String,
    },
    /// Start of a phase.
    Progress {
        /// Name of the phase.
        phase: String,
    },
}

/// Reason why a plugin did not complete a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The plugin stopped on request.
    Cancelled,
    /// The plan no longer matches its inputs.
    PlanStale,
    /// A tool is not installed. The message names the tool.
    ToolMissing,
    /// The plugin does not accept the inputs.
    Refused,
    /// The plugin does not implement an optional call. From version 2.
    Unsupported,
    /// Any other error.
    Failed,
}

/// Result of `describe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Protocol version of all further messages of this process.
    pub protocol: u32,
    /// Component type.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Supported job kinds: `build`, `plan`, `apply`.
    pub kinds: Vec<String>,
}

/// Result of `preflight`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preflight {
    /// Checks in the order of their execution.
    pub checks: Vec<PreflightCheck>,
}

/// Check of a preflight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreflightCheck {
    /// Subject of the check, such as `helm version`.
    pub check: String,
    /// Result of the check.
    pub status: CheckStatus,
    /// Explanation for users. The message of a failed check includes the remedy.
    #[serde(default)]
    pub message: String,
}

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// The requirement is met.
    Ok,
    /// The requirement is not met.
    Failed,
    /// The plugin cannot check the requirement yet, because another component provides it.
    Deferred,
}

/// Result of `outputs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputValues {
    /// Values by name, except sensitive ones.
    #[serde(default)]
    pub outputs: Map<String, Value>,
    /// Names of sensitive outputs, whose values the plugin does not send.
    #[serde(default)]
    pub withheld: Vec<String>,
}

#[cfg(test)]
mod tests;
