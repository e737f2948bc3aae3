//! The command line.
use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::ids::{ExecutionId, JobId};
use schemas::runner::RunnerMode;
use tracing::info;
use zeroize::Zeroizing;

use crate::{
    data::Data,
    enrol::{self, Identity, Invitation},
    journal::{Fact, Journal},
    keys::Keys,
    show,
    supervisor::{self, Ended, Settings},
    switch,
    tls::Trust,
    witness::Witness,
};

const EXAMPLES: &str = "\
Examples:
  First start, with what `stead` printed for this install:
    stead-runner --data /var/lib/stead-runner --mode install --server https://stead.example.com:7420 \\
      --server-key sha256:4f… --token-file /run/secrets/enrolment --stack-output region=eu-central-1
  Later starts:
    stead-runner --data /var/lib/stead-runner
  Take nothing new, whatever the server says; and look at what happened here:
    stead-runner disable --data /var/lib/stead-runner --reason 'change freeze'
    stead-runner journal --data /var/lib/stead-runner

Signals: SIGTERM drains; SIGINT twice or SIGQUIT stops the jobs; SIGHUP leaves at once and the jobs go on.";

/// The Stead agent: it asks the server for work, does it here, and reports. Nothing connects to it.
#[derive(Debug, Parser)]
#[command(name = "stead-runner", version, after_help = EXAMPLES, subcommand_negates_reqs = true)]
pub struct Cli {
    /// Where keys, journal, logs and state are kept
    #[arg(
        long,
        global = true,
        env = "STEAD_RUNNER_DATA",
        value_name = "DIR",
        default_value = "/var/lib/stead-runner"
    )]
    data: PathBuf,
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct Run {
    /// What this runner is for; needed at the first start
    #[arg(long)]
    mode: Option<Mode>,
    /// The Runner listener; needed at the first start
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Fingerprint of the server's signing key; needed at the first start
    #[arg(long, value_name = "FINGERPRINT")]
    server_key: Option<String>,
    /// The enrolment token; better in a file
    #[arg(long, env = "STEAD_ENROLMENT_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A file that holds the enrolment token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// SHA-256 of the certificate that the server's must come from
    #[arg(long, value_name = "FINGERPRINT")]
    ca_fingerprint: Option<String>,
    /// Certificates that the server's must come from, PEM
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// What the customer's stack gave out; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    stack_output: Vec<(String, String)>,
    /// The customer's rules, TOML; read anew for every job
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Where stead-plugin-<name> executables are
    #[arg(long, value_name = "DIR")]
    plugin_dir: Option<PathBuf>,
    /// How many jobs at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// A variable of this environment that jobs get, redacted in their logs; may be repeated
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Let the connection to the server be unencrypted although it is not on this host
    #[arg(long)]
    allow_http: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// Inside one install
    Install,
    /// For the vendor's builds
    Build,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Become known to the server and end
    Enrol(Box<Run>),
    /// Take nothing new until `enable`; what runs goes on
    Disable {
        /// Why; the vendor sees it
        #[arg(long, default_value = "switched off by the customer")]
        reason: String,
        /// Also stop what runs
        #[arg(long)]
        stop_jobs: bool,
    },
    /// Take work again
    Enable,
    /// Who this runner is, and what it is doing
    Status,
    /// What happened here, oldest first
    Journal {
        /// As it is on disk, for programs
        #[arg(long)]
        json: bool,
        /// Only the last so many lines
        #[arg(long, value_name = "N")]
        last: Option<usize>,
    },
    /// The last signed head of the server's log that this runner has seen
    Witness {
        #[command(subcommand)]
        command: Option<WitnessCommand>,
    },
    /// The parent process of one job; started by the agent only
    #[command(hide = true)]
    Shim {
        #[arg(long)]
        job: JobId,
        #[arg(long)]
        execution: ExecutionId,
    },
}

#[derive(Debug, Subcommand)]
enum WitnessCommand {
    /// Show it
    Show,
    /// Accept a log that an operator restored
    Accept {
        /// The epoch that the vendor announced
        #[arg(long)]
        epoch: u64,
    },
}

