//! Arguments of `stead-runner`.
use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::{
    ids::{ExecutionId, JobId},
    isolation::IsolationLevel,
};

use super::{
    journal::JournalArgs,
    recovery::{RecoverArgs, RecoveryCommand},
    secret::SecretCommand,
    state::StateCommand,
};
use crate::{
    budgets::Budgets,
    images::{Mirror, RegistryChoice, parse_mirror},
};

const EXAMPLES: &str = "\
Examples:
  First start, as `stead installs create` printed it; prompts for the token:
    stead-runner --data /var/lib/stead-runner --mode install \\
      --server https://stead.example.com:7071 --server-key sha256:4f… --token-file - \\
      --stack-output region=eu-central-1
  Later starts:
    stead-runner --data /var/lib/stead-runner
  Change the policy:
    stead-runner policy set /etc/stead/policy.toml --data /var/lib/stead-runner
  Stop accepting jobs, and read the journal:
    stead-runner disable --data /var/lib/stead-runner --reason 'change freeze'
    stead-runner journal --data /var/lib/stead-runner
    stead-runner journal verify --data /var/lib/stead-runner

Signals: after SIGTERM or SIGINT, the agent finishes its running jobs and exits. After SIGQUIT or a \
second SIGINT, it stops its jobs and exits. After SIGHUP or a second SIGTERM, it exits immediately, and its jobs \
continue.";

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
    pub(super) data: PathBuf,
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
    pub(super) run: Run,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
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
    /// SHA-256 of the server's certificate, or of the CA certificate that must have issued it
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
    /// Policy file of the customer, TOML. The runner records the path at the first start. Default:
    /// policy.toml in the data directory, which the first start creates if it is absent. Any other
    /// file must exist
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// No policy: allow everything that the vendor's server signs, within the fixed limits of the
    /// runner
    #[arg(long, conflicts_with = "policy")]
    pub(crate) no_policy: bool,
    /// Isolation of jobs in the policy that the first start creates. A policy that exists must select
    /// this level. `sandbox` needs bubblewrap and passt. Without the option, jobs run at the level `process`,
    /// which protects neither this runner's files nor the host's network
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with = "no_policy")]
    pub(crate) isolation: Option<Level>,
    /// Public key of a publisher whose plugins this runner executes; may be repeated. The runner
    /// records the key
    #[arg(long, value_name = "KEY", value_parser = crate::policy::publishers::parse)]
    pub(crate) plugin_publisher: Vec<String>,
    /// Directory of stead-plugin-<name> executables [default: directory of stead-runner]
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_dir: Option<PathBuf>,
    /// Mirror of an upstream registry of images, for example docker.io=http://127.0.0.1:5000; may be repeated. Only
    /// builds use it
    #[arg(long, value_name = "HOST=URL", value_parser = parse_mirror)]
    pub(crate) registry_mirror: Vec<(String, Mirror)>,
    /// Registry that the clusters of this install pull images from: oci://HOST/PREFIX, `sandbox`
    /// (the registry that the sandbox returns, if there is one), or `none` (images stay on this
    /// host). With `--mode build`: the registry of the vendor, to which builds push if the server
    /// names the same one. The runner records it [default: the recorded one, else `sandbox`]
    #[arg(long, value_name = "REGISTRY", value_parser = RegistryChoice::parse)]
    pub(crate) registry: Option<RegistryChoice>,
    /// Recovery recipient: public key of an age identity, age1…, whose private key you keep offline; may be
    /// repeated. Only `recovery remove` removes it, and then only `recovery add` adds it again
    #[arg(long, value_name = "RECIPIENT")]
    pub(crate) recovery: Vec<install_keys::Recipient>,
    /// Maximum number of concurrent jobs
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) slots: u32,
    /// Environment variable to pass to jobs; its value is redacted in their logs. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) pass_env: Vec<String>,
    /// Disk budget of pulled artifacts. The two most recently used versions of each component are
    /// always kept
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

/// Level of isolation of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Namespaces of their own and a read-only view of the host
    Sandbox,
    /// The user and the files of the runner
    Process,
}

