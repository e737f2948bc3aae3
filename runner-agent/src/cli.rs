//! The command line.
mod journal;
mod state;

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::ids::{ExecutionId, JobId};

use self::{journal::JournalArgs, state::StateCommand};
use crate::{
    ask::{self, Answer},
    budgets::Budgets,
    data::Data,
    enrol,
    journal::{Fact, Journal},
    keys::Keys,
    policy::Choice,
    shim::hide,
    show, start, switch,
    witness::Witness,
};

const EXAMPLES: &str = "\
Examples:
  First start, as `stead` printed it for this install; it asks for the token:
    stead-runner --data /var/lib/stead-runner --mode install --server https://stead.example.com:7071 \\
      --server-key sha256:4f… --token-file - --stack-output region=eu-central-1
  Later starts:
    stead-runner --data /var/lib/stead-runner
  Other rules than at the first start:
    stead-runner policy set /etc/stead/policy.toml --data /var/lib/stead-runner
  Take nothing new, whatever the server says; and look at what happened here:
    stead-runner disable --data /var/lib/stead-runner --reason 'change freeze'
    stead-runner journal --data /var/lib/stead-runner
    stead-runner journal verify --data /var/lib/stead-runner

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

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON document per line: timestamp, level, fields with `message`, target
    Json,
}

impl Cli {
    /// Format of log lines.
    pub fn log_format(&self) -> LogFormat {
        self.log_format
    }
}

/// How an agent is started.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What this runner is for; needed at the first start
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// The Runner listener; needed at the first start
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Fingerprint of the server's signing key; needed at the first start
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) server_key: Option<String>,
    /// The enrolment token; everybody on the host can read it here: better --token-file
    #[arg(long, env = "STEAD_ENROLMENT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A file that holds the enrolment token; `-` reads one line of standard input
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// SHA-256 of the certificate that the server's must come from
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) ca_fingerprint: Option<String>,
    /// Certificates that the server's must come from, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// What the customer's stack gave out; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) stack_output: Vec<(String, String)>,
    /// The same from a file: a JSON object (*.json), or TOML of `key = "value"` lines
    #[arg(long, value_name = "FILE")]
    pub(crate) stack_outputs_file: Option<PathBuf>,
    /// The customer's rules, TOML; the file must exist. Chosen at the first start and recorded (default: policy.toml in
    /// the data directory, created if absent)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// No rules: allow everything that the vendor's server signs
    #[arg(long, conflicts_with = "policy")]
    pub(crate) no_policy: bool,
    /// Where stead-plugin-<name> executables are
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_dir: Option<PathBuf>,
    /// How many jobs at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: u32,
    /// A variable of this environment that jobs get, redacted in their logs; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) pass_env: Vec<String>,
    /// Disk for pulled artifacts. The current and the previous version of each component stay, whatever it is
    #[arg(long, value_name = "BYTES", default_value_t = Budgets::default().artifacts)]
    pub(crate) artifact_budget: u64,
    /// Disk for logs and files of jobs that are over; the newest stay
    #[arg(long, value_name = "BYTES", default_value_t = Budgets::default().jobs)]
    pub(crate) job_budget: u64,
    /// Let the connection to the server be unencrypted although it is not on this host
    #[arg(long)]
    pub(crate) allow_http: bool,
}

/// What a runner is for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Mode {
    /// Inside one install
    Install,
    /// For the vendor's builds
    Build,
}

/// How something is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
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
    /// Show or change the policy of this runner
    Policy {
        #[command(subcommand)]
        command: Option<PolicyCommand>,
    },
    /// Who this runner is, and what it is doing
    Status,
    /// What waits for your word, where the policy says `ask`
    Questions,
    /// Let a job that waits for your word be done
    Approve {
        /// As `questions` shows it
        execution: ExecutionId,
        /// Why, for the journal
        #[arg(long, default_value = "approved by the customer")]
        reason: String,
    },
    /// Refuse a job that waits for your word
    Deny {
        /// As `questions` shows it
        execution: ExecutionId,
        /// Why; the vendor sees it
        #[arg(long)]
        reason: String,
    },
    /// What happened here, oldest first: each entry is chained to the one before, and the last is signed
    Journal(Box<JournalArgs>),
    /// List the state of components, and resolve what a failed apply left
    State {
        #[command(subcommand)]
        command: StateCommand,
    },
    /// The last signed head of the server's log that this runner has seen
    Witness {
        #[command(subcommand)]
        command: Option<WitnessCommand>,
    },
    /// For scripts of a job: redact what comes on standard input from now on
    Redact,
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
enum PolicyCommand {
    /// Apply the rules of this file to every job from now on
    Set {
        /// TOML; it must exist
        file: PathBuf,
    },
    /// Apply no rules from now on: allow everything that the vendor's server signs
    None,
}