/// Do what the command line says.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let open = || Data::open(&cli.data).with_context(|| format!("opening {}", cli.data.display()));
    match cli.command {
        None => serve(&open()?, cli.run).await,
        Some(Command::Enrol(run)) => {
            let data = open()?;
            let keys = Keys::open(&data)?;
            let identity = identity(&data, &keys, &run).await?;
            println!("{}", identity.runner);
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Disable { reason, stop_jobs }) => {
            switch::disable(&open()?, &reason, stop_jobs)?;
            println!("disabled: nothing new is taken until `stead-runner enable`");
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Enable) => {
            switch::enable(&open()?)?;
            println!("enabled");
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Status) => show::status(&open()?),
        Some(Command::Journal { json, last }) => show::journal(&open()?, json, last),
        Some(Command::Witness { command: None | Some(WitnessCommand::Show) }) => {
            show::checkpoint(&open()?)
        }
        Some(Command::Witness { command: Some(WitnessCommand::Accept { epoch }) }) => {
            let data = open()?;
            Witness::of(&data).accept(epoch)?;
            Journal::open(&data)?.write(Fact::EpochAccepted { epoch })?;
            println!("epoch {epoch} is accepted");
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Shim { job, execution }) => {
            crate::shim::run(&open()?, job, execution).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn serve(data: &Data, run: Run) -> anyhow::Result<ExitCode> {
    let Some(_lock) = data.lock()? else {
        bail!("another agent works in {}", data.root().display());
    };
    let keys = Keys::open(data)?;
    let identity = identity(data, &keys, &run).await?;
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
    let plugin_dir = run.plugin_dir.or(beside).unwrap_or_else(|| "/usr/lib/stead".into());
    let settings = Settings {
        slots: run.slots,
        plugin_dir: std::path::absolute(plugin_dir)?,
        policy: run.policy.map(std::path::absolute).transpose()?,
        pass_env: run.pass_env,
    };
    // A mistake in the file is better found now than at the first job.
    crate::policy::Policy::read(settings.policy.as_deref())?;
    let ended = supervisor::run((data.clone(), keys, identity), settings).await?;
    Ok(match ended {
        Ended::Drained | Ended::Left => ExitCode::SUCCESS,
        Ended::Superseded => {
            eprintln!("another agent has opened a session with this runner's identity; ending");
            ExitCode::from(3)
        }
        Ended::TooOld { min_version } => {
            eprintln!("the server needs an agent of version {min_version} or later; ending");
            ExitCode::from(4)
        }
    })
}

/// Who we are: from the directory, or by enrolling.
async fn identity(data: &Data, keys: &Keys, run: &Run) -> anyhow::Result<Identity> {
    let trust = Trust::of(run.ca_file.as_deref(), run.ca_fingerprint.as_deref())?;
    if let Some(mut known) = enrol::known(data)? {
        if let Some(server) = &run.server {
            known.server.clone_from(server);
        }
        if trust != Trust::Public {
            known.trust = trust;
        }
        check_url(&known.server, run.allow_http)?;
        enrol::keep(data, &known)?;
        return Ok(known);
    }
    let needed = "needed at the first start";
    let mode = match run.mode.with_context(|| format!("--mode is {needed}"))? {
        Mode::Install => RunnerMode::Install,
        Mode::Build => RunnerMode::Build,
    };
    let server = run.server.clone().with_context(|| format!("--server is {needed}"))?;
    check_url(&server, run.allow_http)?;
    let invitation = Invitation {
        mode,
        server,
        trust,
        token: token(run)?,
        server_key: run.server_key.clone().with_context(|| format!("--server-key is {needed}"))?,
        stack_outputs: run.stack_output.iter().cloned().collect::<BTreeMap<_, _>>(),
    };
    let identity = enrol::enrol(data, keys, &invitation).await?;
    info!(runner.id = %identity.runner, "Enrolled as {}", identity.runner);
    Ok(identity)
}

fn token(run: &Run) -> anyhow::Result<Zeroizing<String>> {
    let text = match (&run.token_file, &run.token) {
        (Some(file), _) => {
            let text = fs::read_to_string(file);
            Zeroizing::new(text.with_context(|| format!("reading {}", file.display()))?)
        }
        (None, Some(token)) => Zeroizing::new(token.clone()),
        (None, None) => bail!("--token-file or --token is needed at the first start"),
    };
    Ok(Zeroizing::new(text.trim().into()))
}

/// Tokens travel here: in clear only to ourselves.
fn check_url(server: &str, allow_http: bool) -> anyhow::Result<()> {
    let url = reqwest::Url::parse(server).with_context(|| format!("{server:?} is not a URL"))?;
    let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme() {
        "https" => Ok(()),
        "http" if local || allow_http => Ok(()),
        "http" => bail!("{server} is not encrypted: use https, or --allow-http"),
        other => bail!("{other} is not a scheme that the runner speaks"),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = split.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.into(), value.into()))
}

/// How long the runtime may take to end when the work has ended.
pub const LAST_BREATH: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn tokens_travel_in_clear_only_to_this_host() {
        assert!(check_url("http://127.0.0.1:7420", false).is_ok());
        assert!(check_url("https://stead.example.com", false).is_ok());
        assert!(check_url("http://stead.example.com", false).is_err());
        assert!(check_url("http://stead.example.com", true).is_ok());
        assert!(check_url("ftp://stead.example.com", true).is_err());
    }
}
