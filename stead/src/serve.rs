//! `stead serve`: the server on an external database.
use std::{
    io::{IsTerminal as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use api::{
    Certificate, Reachable,
    postgres::DataLock,
    server::{Options, Ready, Server, TlsFor},
};
use clap::{Args, ValueEnum};
use cli::{failure::Failure, render::Output};
use event_log::upload::Quota;
use sqlx::postgres::PgConnectOptions;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Options of `stead serve` and `stead up`
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Directory for keys, artifacts and owner.token, the token of an owner [default:
    /// /var/lib/stead as root, else ~/.local/share/stead]
    #[arg(long, env = "STEAD_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Listen address of the Control API; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7070")]
    pub(crate) control_listen: SocketAddr,
    /// Listen address of the Runner API; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7071")]
    pub(crate) runner_listen: SocketAddr,
    /// Public URL of the Control API, if it differs from the listen address
    #[arg(long, value_name = "URL")]
    pub(crate) control_url: Option<String>,
    /// Public URL of the Runner API, if it differs from the listen address
    #[arg(long, value_name = "URL")]
    pub(crate) runner_url: Option<String>,
    /// TLS certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// APIs that use the certificate
    #[arg(long, value_enum, default_value_t)]
    pub(crate) tls_for: TlsListeners,
    /// Allow plain HTTP on addresses other than loopback; requires a proxy that terminates TLS
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// Maximum number of unauthenticated connections of one address per listener. Behind a TCP
    /// proxy, all callers share one address [default: a sixteenth of the listener's limit, at least 16]
    #[arg(long, value_name = "N")]
    pub(crate) address_connections: Option<usize>,
    /// Registry for the artifacts of builds, oci://HOST[:PORT]/PREFIX. Build runners push there with
    /// their own credentials, and the server reads there with the credentials of its user in
    /// Docker's config.json [default: `registry` in the data directory]
    #[arg(long, env = "STEAD_REGISTRY", value_name = "REGISTRY")]
    pub(crate) registry: Option<api::RegistryLocation>,
    /// Let the registry refer to addresses of private networks and of this host, for example to its
    /// storage or its token server. Without this option, the server follows it only to public
    /// addresses
    #[arg(long, requires = "registry")]
    pub(crate) registry_to_private_networks: bool,
    /// Maximum size of one file of an artifact in the data directory, in bytes. A registry of the
    /// vendor has its own limit
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub(crate) max_blob_bytes: u64,
    /// Size of the artifacts of one app in the data directory, in bytes, above which the server
    /// deletes those that no install needs. In a registry of the vendor, it deletes nothing
    #[arg(long, value_name = "BYTES", default_value_t = 20 << 30)]
    pub(crate) artifact_quota: u64,
    /// Let webhooks send to addresses of private networks and of this host, also over HTTP. Without
    /// this option, they reach only public addresses over HTTPS
    #[arg(long)]
    pub(crate) webhooks_to_private_networks: bool,
    /// Maximum number of bytes that one execution can upload for its reports
    #[arg(long, value_name = "BYTES", default_value_t = Quota::default().execution)]
    pub(crate) max_execution_upload: u64,
    /// Maximum number of bytes that one runner can upload for its reports within 24 hours
    #[arg(long, value_name = "BYTES", default_value_t = Quota::default().runner)]
    pub(crate) max_runner_upload: u64,
    /// Maximum size of all encrypted states of one install, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = api::DEFAULT_STATE_QUOTA)]
    pub(crate) max_install_states: u64,
    /// Create another owner at this start, even if valid owner tokens exist, and write its token to
    /// owner.token in the data directory; use this if every owner token is lost
    #[arg(long)]
    pub(crate) recover_owner: bool,
    /// Directory of the archives [default: `archives` in the data directory]
    #[arg(long, env = "STEAD_ARCHIVES", value_name = "DIR")]
    pub(crate) archives: Option<PathBuf>,
    /// Positions per partition of the log, rounded up to blocks of 256
    #[arg(long, value_name = "POSITIONS", default_value_t = event_log::partitions::SIZE)]
    pub(crate) partition_events: u64,
    /// JSON file to write when the server is ready
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Log filter, in the format of RUST_LOG
    #[arg(long, env = "STEAD_LOG", value_name = "FILTER", default_value = "info,sqlx=warn")]
    pub(crate) log: String,
    /// Format of log lines on standard error
    #[arg(long, env = "STEAD_LOG_FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text
    #[default]
    Text,
    /// One JSON document per line: timestamp, level, fields with `message`, target
    Json,
}

impl LogFormat {
    /// Value of the option and of the environment variable.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum TlsListeners {
    #[default]
    Both,
    Control,
    Runner,
}

/// Start the server on an existing database (DATABASE_URL)
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  DATABASE_URL=postgres://stead_app@db/stead stead serve --tls-cert cert.pem --tls-key key.pem \\
    --control-listen 0.0.0.0:7070 --runner-listen 0.0.0.0:7071")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Database URL of the role stead_app
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) database_url: String,
    /// Database URL of the role that owns the tables; needed to rebuild projections, to erase
    /// shredded data, and to create partitions in advance
    #[arg(long, env = "DATABASE_OWNER_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) database_owner_url: Option<String>,
    /// Maximum number of connections to the database
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) connections: u32,
}