#[derive(Debug, Subcommand)]
enum WitnessCommand {
    /// Show it; what was not believed since then is said on standard error
    Show,
    /// What was shown of a log that is not believed: both heads are kept, each refusal in a file of its own
    #[command(after_help = "\
Examples:
  stead-runner witness evidence
  stead-runner witness evidence --output json > evidence.ndjson     both heads and the proofs, for somebody else")]
    Evidence {
        /// A table for people, or all that is kept for programs, one JSON document per line
        #[arg(long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Accept a log that an operator restored
    Accept {
        /// The epoch that the vendor announced
        #[arg(long)]
        epoch: u64,
    },
    /// The keys of checkpoints that this runner believes, each as a verifier key
    #[command(after_help = "\
Example: check a proof that the vendor handed over, by what this runner knows and keeps
  stead-runner witness key
  stead-runner witness > checkpoint.txt
  stead audit check acme.json --key stead/01JD…+9f2c1a07+AZ… --checkpoint checkpoint.txt")]
    Key,
}

/// Reads the command line. In a script of a job a `redact` that cannot be understood withholds the job's output.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && env::args_os().any(|argument| argument == "redact") {
            hide::withhold();
        }
        error.exit()
    })
}

/// Does what needs no runtime. `redact` must also work, or withhold the job's output, where no thread can be started and
/// few files be opened.
pub fn run_alone(cli: &Cli) -> Option<anyhow::Result<ExitCode>> {
    matches!(cli.command, Some(Command::Redact)).then(hand_in)
}

fn hand_in() -> anyhow::Result<ExitCode> {
    hide::hand_in()?;
    Ok(ExitCode::SUCCESS)
}

/// Do what the command line says.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // A bare name has no parent to open; and what is kept names places that hold after a change of directory.
    let data = std::path::absolute(&cli.data)?;
    let open = || Data::open(&data).with_context(|| format!("opening {}", cli.data.display()));
    // To look is not to make: a mistyped directory is told, and stays absent.
    let look = || match data.is_dir() {
        true => open(),
        false => bail!("there is no runner in {}: name its directory with --data", data.display()),
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
            show::said(&format!("{}\n", identity.runner))
        }
        Some(Command::Disable { reason, stop_jobs }) => {
            switch::disable(&open()?, &reason, stop_jobs)?;
            show::said("disabled: nothing new is taken until `stead-runner enable`\n")
        }
        Some(Command::Enable) => {
            switch::enable(&open()?)?;
            show::said("enabled\n")
        }
        Some(Command::Questions) => show::questions(&look()?),
        Some(Command::Approve { execution, reason }) => {
            answer(&look()?, execution, &Answer { yes: true, reason })
        }
        Some(Command::Deny { execution, reason }) => {
            answer(&look()?, execution, &Answer { yes: false, reason })
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
            if let Some(seen) = show::standing::seen(&data)?
                && epoch <= seen.epoch
            {
                bail!(
                    "nothing is to be accepted: a log of epoch {} is believed already, and none of an earlier one \
                     will be",
                    seen.epoch
                );
            }
            Witness::of(&data).accept(epoch)?;
            Journal::open(&data)?.write(Fact::EpochAccepted { epoch })?;
            show::said(&format!("epoch {epoch} is accepted\n"))
        }
        Some(Command::Witness { command: Some(WitnessCommand::Key) }) => {
            let keys = enrol::checkpoint_keys(&look()?)?;
            let keys = keys.iter().map(|key| format!("{key}\n")).collect::<String>();
            show::said(&show::sanitized(&keys))
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
        None => return show::said(&format!("{}\n", show::standing::policy(data))),
        Some(PolicyCommand::Set { file }) => Choice::File(std::path::absolute(file)?),
        Some(PolicyCommand::None) => Choice::None,
    };
    choice.policy()?;
    choice.record(data)?;
    show::said(&format!("{}\n", show::standing::policy(data)))
}

fn answer(data: &Data, execution: ExecutionId, word: &Answer) -> anyhow::Result<ExitCode> {
    if !ask::answer(data, execution, word)? {
        bail!("{execution} does not wait for a word");
    }
    show::said(if word.yes { "approved\n" } else { "denied\n" })
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

    /// What a customer reads; `UPDATE_GOLDEN=1` writes what is true now.
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
