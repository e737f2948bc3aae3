//! `stead runners`: the runners in customer accounts, and the build runners.
use clap::{Args, Subcommand};
use domain::ids::{RunnerId, TokenId};
use schemas::control::{
    ReasonBody,
    runners::{ReceivedJournalHead, Runner},
};

use crate::{
    failure::Failure,
    render::{Screen, Table, moment, moment_or_dash},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Runners {
    /// List runners
    #[command(after_help = "Example:\n  stead runners list")]
    List(PageArgs),
    /// Show a runner with its state, host and jobs
    #[command(after_help = "Example:\n  stead runners show rnr_01JD…")]
    Show {
        /// Id of the runner
        runner: RunnerId,
    },
    /// Print the newest signed journal head that the server received from a runner
    #[command(after_help = "\
Example:
  stead runners journal-head rnr_01JD… > head.json

With this head, the customer verifies that the end of the journal is complete: \
stead-runner journal verify --head head.json")]
    JournalHead {
        /// Id of the runner
        runner: RunnerId,
        /// Id of the journal, if the runner has started more than one
        #[arg(long, value_name = "ID")]
        journal: Option<String>,
    },
    /// Disable a runner: it gets no new jobs until it is enabled; running jobs continue
    #[command(after_help = "Example:\n  stead runners disable rnr_01JD… --reason 'change freeze'")]
    Disable(ControlArgs),
    /// Enable a runner
    #[command(after_help = "Example:\n  stead runners enable rnr_01JD…")]
    Enable(ControlArgs),
    /// Drain a runner: running jobs finish, and the runner accepts no new jobs
    #[command(after_help = "Example:\n  stead runners drain rnr_01JD… --reason 'host is replaced'")]
    Drain(ControlArgs),
    /// Resume a drained runner
    #[command(after_help = "Example:\n  stead runners resume rnr_01JD…")]
    Resume(ControlArgs),
    /// Rotate the identity key of a runner now; runners rotate their keys every 30 days
    #[command(
        after_help = "Example:\n  stead runners rekey rnr_01JD… --reason 'the host was copied'"
    )]
    Rekey(ControlArgs),
    /// Revoke a runner permanently; its install then needs a new runner
    #[command(after_help = "Example:\n  stead runners revoke rnr_01JD… --reason 'host was lost'")]
    Revoke(ControlArgs),
    /// Create an enrolment token for a build runner
    #[command(after_help = "Example:\n  stead runners create-enrolment-token")]
    CreateEnrolmentToken,
    /// List the enrolment tokens of build runners and installs, newest first
    #[command(after_help = "Example:\n  stead runners list-enrolment-tokens")]
    ListEnrolmentTokens(PageArgs),
    /// Revoke an enrolment token of a build runner or an install
    #[command(after_help = "\
Example:
  stead runners revoke-enrolment-token tok_01JD… --reason 'sent to the wrong person'")]
    RevokeEnrolmentToken {
        /// Id of the enrolment token, not its secret value
        token: TokenId,
        /// Reason, recorded in the log
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Id of the runner
    runner: RunnerId,
    /// Reason, recorded in the log
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) async fn run(verb: Runners, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Runners::List(part) => list(&context, part).await,
        Runners::Show { runner } => {
            let runner = context.client.runner(runner).await?;
            context.screen.print_one(&runner, |screen| show(&runner, screen))
        }
        Runners::JournalHead { runner, journal } => head(&context, runner, journal).await,
        Runners::Disable(order) => send(&context, order, "disable", "disabled").await,
        Runners::Enable(order) => send(&context, order, "enable", "enabled").await,
        Runners::Drain(order) => send(&context, order, "drain", "draining").await,
        Runners::Resume(order) => send(&context, order, "resume", "accepting jobs").await,
        Runners::Rekey(order) => send(&context, order, "rekey", "rekey requested").await,
        Runners::Revoke(order) => send(&context, order, "revoke", "revoked").await,
        Runners::CreateEnrolmentToken => {
            let issued = context.client.create_build_enrolment_token().await?;
            context.screen.print_one(&issued, |screen| super::installs::issued(&issued, screen))
        }
        Runners::ListEnrolmentTokens(part) => list_enrolment_tokens(&context, part).await,
        Runners::RevokeEnrolmentToken { token, reason } => {
            let done = context.client.revoke_enrolment_token(token, &ReasonBody { reason }).await?;
            context.screen.print_one(&done, |_| match done.changed {
                true => format!("Revoked {token}\n"),
                false => format!("No change: {token} is already revoked\n"),
            })
        }
    }
}