/// Runs the server until a stop signal.
pub(crate) async fn run(serve: Serve, output: Output) -> ExitCode {
    serve.common.start_log();
    finish(serve.serve(output).await, output)
}

impl Serve {
    async fn serve(self, output: Output) -> anyhow::Result<()> {
        let stop = StopSignals::listen()?;
        let data = self.common.data()?;
        let _lock = DataLock::take(&data)?;
        let database = event_log::connect::options(&self.database_url)?;
        let owner = self.database_owner_url.as_deref().map(event_log::connect::options);
        let options = self.common.options(data, database, self.connections);
        let server = Server::start(Options { owner: owner.transpose()?, ..options }).await?;
        self.common.announce(&server.ready, output)?;
        let ended = tokio::select! {
            () = stop.received() => Ok(()),
            task = server.failed() => Err(task_failed(task)),
        };
        server.stop().await;
        ended
    }
}

/// Error for a server that ends because a background task failed.
pub(crate) fn task_failed(task: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "the server stopped: the background task {task} failed; see the server log for the reason, and start the server again"
    )
}

impl Common {
    pub(crate) fn data(&self) -> anyhow::Result<PathBuf> {
        data_directory(self.data.as_ref())
    }

    pub(crate) fn options(
        &self,
        data: PathBuf,
        database: PgConnectOptions,
        connections: u32,
    ) -> Options {
        let certificate = self.tls_cert.clone().zip(self.tls_key.clone());
        Options {
            data,
            database,
            owner: None,
            connections,
            control: self.control_listen,
            runner: self.runner_listen,
            control_url: self.control_url.clone(),
            runner_url: self.runner_url.clone(),
            certificate: certificate.map(|(chain, key)| Certificate { chain, key }),
            tls_for: match self.tls_for {
                TlsListeners::Both => TlsFor::Both,
                TlsListeners::Control => TlsFor::Control,
                TlsListeners::Runner => TlsFor::Runner,
            },
            behind_proxy: self.behind_proxy,
            address_connections: self.address_connections,
            registry: self.registry.clone(),
            registry_reach: reach(self.registry_to_private_networks),
            max_blob_bytes: self.max_blob_bytes,
            artifact_quota: self.artifact_quota,
            webhooks_reach: reach(self.webhooks_to_private_networks),
            uploads: Quota { execution: self.max_execution_upload, runner: self.max_runner_upload },
            state_quota: self.max_install_states,
            recover_owner: self.recover_owner,
            archives: self.archives.clone(),
            partition_events: self.partition_events,
        }
    }

    /// Starts logging to standard error. Standard output is for results.
    pub(crate) fn start_log(&self) {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log)
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let colours = std::io::stderr().is_terminal();
        let _ = match self.log_format {
            LogFormat::Text => lines.with_target(false).with_ansi(colours).try_init(),
            LogFormat::Json => lines.json().try_init(),
        };
    }

    /// Prints the addresses of the server, and writes the ready file.
    pub(crate) fn announce(&self, ready: &Ready, output: Output) -> anyhow::Result<()> {
        if let Some(path) = &self.ready_file {
            ready.write(path)?;
        }
        let mut out = std::io::stdout().lock();
        // A closed pipe must not stop the server.
        let _ = match output {
            Output::Table => writeln!(out, "{ready}"),
            Output::Json | Output::Ndjson => writeln!(out, "{}", serde_json::to_string(ready)?),
        };
        let _ = out.flush();
        Ok(())
    }
}

/// Returns the data directory: the option, or the default for this user.
pub(crate) fn data_directory(chosen: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let directory = match chosen {
        Some(data) => data.clone(),
        None if nix::unistd::geteuid().is_root() => PathBuf::from("/var/lib/stead"),
        None => set("XDG_DATA_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".local/share")))
            .map(|base| base.join("stead"))
            .ok_or_else(|| {
                anyhow::anyhow!(
                    "cannot determine the data directory: HOME is not set; use --data DIR"
                )
            })?,
    };
    Ok(std::path::absolute(directory)?)
}

/// Handlers of SIGTERM and SIGINT. Install them before the server starts, so that an interrupted
/// start also cleans up.
pub(crate) struct StopSignals {
    term: Signal,
    int: Signal,
}

impl StopSignals {
    /// Installs the handlers. From now on, the signals do not end the process by themselves.
    pub(crate) fn listen() -> std::io::Result<StopSignals> {
        let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(StopSignals { term, int })
    }

    /// Waits for a stop signal. A second signal ends the process immediately with code 130.
    pub(crate) async fn received(mut self) {
        self.either().await;
        #[expect(clippy::disallowed_methods, reason = "the task ends the process")]
        tokio::spawn(async move {
            self.either().await;
            std::process::exit(130);
        });
    }

    async fn either(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

fn reach(to_private_networks: bool) -> Reachable {
    match to_private_networks {
        true => Reachable::All,
        false => Reachable::Public,
    }
}

/// Reports an error, and returns the exit code.
pub(crate) fn finish(done: anyhow::Result<()>, output: Output) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::Usage(error.to_string()).report(output),
    }
}

/// Path of a file in the directory of this program, if it exists.
pub(crate) fn sibling_program(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let path = program.parent().map(Path::to_path_buf)?.join(name);
    path.is_file().then_some(path)
}
