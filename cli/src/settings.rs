//! Server address and credentials. Options override the environment, and the environment overrides
//! the file of `stead login`.
use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::client::{Client, Target};
use clap::{Args, ValueEnum};
use schemas::control::PageQuery;
use serde::{Deserialize, Serialize};

use crate::{
    failure::Failure,
    render::{Output, Screen},
};

/// Global options: the server, the credentials and the output.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server and output")]
pub struct Settings {
    /// Address of the Control API
    #[arg(long, global = true, env = "STEAD_SERVER", value_name = "URL", hide_env_values = true)]
    pub(crate) server: Option<String>,
    /// File with the token (default: STEAD_TOKEN, else the token of `stead login`)
    #[arg(
        long,
        global = true,
        env = "STEAD_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// CA certificate of the server, PEM
    #[arg(long, global = true, env = "STEAD_CA_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Output format: table, one JSON document, one document per line, or SARIF (`apps validate`
    /// only)
    #[arg(long, short, global = true, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// Disable colors (also NO_COLOR=1)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Do not print progress, notes or warnings
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// Values of `--output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // No doc comments: clap would repeat them in the help of every command.
    #[default]
    Table,
    Json,
    Ndjson,
    Sarif,
}

/// Page of a list.
#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// Maximum number of items (1 to 200)
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// Cursor that the previous page printed
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

impl PageArgs {
    /// Returns the query for a list without filters.
    pub(crate) fn listing(self) -> PageQuery {
        PageQuery { limit: Some(self.limit), cursor: self.cursor, min_position: None }
    }
}

/// Credentials that `stead login` stores.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Credentials {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// PEM file of a private certificate authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

pub(crate) struct CommandContext {
    pub(crate) client: Client,
    pub(crate) screen: Screen,
}

impl Settings {
    pub fn screen(&self) -> Screen {
        let output = match self.output {
            Format::Table => Output::Table,
            Format::Json | Format::Sarif => Output::Json,
            Format::Ndjson => Output::Ndjson,
        };
        Screen::new(output, self.no_color, self.quiet)
    }

    /// Context of a command that calls the server. Rejects SARIF, which these commands do not
    /// support.
    pub(crate) fn context(&self) -> Result<CommandContext, Failure> {
        if self.output == Format::Sarif {
            let message = "cannot print SARIF: only `stead apps validate` supports this format\n  try: --output json";
            return Err(Failure::Usage(message.into()));
        }
        let for_table = self.output == Format::Table;
        let client = Client::new(&self.target()?)?.sanitize_responses(for_table);
        Ok(CommandContext { client, screen: self.screen() })
    }

    /// Returns the server address and the credentials.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let stored = Credentials::read()?;
        let server_option = self.server.clone();
        let is_stored_server = server_option.is_none() || server_option == stored.server;
        let server = server_option.or_else(|| stored.server.clone()).ok_or_else(|| {
            Failure::Usage(
                "cannot call the server: its address is not set\n  try: `stead login --server URL --token-file FILE`, \
                     `--server URL`, or STEAD_SERVER"
                    .into(),
            )
        })?;
        let token = match (&self.token_file, std::env::var("STEAD_TOKEN").ok()) {
            (Some(file), _) => Some(read_token(file)?),
            (None, Some(token)) if !token.trim().is_empty() => Some(token.trim().into()),
            // The stored token is for the stored server only. No other server may receive it.
            (None, _) => stored.token.filter(|_| is_stored_server),
        };
        let ca = self.ca_file.clone().or(stored.ca_file.filter(|_| is_stored_server));
        Ok(Target { server, token, ca })
    }
}

impl Credentials {
    /// Path of the credentials: `$XDG_CONFIG_HOME/stead/cli.toml` or `~/.config/stead/cli.toml`.
    pub(crate) fn path() -> Result<PathBuf, Failure> {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
        let missing = || {
            Failure::Usage(
                "cannot locate the credentials: neither HOME nor XDG_CONFIG_HOME is set; set HOME"
                    .into(),
            )
        };
        Ok(base.ok_or_else(missing)?.join("stead/cli.toml"))
    }

    /// Reads the credentials. A missing file is not an error.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Ok(path) = Credentials::path() else { return Ok(Credentials::default()) };
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| {
                Failure::Usage(format!("cannot read the credentials {}: {e}", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Credentials::default())
            }
            Err(error) => Err(Failure::Usage(format!(
                "cannot read the credentials {}: {error}",
                path.display()
            ))),
        }
    }

    /// Writes the credentials to a file that only this user can read. Returns its path.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let path = Credentials::path()?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let text = toml::to_string(self)
            .map_err(|e| Failure::Usage(format!("cannot encode the credentials: {e}")))?;
        // The rename replaces a file with wider permissions, so that no other user can read the
        // token.
        let fresh = path.with_extension("toml.new");
        let _ = fs::remove_file(&fresh);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&fresh, &path)?;
        Ok(path)
    }
}

/// Reads the first line of a token file.
pub(crate) fn read_token(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|e| {
        Failure::Usage(format!("cannot read the token file {}: {e}", file.display()))
    })?;
    match text.lines().next().map(str::trim) {
        Some(token) if !token.is_empty() => Ok(token.into()),
        Some(_) | None => Err(Failure::Usage(format!(
            "cannot use the token file {}: its first line is empty; write the token to it",
            file.display()
        ))),
    }
}

impl CommandContext {
    /// Prints the cursor of the next page to standard error, as text or as JSON.
    pub(crate) fn more(&self, next: Option<&str>) {
        match (next, self.screen.output) {
            (Some(cursor), Output::Table) => {
                self.screen.remark(&format!("Next page: --cursor {cursor}"));
            }
            (Some(cursor), Output::Json | Output::Ndjson) => {
                eprintln!("{}", serde_json::json!({ "next": cursor }));
            }
            (None, Output::Table | Output::Json | Output::Ndjson) => {}
        }
    }
}
