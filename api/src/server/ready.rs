//! Startup output of a server: one line of JSON for scripts, and text for users.
use std::{fmt, fs, io, path::Path, path::PathBuf};

use event_log::EventLog;
use serde::Serialize;

use crate::{auth::OWNER_TOKEN, keys::Keys, state::Config};

/// Addresses and files of a running server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ready {
    /// Public URL of the Control API.
    pub control: String,
    /// Public URL of the Runner API.
    pub runner: String,
    /// Data directory with keys, registry and owner token.
    pub data: PathBuf,
    pub log_id: String,
    /// Fingerprint of the manifest key, which the enrol command prints.
    pub fingerprint: String,
    /// File with the token of an owner. Absent if the data directory has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_token_file: Option<PathBuf>,
    /// True if this start created the first owner.
    pub first_start: bool,
    /// URL of the private Postgres, with the server's role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
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

    /// Writes the JSON atomically to a file that a script waits for.
    ///
    /// # Errors
    /// The file cannot be written.
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
        let token = token.unwrap_or_else(|| "FILE (with the token of an owner)".into());
        write!(f, "  stead login --server {} --token-file {token}", self.control)
    }
}
