//! `stead installs`: copies of an app in customers' accounts.
mod accept_state;
mod change;
pub(crate) mod picture;
mod stack;

use clap::{Args, Subcommand};
use schemas::control::{
    installs::{CreateInstall, InstallsQuery, StateQuery},
    runs::RunAsked,
};

pub(crate) use picture::issued;

use crate::{
    failure::Failure,
    render::{Table, moment},
    settings::{Desk, Part, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Installs {
    /// Make an install, and print what its customer has to run, once
    #[command(after_help = "\
Examples:
  stead installs create shop acme --input domain=acme.example.com --input size=2
  stead installs create shop acme --inputs-file acme.toml --auto-approve
  stead installs create shop acme --stack-output region=eu-central-1 --stack-outputs-file acme.json
A file holds `name = \"value\"` lines, and of stack outputs may be a JSON object; --input and
--stack-output win over it. Stack outputs that the runner brings when it enrols win over these.")]
    Create(Create),
    /// List installs
    #[command(after_help = "\
Examples:
  stead installs list
  stead installs list --app shop")]
    List {
        /// Of one app: its name or id
        #[arg(long)]
        app: Option<String>,
        #[command(flatten)]
        part: Part,
    },
    /// Show an install: its components, inputs, runner, and what it waits for
    #[command(after_help = "Example:\n  stead installs show acme")]
    Show {
        /// The install's name or id
        install: String,
    },
    /// Print what templates see of an install, now or then
    #[command(after_help = "\
Examples:
  stead installs state acme
  stead installs state acme --at 2026-11-20T12:00:00Z
  stead installs state acme --at 1841")]
    State {
        /// The install's name or id
        install: String,
        /// As of a position or a moment: RFC 3339, a day, `2h ago`, `tuesday`
        #[arg(long, value_name = "TIME|POSITION")]
        at: Option<crate::when::At>,
    },
    /// Give inputs new values; only what they reach is planned
    #[command(after_help = "\
Examples:
  stead installs set-inputs acme --input size=3 --wait
  stead installs set-inputs acme --unset size --wait")]
    SetInputs(change::SetInputs),
    /// Say what the customer's stack gives out; only what reads it is planned
    #[command(after_help = "\
Examples:
  stead installs set-stack acme --stack-output vpc_id=vpc-0a1b --wait
  stead installs set-stack acme --stack-outputs-file outputs.json --unset vpc_id")]
    SetStack(stack::SetStack),
    /// Move to another config version; only what differs is planned
    #[command(after_help = "\
Examples:
  stead installs upgrade acme --to 2 --wait
  stead installs upgrade acme --to 2 --input region=eu-1 --wait    what version 2 asks for")]
    Upgrade(change::Move),
    /// Move back to an earlier config version, showing what that changes
    #[command(after_help = "\
Examples:
  stead installs rollback acme            to the version before
  stead installs rollback acme --to 1 --reason 'p99 doubled' --wait")]
    Rollback(change::Rollback),
    /// Deploy some components, or all, with what depends on them
    #[command(after_help = "Example:\n  stead installs deploy acme --component service --wait")]
    Deploy {
        #[command(flatten)]
        operation: change::Operation,
        /// A component's name; may be repeated; without it all
        #[arg(long = "component")]
        components: Vec<String>,
    },
    /// Apply sandbox and components again, on what is there
    #[command(after_help = "Example:\n  stead installs reprovision acme --reason 'drift' --wait")]
    Reprovision(change::Operation),
    /// Destroy the components, in reverse order of their dependencies
    #[command(
        after_help = "Example:\n  stead installs teardown acme --reason 'moves to eu-1' --wait"
    )]
    Teardown(change::Operation),
    /// Destroy the components and the sandbox
    #[command(after_help = "Example:\n  stead installs deprovision acme --reason 'contract ended'")]
    Deprovision(change::Operation),
    /// Run an action now
    #[command(after_help = "Example:\n  stead installs action acme smoke-test --wait")]
    Action {
        #[command(flatten)]
        operation: change::Operation,
        /// The action's name
        action: String,
    },
    /// Include a component in deploys, and deploy it
    #[command(after_help = "\
Examples:
  stead installs enable-component acme cache --reason 'load test' --wait
The component must be toggleable in the app's config; what it requires must be enabled.")]
    EnableComponent(change::Toggle),
    /// Leave a component out of deploys, and tear it down where it is deployed
    #[command(after_help = "\
Examples:
  stead installs disable-component acme cache --reason 'too expensive' --wait
The teardown is planned at once and waits for its approval like any plan. A component that an
enabled one requires cannot be disabled.")]
    DisableComponent(change::Toggle),
    /// Apply plans without asking, or ask again
    #[command(
        after_help = "Example:\n  stead installs auto-approve acme off --reason 'change freeze'"
    )]
    AutoApprove(change::AutoApprove),
    /// Accept a component's state that the runner refuses, because it is older than the newest one or has another lineage
    #[command(after_help = "\
Example: the customer restored the runner's state from a backup, and this is the state to go on with
  stead installs accept-state acme database --lineage 8907c070-aa91-8603-a355-2d2006a6c7aa --serial 3 \\
    --reason 'backup of Monday, CHG-1204'
  stead runs retry acme
