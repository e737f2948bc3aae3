//! Command line of `stead-runner`.
mod journal;
mod state;

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::ids::{ExecutionId, JobId};

use self::{journal::JournalArgs, state::StateCommand};
use crate::{
    approval::{self, ApprovalDecision},
    budgets::Budgets,
    data::Data,
    disable, enrol,
    journal::{Journal, JournalEvent},
    keys::Keys,
    policy::Choice,
    shim::redact_socket,
    show, start,
    witness::Witness,
};

const EXAMPLES: &str = "\
Examples:
  First start, as `stead installs create` printed it; prompts for the token:
    stead-runner --data /var/lib/stead-runner --mode install --server https://stead.example.com:7071 \\
      --server-key sha256:4f… --token-file - --stack-output region=eu-central-1
  Later starts:
    stead-runner --data /var/lib/stead-runner
  Change the policy:
    stead-runner policy set /etc/stead/policy.toml --data /var/lib/stead-runner
  Stop accepting jobs, and read the journal:
    stead-runner disable --data /var/lib/stead-runner --reason 'change freeze'
    stead-runner journal --data /var/lib/stead-runner
    stead-runner journal verify --data /var/lib/stead-runner

Signals: SIGTERM drains; SIGINT twice or SIGQUIT stops the jobs; SIGHUP exits immediately and the jobs continue.";

/// Stead agent: polls the server for jobs, runs them on this host and reports. Opens no port.
#[derive(Debug, Parser)]
#[command(name = "stead-runner", version, after_help = EXAMPLES, subcommand_negates_reqs = true)]
pub struct Cli {
    /// Directory of keys, journal, logs and state
    #[arg(
        long,
        global = true,
        env = "STEAD_RUNNER_DATA",
        value_name = "DIR",
        default_value = "/var/lib/stead-runner"
    )]
    data: PathBuf,
    /// Format of log lines on standard error
    #[arg(
        long,
        global = true,
        env = "STEAD_LOG_FORMAT",
        value_enum,
        default_value_t,
        hide_short_help = true
    )]
    log_format: LogFormat,
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Format of log lines on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text
    #[default]
    Text,
    /// One JSON document per line: timestamp, level, fields with `message`, target
    Json,
}

impl Cli {
    pub fn log_format(&self) -> LogFormat {
        self.log_format
    }
}

/// Options of an agent.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Mode of this runner; required at the first start
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// URL of the Runner API; required at the first start
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Fingerprint of the server's manifest key; required at the first start
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) server_key: Option<String>,
    /// Enrolment token. Every user of the host can read the command line: prefer --token-file
    #[arg(long, env = "STEAD_ENROLMENT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// File with the enrolment token; `-` reads one line from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// SHA-256 of the CA certificate that must have issued the server's certificate
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) ca_fingerprint: Option<String>,
    /// CA certificates, PEM, that may issue the server's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Output of the customer's stack; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) stack_output: Vec<(String, String)>,
    /// File of stack outputs: a JSON object (*.json), or TOML with `key = "value"` lines
    #[arg(long, value_name = "FILE")]
    pub(crate) stack_outputs_file: Option<PathBuf>,
    /// The customer's policy file, TOML; it must exist. The runner records the path at the first
    /// start (default: policy.toml in the data directory, created if absent)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// No policy: allow everything that the vendor's server signs
    #[arg(long, conflicts_with = "policy")]
    pub(crate) no_policy: bool,
    /// Directory of stead-plugin-<name> executables
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_dir: Option<PathBuf>,
    /// Maximum number of concurrent jobs
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: u32,
    /// Environment variable to pass to jobs, redacted in their logs; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) pass_env: Vec<String>,
    /// Disk budget of pulled artifacts. The two most recently used versions of each component are always kept
    #[arg(long, value_name = "BYTES", default_value_t = Budgets::default().artifacts)]
    pub(crate) artifact_budget: u64,
    /// Disk budget for logs and files of finished jobs; the newest are kept
    #[arg(long, value_name = "BYTES", default_value_t = Budgets::default().jobs)]
    pub(crate) job_budget: u64,
    /// Allow an unencrypted connection to a server on another host
    #[arg(long)]
    pub(crate) allow_http: bool,
}