impl From<Level> for IsolationLevel {
    fn from(level: Level) -> IsolationLevel {
        match level {
            Level::Sandbox => IsolationLevel::Sandbox,
            Level::Process => IsolationLevel::Process,
        }
    }
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
pub(super) enum Command {
    /// Enrol with the server and exit
    Enrol(Box<Run>),
    /// Print the fingerprint of the install's public keys, for the vendor
    #[command(after_help = "\
The vendor encrypts data for this install only after it has pinned this fingerprint. Send it over a channel that the \
vendor's server does not control: a server could show the vendor other keys.")]
    Fingerprint,
    /// Check what this host supports: sandboxes, networks of jobs, control groups
    #[command(after_help = "\
The command needs no data directory. With the directory of a runner, it also checks the policy and the keys. Exit status \
1 means that the runner refuses jobs.")]
    Doctor {
        /// Output format
        #[arg(long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
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
    /// List or remove the publishers whose plugins this runner executes
    Publishers {
        #[command(subcommand)]
        command: PublishersCommand,
    },
    /// Set, list or remove sensitive values that never leave this host
    Secret {
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// Choose who can recover the keys of the install on another host
    #[command(after_help = "\
Create an identity on another host, and keep its private key offline:
  age-keygen -o recovery-identity.txt
Then, on this host:
  stead-runner recovery add age1… --data /var/lib/stead-runner
  stead-runner fingerprint --data /var/lib/stead-runner
Keep the fingerprint in your own records: `stead-runner recover` needs it.")]
    Recovery {
        #[command(subcommand)]
        command: RecoveryCommand,
    },
    /// Recover an install on a new host: its keys into a new data directory, and its runner
    #[command(after_help = "\
Example, with a new enrolment token of the vendor:
  stead-runner recover --data /var/lib/stead-runner --identity recovery-identity.txt \\
    --fingerprint sha256:4f… --server https://stead.example.com:7071 --server-key sha256:4f… \\
    --token-file -

The first call lists the states that the server has. Compare them with your records, and repeat the call with each in \
--accept-head: nothing proves that they are the newest ones. The runner is disabled until you run `stead-runner \
enable`, and the server rejects the former runner. Nothing changes if a check fails.")]
    Recover(Box<RecoverArgs>),
    /// Show the identity, policy, journal, disk usage and jobs of this runner
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
    /// Hold the network of one job; only the shim starts it
    #[command(hide = true)]
    SandboxNetwork,
    /// Execute a command in the network of a job, with signals blocked; only the shim starts it
    #[command(hide = true)]
    SandboxEnter {
        /// Process that holds the network
        #[arg(long)]
        network: Option<u32>,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Execute pasta, which ends with the process that started it; only the shim starts it
    #[command(hide = true)]
    SandboxConnect {
        /// Process that starts it
        #[arg(long)]
        parent: u32,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Start a program of a job and report its end; only a sandbox starts it
    #[command(hide = true)]
    SandboxStart {
        /// Number of the open pipe for the report
        #[arg(long)]
        status: i32,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Execute a program of a job, with signals unblocked; only a sandbox starts it
    #[command(hide = true)]
    SandboxRun {
        #[arg(last = true)]
        command: Vec<OsString>,
    },
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
pub(super) enum PolicyCommand {
    /// Use the rules of this file for every job
    Set {
        /// Policy file, TOML; it must exist
        file: PathBuf,
    },
    /// Use no policy: allow everything that the vendor's server signs, within the fixed limits of
    /// the runner
    None,
}

#[derive(Debug, Subcommand)]
pub(super) enum PublishersCommand {
    /// List the keys of trusted publishers, and where each is trusted
    List,
    /// Remove a recorded key. Running jobs continue
    Remove {
        /// Public key, from `stead-runner publishers list`
        #[arg(value_parser = crate::policy::publishers::parse)]
        key: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum WitnessCommand {
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

fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = split.ok_or_else(|| format!("{text:?} is not in the form KEY=VALUE"))?;
    Ok((key.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    /// The command that the server prints names the policy file.
    #[test]
    fn a_first_start_with_a_policy_file_can_select_the_level() {
        let cli = Cli::try_parse_from([
            "stead-runner",
            "--data",
            "d",
            "--policy",
            "d/policy.toml",
            "--isolation",
            "sandbox",
        ]);
        assert_eq!(cli.unwrap().run.isolation, Some(Level::Sandbox));
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