What was created after that state is not in it: the next plan creates it a second time.")]
    AcceptState(accept_state::AcceptStateArgs),
    /// Make a new enrolment token, when the first one was lost or has expired, or the runner was revoked
    #[command(after_help = "\
Example: the runner's host is lost
  stead runners revoke rnr_01JD… --reason 'host was lost'
  stead installs enrol-token acme")]
    EnrolToken {
        /// The install's name or id
        install: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The app's name or id
    app: String,
    /// The name of the install: lower case letters, digits and hyphens
    name: String,
    #[command(flatten)]
    inputs: change::Inputs,
    #[command(flatten)]
    stack: stack::Outputs,
    /// Apply each plan without asking
    #[arg(long)]
    auto_approve: bool,
    /// Apply each plan of the first provision without asking, and ask in every later run
    #[arg(long, conflicts_with = "auto_approve")]
    auto_approve_first: bool,
    /// Which config version; without it the newest
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

pub(crate) async fn run(verb: Installs, settings: &Settings) -> Result<(), Failure> {
    let desk = settings.desk()?;
    match verb {
        Installs::Create(create) => self::create(&desk, create).await,
        Installs::List { app, part } => list(&desk, app, part).await,
        Installs::Show { install } => {
            let install = desk.client.install(&install).await?;
            desk.screen.one(&install, |screen| picture::of(&install, screen))
        }
        Installs::State { install, at } => {
            let (position, time) = at.map_or((None, None), |at| at.parts());
            let when = StateQuery { position, time, min_position: None };
            let state = desk.client.install_state(&install, &when).await?;
            desk.screen.one(&state.state, |_| {
                let text = serde_json::to_string_pretty(&state.state).unwrap_or_default();
                format!("{text}\n")
            })
        }
        Installs::SetInputs(ask) => change::set_inputs(&desk, ask).await,
        Installs::SetStack(ask) => stack::set(&desk, ask).await,
        Installs::Upgrade(ask) => change::upgrade(&desk, ask).await,
        Installs::Rollback(ask) => change::rollback(&desk, ask).await,
        Installs::Deploy { operation, components } => {
            change::operate(&desk, operation, RunAsked::Deploy, components, None).await
        }
        Installs::Reprovision(ask) => {
            change::operate(&desk, ask, RunAsked::Reprovision, vec![], None).await
        }
        Installs::Teardown(ask) => {
            change::operate(&desk, ask, RunAsked::Teardown, vec![], None).await
        }
        Installs::Deprovision(ask) => {
            change::operate(&desk, ask, RunAsked::Deprovision, vec![], None).await
        }
        Installs::Action { operation, action } => {
            change::operate(&desk, operation, RunAsked::Action, vec![], Some(action)).await
        }
        Installs::EnableComponent(ask) => change::toggle(&desk, ask, true).await,
        Installs::DisableComponent(ask) => change::toggle(&desk, ask, false).await,
        Installs::AutoApprove(ask) => change::auto_approve(&desk, ask).await,
        Installs::AcceptState(args) => accept_state::run(&desk, args).await,
        Installs::EnrolToken { install } => {
            let issued = desk.client.enrol_token(&install).await?;
            desk.screen.one(&issued, |screen| picture::issued(&issued, screen))
        }
    }
}

async fn create(desk: &Desk, create: Create) -> Result<(), Failure> {
    let Create { app, name, inputs, stack, auto_approve, auto_approve_first, version } = create;
    let (inputs, stack_outputs) = (inputs.read()?, stack.read()?);
    let config_version = version;
    let ask = CreateInstall {
        app,
        name,
        inputs,
        auto_approve,
        auto_approve_first,
        config_version,
        stack_outputs,
    };
    let made = desk.client.create_install(&ask).await?;
    desk.screen.one(&made, |screen| {
        let mut text = format!(
            "Made the install {} ({}) of {} at version {}.\n",
            made.name, made.id, ask.app, made.config_version
        );
        match &made.enrolment {
            Some(enrolment) => text += &picture::enrolment(enrolment, screen),
            None => text += &format!("Enrol: stead installs enrol-token {}\n", made.name),
        }
        text
    })
}

async fn list(desk: &Desk, app: Option<String>, part: Part) -> Result<(), Failure> {
    let Part { limit, cursor } = part;
    let query = InstallsQuery { app, limit: Some(limit), cursor, min_position: None };
    let page = desk.client.installs(&query).await?;
    desk.screen.many(&page.items, "No installs.", |screen| {
        let mut table =
            Table::new(["INSTALL", "APP", "VERSION", "STATE", "DEPLOYED", "RUNNER", "CREATED"]);
        for install in &page.items {
            let deployed = install.components.iter().filter(|c| c.state == "deployed").count();
            table.row([
                install.name.clone(),
                install.app_name.clone(),
                install.config_version.to_string(),
                screen.state(&install.state),
                format!("{deployed}/{}", install.components.len()),
                install.runner.map(|r| r.to_string()).unwrap_or_default(),
                moment(&install.created_at),
            ]);
        }
        table
    })?;
    desk.more(page.next.as_deref());
    Ok(())
}