/// Mode of a runner.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Mode {
    /// Runs the jobs of one install
    Install,
    /// Runs the vendor's builds
    Build,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Human-readable
    Table,
    /// Machine-readable
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Enrol with the server and exit
    Enrol(Box<Run>),
    /// Stop accepting jobs; running jobs continue
    Disable {
        /// Reason; the vendor sees it
        #[arg(long, default_value = "disabled by the customer")]
        reason: String,
        /// Also stop running jobs
        #[arg(long)]
        stop_jobs: bool,
    },
    /// Accept jobs again
    Enable,
    /// Show or change the policy of this runner
    Policy {
        #[command(subcommand)]
        command: Option<PolicyCommand>,
    },
    /// Show identity, policy, connection and jobs of this runner
    Status,
    /// List jobs that need your approval (policy key `require_approval`)
    Approvals,
    /// Approve a job
    Approve {
        /// Id of the execution, from `stead-runner approvals`
        execution: ExecutionId,
        /// Reason, recorded in the journal
        #[arg(long, default_value = "approved by the customer")]
        reason: String,
    },
    /// Deny a job
    Deny {
        /// Id of the execution, from `stead-runner approvals`
        execution: ExecutionId,
        /// Reason; the vendor sees it
        #[arg(long)]
        reason: String,
    },
    /// Show, verify or export the journal of this runner
    Journal(Box<JournalArgs>),
    /// List the state of components, and resolve the state after a failed apply
    State {
        #[command(subcommand)]
        command: StateCommand,
    },
    /// Show the last signed checkpoint of the server's log that this runner has accepted
    Witness {
        #[command(subcommand)]
        command: Option<WitnessCommand>,
    },
    /// Redact the value on standard input in the job's log; scripts of a job call this
    Redact,
    /// Run the parent process of one job; only the agent starts it
    #[command(hide = true)]
    Shim {
        #[arg(long)]
        job: JobId,
        #[arg(long)]
        execution: ExecutionId,
    },
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Use the rules of this file for every job
    Set {
        /// Policy file, TOML; it must exist
        file: PathBuf,
    },
    /// Use no policy: allow everything that the vendor's server signs
    None,
}

#[derive(Debug, Subcommand)]
enum WitnessCommand {
    /// Print the checkpoint; standard error reports the logs that were rejected later
    Show,
    /// Show the evidence of rejected logs: the accepted head, the rejected one and the proofs
    #[command(after_help = "\
Examples:
  stead-runner witness evidence
  stead-runner witness evidence --output json > evidence.ndjson     both heads and the proofs")]
    Evidence {
        /// Output format; json prints one document per rejected log, with all evidence
        #[arg(long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Accept a log that the vendor restored from a backup
    Accept {
        /// Epoch that the vendor announced
        #[arg(long)]
        epoch: u64,
    },
    /// Print the checkpoint keys that this runner trusts, as verifier keys
    #[command(after_help = "\
Example: check a proof from the vendor with the keys and the checkpoint of this runner
  stead-runner witness key
  stead-runner witness > checkpoint.txt
  stead audit check acme.json --key stead/01JD…+9f2c1a07+AZ… --checkpoint checkpoint.txt")]
    Key,
}

/// Parses the command line. An invalid `redact` command in a job's script withholds the job's
/// output.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && env::args_os().any(|argument| argument == "redact") {
            redact_socket::withhold();
        }
        error.exit()
    })
}

/// Runs `redact`, the only command without the async runtime. Returns `None` for the other
/// commands. `redact` must work, or withhold the job's output, even if the process cannot start a
/// thread and can open only few files.
pub fn run_alone(cli: &Cli) -> Option<anyhow::Result<ExitCode>> {
    matches!(cli.command, Some(Command::Redact)).then(hand_in)
}

fn hand_in() -> anyhow::Result<ExitCode> {
    redact_socket::register()?;
    Ok(ExitCode::SUCCESS)
}

pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // Make the path absolute: the parent of a bare name cannot be opened, and recorded paths must
    // stay valid in another working directory.
    let data = std::path::absolute(&cli.data)?;
    let open = || Data::open(&data).with_context(|| format!("cannot open {}", cli.data.display()));
    // Does not create the directory, because a mistyped path must be an error.
    let look = || match data.is_dir() {
        true => open(),
        false => bail!(
            "cannot find the runner: the directory {} does not exist; pass the runner's data directory with --data",
            data.display()
        ),
    };
    match cli.command {
        None => start::serve(&open()?, cli.run).await,
        Some(Command::Enrol(run)) => {
            let data = open()?;
            let keys = Keys::open(&data)?;
            let identity = start::identity(&data, &keys, &run).await?;
            if let Some(policy) = Choice::recorded(&data)? {
                let data = data.root().display();
                eprintln!("start the runner: stead-runner --data {data} {policy}");
            }
            show::print(&format!("{}\n", identity.runner))
        }
        Some(Command::Disable { reason, stop_jobs }) => {
            disable::disable(&open()?, &reason, stop_jobs)?;
            show::print("Disabled: the runner accepts no jobs until `stead-runner enable`\n")
        }
        Some(Command::Enable) => {
            disable::enable(&open()?)?;
            show::print("Enabled\n")
        }
        Some(Command::Approvals) => show::approvals(&look()?),
        Some(Command::Approve { execution, reason }) => {
            decide(&look()?, execution, &ApprovalDecision { yes: true, reason })
        }
        Some(Command::Deny { execution, reason }) => {
            decide(&look()?, execution, &ApprovalDecision { yes: false, reason })
        }
        Some(Command::Policy { command }) => choose_policy(&look()?, command),
        Some(Command::Status) => show::status(&look()?),
        Some(Command::State { command }) => state::run(command, &look()?),
        Some(Command::Journal(args)) => journal::run(*args, look),
        Some(Command::Witness { command: None | Some(WitnessCommand::Show) }) => {
            show::checkpoint(&look()?)
        }
        Some(Command::Witness { command: Some(WitnessCommand::Evidence { output }) }) => {
            show::evidence(&look()?, output)
        }
        Some(Command::Witness { command: Some(WitnessCommand::Accept { epoch }) }) => {
            let data = look()?;
            if let Some(seen) = show::status::seen(&data)?
                && epoch <= seen.epoch
            {
                bail!(
                    "cannot accept epoch {epoch}: this runner has already accepted epoch {}; pass a higher epoch",
                    seen.epoch
                );
            }
            Witness::of(&data).accept(epoch)?;
            Journal::open(&data)?.write(JournalEvent::EpochAccepted { epoch })?;
            show::print(&format!("Accepted epoch {epoch}\n"))
        }
        Some(Command::Witness { command: Some(WitnessCommand::Key) }) => {
            let keys = enrol::checkpoint_keys(&look()?)?;
            let keys = keys.iter().map(|key| format!("{key}\n")).collect::<String>();
            show::print(&show::sanitized(&keys))
        }
        Some(Command::Redact) => hand_in(),
        Some(Command::Shim { job, execution }) => {
            crate::shim::run(&open()?, job, execution).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn choose_policy(data: &Data, command: Option<PolicyCommand>) -> anyhow::Result<ExitCode> {
    let choice = match command {
        None => return show::print(&format!("{}\n", show::status::policy(data))),
        Some(PolicyCommand::Set { file }) => Choice::File(std::path::absolute(file)?),
        Some(PolicyCommand::None) => Choice::None,
    };
    choice.policy()?;
    choice.record(data)?;
    show::print(&format!("{}\n", show::status::policy(data)))
}

fn decide(
    data: &Data,
    execution: ExecutionId,
    word: &ApprovalDecision,
) -> anyhow::Result<ExitCode> {
    if !approval::decide(data, execution, word)? {
        bail!(
            "cannot decide: {execution} does not wait for an approval; `stead-runner approvals` lists the executions that do"
        );
    }
    show::print(if word.yes { "Approved\n" } else { "Denied\n" })
}

fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = split.ok_or_else(|| format!("{text:?} is not in the form KEY=VALUE"))?;
    Ok((key.into(), value.into()))
}

/// Longest time for the runtime to shut down after the work has ended.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    /// Compares the help with its golden file. `UPDATE_GOLDEN=1` rewrites the file.
    #[test]
    fn the_help_is_what_was_agreed() {
        use clap::CommandFactory as _;
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut text = command.render_help().to_string();
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            if below.get_name() != "help" {
                let help = below.clone().term_width(100).render_help();
                text += &format!("\n{}\n{help}", "-".repeat(60));
            }
        }
        domain::testing::golden("cli-runner/stead-runner.txt", &text);
    }
}
