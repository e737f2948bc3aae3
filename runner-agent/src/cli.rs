//! Command line of `stead-runner`.
mod args;
mod journal;
mod publishers;
mod recovery;
mod secret;
mod state;

use std::{env, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use domain::ids::ExecutionId;

pub use self::args::{Cli, LogFormat};
use self::args::{Command, PolicyCommand, WitnessCommand};
pub(crate) use self::args::{Mode, Output, Run};
use crate::{
    approval::{self, ApprovalDecision},
    data::Data,
    disable, doctor, enrol, isolation,
    journal::{Journal, JournalEvent},
    keys::Keys,
    policy::Choice,
    seed,
    shim::redact_socket,
    show, start,
    witness::Witness,
};

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

/// Runs the commands without the async runtime. Returns `None` for the other commands. `redact`
/// must work, or withhold the job's output, even if the process cannot start a thread and can open
/// only few files. The commands of a sandbox change this process, which must have one thread.
pub fn run_alone(cli: &Cli) -> Option<anyhow::Result<ExitCode>> {
    let command = cli.command.as_ref()?;
    if let Command::SandboxEnter { network, command } = command {
        return Some(isolation::enter(*network, command));
    }
    if let Command::SandboxConnect { parent, command } = command {
        return Some(isolation::connect(*parent, command));
    }
    if let Command::SandboxStart { status, command } = command {
        return Some(isolation::start(*status, command));
    }
    if let Command::SandboxRun { command } = command {
        return Some(isolation::run(command));
    }
    if matches!(command, Command::SandboxNetwork) {
        return Some(isolation::hold());
    }
    matches!(command, Command::Redact).then(hand_in)
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
            // Two first starts at once would create two seeds.
            let _lock = start::lock(&data).await?;
            let mut keys = Keys::open(&data)?;
            let identity = start::identity(&data, &mut keys, &run).await?;
            if let Some(policy) = Choice::recorded(&data)? {
                let data = data.root().display();
                eprintln!("start the runner: stead-runner --data {data} {policy}");
            }
            show::print(&format!("{}\n", identity.runner))
        }
        Some(Command::Fingerprint) => fingerprint(&look()?),
        Some(Command::Doctor { output }) => {
            let data = if data.join("runner.json").exists() { Some(open()?) } else { None };
            doctor(data.as_ref(), output).await
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
        Some(Command::Publishers { command }) => publishers::run(command, &look()?),
        Some(Command::Secret { command }) => secret::run(command, &look()?),
        Some(Command::Recovery { command }) => recovery::run(command, &look()?),
        Some(Command::Recover(args)) => recovery::recover(&args, (data.is_dir(), open)).await,
        Some(Command::Status) => show::status(&look()?),
        Some(Command::State { command }) => state::run(command, &look()?).await,
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
        Some(
            Command::Redact
            | Command::SandboxNetwork
            | Command::SandboxEnter { .. }
            | Command::SandboxConnect { .. }
            | Command::SandboxStart { .. }
            | Command::SandboxRun { .. },
        ) => bail!("cannot run this command with a runtime"),
        Some(Command::Shim { job, execution }) => {
            crate::shim::run(&open()?, job, execution).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints the fingerprint of the install's public keys. Standard error has the instructions.
fn fingerprint(data: &Data) -> anyhow::Result<ExitCode> {
    let missing = "cannot print the fingerprint: the runner is not enrolled, or has not started since the update; start it";
    let identity = enrol::stored_identity(data)?.context(missing)?;
    let Some(install) = identity.install else {
        bail!("cannot print the fingerprint: a build runner has no keys of an install");
    };
    let keys = seed::open(data)?.context(missing)?;
    let fingerprint = seed::fingerprint(&keys, &identity).context(missing)?;
    eprintln!(
        "Send this fingerprint to the vendor over a channel that the vendor's server does not control, for example by \
         phone. The vendor pins it: stead installs pin {install} {fingerprint}"
    );
    show::print(&format!("{fingerprint}\n"))
}

async fn doctor(data: Option<&Data>, output: Output) -> anyhow::Result<ExitCode> {
    let facts = doctor::Facts::of_host(data).await;
    let found = doctor::findings(&facts);
    match output {
        Output::Table => show::print(&show::sanitized(&doctor::text(&facts, &found)))?,
        Output::Json => show::print(&format!("{}\n", serde_json::to_string(&found)?))?,
    };
    let is_failed = found.iter().any(|finding| finding.status == doctor::Status::Failed);
    Ok(if is_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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

/// Longest time for the runtime to shut down after the work has ended.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
