//! What a server says when it takes calls: for a script one line, for a person where everything is.
use std::{fmt, fs, io, path::Path, path::PathBuf};

use event_log::EventLog;
use serde::Serialize;

use crate::{auth::OWNER_TOKEN, keys::Keys, state::Config};

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ready {
    /// How people reach the Control API.
    pub control: String,
    /// How runners reach the Runner API.
    pub runner: String,
    /// The data directory.
    pub data: PathBuf,
    /// The log's id.
    pub log_id: String,
    /// What the enrol command names the server by.
    pub fingerprint: String,
    /// The file of the first owner's token; another server may have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_token_file: Option<PathBuf>,
    /// Whether that owner was made just now.
    pub first_start: bool,
    /// The private Postgres, as the role that inserts and selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// The process.
    pub pid: u32,
}

impl Ready {
    pub(super) fn of(config: &Config, keys: &Keys, log: &EventLog, owner: Option<PathBuf>) -> Self {
        Ready {
            control: config.control_url.clone(),
            runner: config.runner_url.clone(),
            data: config.data.clone(),
            log_id: log.log_id().to_string(),
            fingerprint: keys.fingerprint(),
            first_start: owner.is_some(),
            owner_token_file: owner
                .or_else(|| Some(config.data.join(OWNER_TOKEN)).filter(|file| file.is_file())),
            database: None,
            pid: std::process::id(),
        }
    }

    /// Write it where a script waits for it, whole or not at all.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("new");
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(draft, path)
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Stead is ready")?;
        writeln!(f, "  Control API  {}  (documents: {}/docs)", self.control, self.control)?;
        writeln!(f, "  Runner API   {}", self.runner)?;
        writeln!(f, "  Data         {}", self.data.display())?;
        if let Some(database) = &self.database {
            writeln!(f, "  Database     {database}")?;
        }
        writeln!(f, "  Key          {}", self.fingerprint)?;
        writeln!(f, "Log in:")?;
        let token = self.owner_token_file.as_ref().map(|file| file.display().to_string());
        let token = token.unwrap_or_else(|| "FILE (with a token of an owner)".into());
        write!(f, "  stead login --server {} --token-file {token}", self.control)
    }
}
