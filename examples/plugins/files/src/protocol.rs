//! Messages of the protocol in `docs/plugins.md`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state;

/// Versions of the protocol that this plugin supports.
const VERSIONS: [u32; 2] = [1, 2];
/// Maximum length of a message, including its newline.
const MESSAGE_LIMIT: usize = 1 << 20;

/// Returns the highest version that the runner also supports. A runner of version 1 offers only
/// `protocol`.
pub fn common_version(protocol: u32, protocols: &[u32]) -> Result<u32, Refusal> {
    let is_offered = |version: &u32| *version == protocol || protocols.contains(version);
    VERSIONS.into_iter().filter(is_offered).max().ok_or_else(|| {
        Refusal::Refused(format!("this plugin supports the protocol versions {VERSIONS:?} only"))
    })
}

#[derive(Deserialize)]
pub struct Request {
    pub id: u64,
    #[serde(flatten)]
    pub call: Call,
}

#[derive(Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    Describe {
        protocol: u32,
        #[serde(default)]
        protocols: Vec<u32>,
    },
    Health(Parameters),
    Preflight(Parameters),
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
    /// Optional call that this plugin does not implement.
    #[serde(other)]
    Unknown,
}

/// Parameters of every call about a component.
#[derive(Deserialize)]
pub struct Parameters {
    pub component: String,
    pub operation: Operation,
    #[serde(default)]
    pub inputs: Inputs,
    /// File with inputs that are too long for a message.
    #[serde(default)]
    inputs_file: Option<FileRef>,
    pub source_dir: PathBuf,
    pub state_dir: PathBuf,
    pub work_dir: PathBuf,
}

impl Parameters {
    /// Reads the inputs from their file, if they are in a file.
    pub fn with_inputs(mut self) -> Result<Self, Refusal> {
        if let Some(file) = self.inputs_file.take() {
            let content = fs::read(&file.path).context("read the inputs")?;
            if state::digest(&content) != file.digest {
                return Err(Refusal::Refused(
                    "cannot read the inputs: the digest of their file does not match".into(),
                ));
            }
            self.inputs = serde_json::from_slice(&content)
                .map_err(|why| Refusal::Refused(format!("invalid inputs: {why}")))?;
        }
        Ok(self)
    }
}

/// File in the work directory that replaces a part of a message.
#[derive(Serialize, Deserialize)]
struct FileRef {
    path: PathBuf,
    digest: String,
    size_bytes: u64,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Apply,
    Destroy,
}

#[derive(Default, Deserialize)]
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
    #[error("this plugin does not implement the call")]
    Unsupported,
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
            Refusal::Unsupported => "unsupported",
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

/// Writes a result. Writes a value that is too long for a message to a file in the work directory.
pub fn respond(id: u64, value: &Value, work_dir: Option<&Path>) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    match work_dir {
        Some(dir) if text.len() > MESSAGE_LIMIT / 2 => {
            let path = dir.join(format!("value-{id}.json"));
            state::replace(&path, &text)?;
            let (digest, size_bytes) = (state::digest(&text), text.len() as u64);
            let file = FileRef { path, digest, size_bytes };
            send(&json!({ "type": "result", "id": id, "value_file": file }))
        }
        _ => send(&json!({ "type": "result", "id": id, "value": value })),
    }
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