async fn head(
    context: &CommandContext,
    runner: RunnerId,
    journal: Option<String>,
) -> Result<(), Failure> {
    let heads = context.client.journal_heads(runner).await?.heads;
    let is_requested =
        |head: &ReceivedJournalHead| journal.as_ref().is_none_or(|id| *id == head.journal_id);
    let head = heads.into_iter().find(is_requested).ok_or_else(|| {
        Failure::NotFound(format!(
            "cannot find the journal head: the server has received no such head from {runner}; omit --journal, or wait for the next session of the runner"
        ))
    })?;
    // The customer's stead-runner reads this output as a file, so it is JSON in every format.
    context
        .screen
        .print_one(&head.head, |_| serde_json::to_string(&head.head).unwrap_or_default() + "\n")
}

async fn send(
    context: &CommandContext,
    args: ControlArgs,
    verb: &str,
    state: &str,
) -> Result<(), Failure> {
    let body = ReasonBody { reason: args.reason };
    let done = context.client.order_runner(args.runner, verb, &body).await?;
    if verb == "enable" {
        let by = context.client.runner(args.runner).await?.disabled_by;
        if by.iter().any(|by| by == "customer") {
            context.screen.remark("The customer also disabled this runner. Only the customer can enable it: stead-runner enable");
        }
    }
    let runner = args.runner;
    context.screen.print_one(&done, |_| match (verb, done.changed) {
        ("rekey", true) => format!("Requested the rekey of {runner}\n"),
        ("rekey", false) => format!("No change: the rekey of {runner} was already requested\n"),
        (_, true) => format!("{runner} is {state}.\n"),
        (_, false) => format!("{runner} was already {state}.\n"),
    })
}

async fn list_enrolment_tokens(context: &CommandContext, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.enrolment_tokens(&part.listing()).await?;
    context.screen.print_list(&page.items, "No enrolment tokens.", |screen| {
        let mut table = Table::new(["TOKEN", "INSTALL", "STATE", "CREATED", "EXPIRES", "RUNNER"]);
        for token in &page.items {
            table.row([
                token.id.to_string(),
                token.install_name.clone().unwrap_or_default(),
                screen.state(&token.state),
                moment(&token.created_at),
                moment(&token.expires_at),
                token.runner.map(|runner| runner.to_string()).unwrap_or_default(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

async fn list(context: &CommandContext, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.runners(&part.listing()).await?;
    context.screen.print_list(&page.items, "No runners.", |screen| {
        let mut table =
            Table::new(["RUNNER", "MODE", "INSTALL", "STATE", "LAST CONTACT", "JOBS", "HOST"]);
        for runner in &page.items {
            table.row([
                runner.id.to_string(),
                runner.mode.clone(),
                runner.install_name.clone().unwrap_or_default(),
                screen.state(display_state(runner)),
                moment_or_dash(runner.last_contact.as_ref()),
                runner.jobs.len().to_string(),
                runner.host.clone(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

/// State of the runner: `disconnected` if it is active and has no contact.
fn display_state(runner: &Runner) -> &str {
    if runner.state == "active" && runner.online == Some(false) {
        "disconnected"
    } else {
        &runner.state
    }
}

pub(crate) fn show(runner: &Runner, screen: &Screen) -> String {
    let mut text = format!("{}  {}\n", runner.id, screen.state(display_state(runner)));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("  {name:<12}  {value}\n");
        }
    };
    line("mode", &runner.mode);
    line("install", runner.install_name.as_deref().unwrap_or_default());
    line("disabled", &runner.disabled_by.join(" and "));
    line("reason", runner.reason.as_deref().unwrap_or_default());
    line("key", &runner.identity_key);
    line("version", &runner.version);
    line("host", &runner.host);
    line("enrolled", &moment(&runner.enrolled_at));
    line("contact", &moment_or_dash(runner.last_contact.as_ref()));
    line("disconnected", &moment_or_dash(runner.disconnected_since.as_ref()));
    for job in &runner.jobs {
        line("job", &job.to_string());
    }
    text
}
