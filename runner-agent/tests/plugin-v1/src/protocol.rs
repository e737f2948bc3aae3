//! Messages of the protocol in `docs/plugins.md`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const VERSION: u32 = 1;

#[derive(Deserialize)]
pub struct Request {
    pub id: u64,
    #[serde(flatten)]
    pub call: Call,
}

#[derive(Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    Describe {},
    Health(Parameters),
    Build(Parameters),
    State(Parameters),
    Plan {
        #[serde(flatten)]
        parameters: Parameters,
        plan_file: PathBuf,
    },
    Apply {
        #[serde(flatten)]
        parameters: Parameters,
        plan_file: PathBuf,
        state: StateId,
    },
    Destroy {
        #[serde(flatten)]
        parameters: Parameters,
        plan_file: PathBuf,
        state: StateId,
    },
    Outputs(Parameters),
    Cancel {},
}

/// Parameters of every call about a component.
#[derive(Deserialize)]
pub struct Parameters {
    pub component: String,
    pub operation: Operation,
    pub inputs: Inputs,
    pub source_dir: PathBuf,
    pub state_dir: PathBuf,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Apply,
    Destroy,
}

#[derive(Deserialize)]
pub struct Inputs {
    #[serde(default)]
    pub vars: BTreeMap<String, String>,
    /// Keys of the component type, see [`Settings`].
    #[serde(default)]
    pub settings: serde_json::Map<String, Value>,
}

/// Keys that only components of this type have. An unknown key is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Suffixes of source file names to leave out.
    #[serde(default)]
    pub leave_out: Vec<String>,
}

/// Identity of the state that a plan was made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StateId {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    #[serde(default)]
    pub serial: u64,
}

/// Reason why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Stale(String),
    #[error("cancelled before all changes were applied")]
    Cancelled,
    #[error("cannot {0}: {1}")]
    Disk(String, io::Error),
}

impl Refusal {
    fn code(&self) -> &'static str {
        match self {
            Refusal::Refused(_) => "refused",
            Refusal::Stale(_) => "plan_stale",
            Refusal::Cancelled => "cancelled",
            Refusal::Disk(..) => "failed",
        }
    }
}

/// Writes one message as one line.
pub fn send(message: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{message}")?;
    out.flush()
}

/// Writes a refusal as the response.
pub fn refuse(id: u64, refusal: &Refusal) -> io::Result<()> {
    let (code, message) = (refusal.code(), refusal.to_string());
    send(&json!({ "type": "error", "id": id, "code": code, "message": message }))
}

/// Writes a line to the job's log.
pub fn log(line: String) -> Result<(), Refusal> {
    send(&json!({ "type": "log", "line": line })).context("write the log")
}

/// Adds the failed operation to an I/O error.
pub trait ErrorContext<T> {
    fn context(self, what: &str) -> Result<T, Refusal>;
}

impl<T> ErrorContext<T> for io::Result<T> {
    fn context(self, what: &str) -> Result<T, Refusal> {
        self.map_err(|e| Refusal::Disk(what.to_owned(), e))
    }
}
