//! `stead installs`: installs of an app in customer accounts.
mod accept_state;
mod change;
pub(crate) mod drift;
mod encrypt;
pub(crate) mod output;
mod pin;
mod stack;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use domain::ids::RunnerId;
use schemas::control::{
    installs::{CreateEnrolmentToken, CreateInstall, InstallsQuery, StateQuery},
    runs::RequestedKind,
};

pub(crate) use output::issued;

use crate::{
    failure::Failure,
    pins::Pins,
    render::{Table, moment},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Installs {
    /// Create an install, and print the command that its customer runs
    #[command(after_help = "\
Examples:
  stead installs create shop acme --input domain=acme.example.com --input size=2
  stead installs create shop acme --inputs-file acme.toml --auto-approve
  stead installs create shop acme --stack-output region=eu-central-1 --stack-outputs-file acme.json

--input and --stack-output override the files. Stack outputs that the runner reports at enrolment override both.")]
    Create(Create),
    /// List installs
    #[command(after_help = "\
Examples:
  stead installs list
  stead installs list --app shop")]
    List {
        /// Only installs of this app: name or id
        #[arg(long)]
        app: Option<String>,
        #[command(flatten)]
        part: PageArgs,
    },
    /// Show an install with its components, inputs and runner
    #[command(after_help = "Example:\n  stead installs show acme")]
    Show {
        /// Name or id of the install
        install: String,
    },
    /// Print the state that templates of an install read, now or at an earlier time
    #[command(after_help = "\
Examples:
  stead installs state acme
  stead installs state acme --at 2026-11-20T12:00:00Z
  stead installs state acme --at 1841")]
    State {
        /// Name or id of the install
        install: String,
        /// Position or time: RFC 3339, a date, `2h ago`, `tuesday`
        #[arg(long, value_name = "TIME|POSITION")]
        at: Option<crate::point_in_time::PointInTime>,
    },
    /// Set inputs; plans the components that read them, and their dependents
    #[command(after_help = "\
Examples:
  stead installs set-inputs acme --input size=3 --wait
  stead installs set-inputs acme --secret api_token=token.txt --wait    encrypted on this computer
  stead installs set-inputs acme --unset size --wait")]
    SetInputs(change::SetInputs),
    /// Set outputs of the customer's stack; plans the components that read them, and their dependents
    #[command(after_help = "\
Examples:
  stead installs set-stack-outputs acme --stack-output vpc_id=vpc-0a1b --wait
  stead installs set-stack-outputs acme --stack-outputs-file outputs.json --unset vpc_id")]
    SetStackOutputs(stack::SetStackOutputs),
    /// Upgrade to another config version; plans the changed components and their dependents
    #[command(after_help = "\
Examples:
  stead installs upgrade acme --to 2 --wait
  stead installs upgrade acme --to 2 --input region=eu-1 --wait    version 2 has a new input")]
    Upgrade(change::Move),
    /// Roll back to an earlier config version, after showing the changes
    #[command(after_help = "\
Examples:
  stead installs rollback acme            to the previous version
  stead installs rollback acme --to 1 --reason 'p99 doubled' --wait")]
    Rollback(change::Rollback),
    /// Deploy components and their dependents, or all components
    #[command(after_help = "\
Examples:
  stead installs deploy acme --component service --wait
  stead installs deploy acme --plan-all    then approve all plans that exist: stead runs approve acme --reason …")]
    Deploy {
        #[command(flatten)]
        operation: change::Operation,
        /// Name of a component; may be repeated [default: all]
        #[arg(long = "component")]
        components: Vec<String>,
    },
    /// Plan and apply the sandbox and all components again
    #[command(after_help = "Example:\n  stead installs reprovision acme --reason 'drift' --wait")]
    Reprovision(change::Operation),
    /// Destroy the components, dependents first
    #[command(
        after_help = "Example:\n  stead installs teardown acme --reason 'moves to eu-1' --wait"
    )]
    Teardown(change::Operation),
    /// Destroy the components and the sandbox
    #[command(after_help = "Example:\n  stead installs deprovision acme --reason 'contract ended'")]
    Deprovision(change::Operation),
    /// Run an action
    #[command(after_help = "Example:\n  stead installs action acme smoke-test --wait")]
    Action(change::RunAction),
    /// Check the sandbox and all components for drift, without changes; exit code 6 if there is any
    #[command(after_help = "\
Examples:
  stead installs drift acme
  stead installs drift acme --details=full
  stead installs drift acme --output json || test $? -eq 6

Each part is planned with the current config version and inputs, and the plan is never applied. Changes that are not
deployed yet also count as drift. A part waits for a run that changes it, and the command names that run. `stead runs
cancel acme` cancels the check.
Exit codes: 0 no drift, 6 drift, 1 a part could not be checked and no other part has drift.")]
    Drift(drift::Drift),
    /// Enable a component and deploy it
    #[command(after_help = "\
Example:
  stead installs enable-component acme cache --reason 'load test' --wait

The component must be toggleable in the app's config, and its dependencies must be enabled.")]
    EnableComponent(change::Toggle),
    /// Disable a component and tear it down
    #[command(after_help = "\
Example:
  stead installs disable-component acme cache --reason 'too expensive' --wait

The teardown requires an approval like any plan. A component with enabled dependents cannot be disabled.")]
    DisableComponent(change::Toggle),
    /// Turn automatic approval of plans on or off
    #[command(
        after_help = "Example:\n  stead installs auto-approve acme off --reason 'change freeze'"
    )]
    AutoApprove(change::AutoApprove),
    /// Accept a component's state that the runner refuses: an older serial, or another lineage
    #[command(after_help = "\
Example: the customer restored the runner's state from a backup, and this state is correct
  stead installs accept-state acme database --lineage 8907c070-aa91-8603-a355-2d2006a6c7aa \\
    --serial 3 --reason 'backup of Monday, CHG-1204'
  stead runs retry acme

The accepted state lacks resources that were created after it. The next apply creates them a second time.")]
    AcceptState(accept_state::AcceptStateArgs),
    /// Pin the public keys of an install, so that a server cannot substitute them
    #[command(after_help = "\
Example: the customer ran `stead-runner fingerprint` and sent the fingerprint by phone or signed mail
  stead installs pin acme sha256:4f0c…
  stead installs pin acme sha256:91aa… --replace    after the customer replaced the keys

`stead installs show` compares the keys with the pinned fingerprint.")]
    Pin(pin::PinArgs),
    /// Create another enrolment token, for example after the first one expired or the runner was
    /// revoked
    #[command(after_help = "\
Example: the runner's host is lost
  stead runners revoke rnr_01JD… --reason 'host was lost'
  stead installs create-enrolment-token acme

A runner with new keys enrolled by mistake before the customer recovered the keys of the lost one, rnr_01JC…:
  stead runners revoke rnr_01JD… --reason 'enrolled by mistake'
  stead installs create-enrolment-token acme --recover-from rnr_01JC…

Never recover the keys of a host that may be in other hands: a thief can use them with this token.")]
    CreateEnrolmentToken {
        /// Name or id of the install
        install: String,
        /// Former runner whose keys the customer recovers with the token, although another runner has
        /// replaced them
        #[arg(long, value_name = "RUNNER")]
        recover_from: Option<RunnerId>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name or id of the app
    app: String,
    /// Name of the install: 1 to 63 lower-case letters, digits, `-` and `_`, with a letter or digit
    /// at both ends
    name: String,
    #[command(flatten)]
    inputs: change::Inputs,
    #[command(flatten)]
    stack: stack::Outputs,
    /// Apply every plan without an approval
    #[arg(long)]
    auto_approve: bool,
    /// Apply the plans of the first provision without an approval; later runs require approval
    #[arg(long, conflicts_with = "auto_approve")]
    auto_approve_first: bool,
    /// Config version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

pub(crate) async fn run(verb: Installs, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Installs::Create(create) => self::create(&context, create).await,
        Installs::List { app, part } => list(&context, app, part).await,
        Installs::Show { install } => {
            let install = context.client.install(&install).await?;
            let shown = output::ShownInstall::new(&install, &Pins::read()?);
            context.screen.print_one(&shown, |screen| output::install_text(&shown, screen))
        }
        Installs::State { install, at } => {
            let (position, time) = at.map_or((None, None), |at| at.parts());
            let when = StateQuery { position, time, min_position: None };
            let state = context.client.install_state(&install, &when).await?;
            context.screen.print_one(&state.state, |_| {
                let text = serde_json::to_string_pretty(&state.state).unwrap_or_default();
                format!("{text}\n")
            })
        }
        Installs::SetInputs(args) => change::set_inputs(&context, args).await,
        Installs::SetStackOutputs(args) => stack::set(&context, args).await,
        Installs::Upgrade(args) => change::upgrade(&context, args).await,
        Installs::Rollback(args) => change::rollback(&context, args).await,
        Installs::Deploy { operation, components } => {
            change::operate(&context, operation, RequestedKind::Deploy, components).await
        }
        Installs::Drift(args) => drift::check(&context, args).await,
        Installs::Reprovision(args) => {
            change::operate(&context, args, RequestedKind::Reprovision, vec![]).await
        }
        Installs::Teardown(args) => {
            change::operate(&context, args, RequestedKind::Teardown, vec![]).await
        }
        Installs::Deprovision(args) => {
            change::operate(&context, args, RequestedKind::Deprovision, vec![]).await
        }
        Installs::Action(args) => change::action(&context, args).await,
        Installs::EnableComponent(args) => change::toggle(&context, args, true).await,
        Installs::DisableComponent(args) => change::toggle(&context, args, false).await,
        Installs::AutoApprove(args) => change::auto_approve(&context, args).await,
        Installs::AcceptState(args) => accept_state::run(&context, args).await,
        Installs::Pin(args) => pin::run(&context, args).await,
        Installs::CreateEnrolmentToken { install, recover_from } => {
            let body = CreateEnrolmentToken { recover_from };
            let issued = context.client.create_enrolment_token(&install, &body).await?;
            context.screen.print_one(&issued, |screen| output::issued(&issued, screen))
        }
    }
}

async fn create(context: &CommandContext, create: Create) -> Result<(), Failure> {
    let Create { app, name, inputs, stack, auto_approve, auto_approve_first, version } = create;
    let (inputs, stack_outputs) = (inputs.read()?, stack.read()?);
    check_sensitive(context, &app, version, &inputs).await?;
    let config_version = version;
    let request = CreateInstall {
        app,
        name,
        inputs,
        auto_approve,
        auto_approve_first,
        config_version,
        stack_outputs,
    };
    let created = context.client.create_install(&request).await?;
    context.screen.print_one(&created, |screen| {
        let mut text = format!(
            "Created install {} ({}) from {} version {}\n",
            created.name, created.id, request.app, created.config_version
        );
        match &created.enrolment {
            Some(enrolment) => text += &output::enrolment(enrolment, screen),
            None => {
                text += &format!("Enrol: stead installs create-enrolment-token {}\n", created.name)
            }
        }
        text
    })
}

/// Rejects values of sensitive inputs before they leave this computer: a new install has no key.
async fn check_sensitive(
    context: &CommandContext,
    app: &str,
    version: Option<u32>,
    inputs: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    if inputs.is_empty() {
        return Ok(());
    }
    let version = match version {
        Some(version) => version,
        None => context.client.app(app).await?.version,
    };
    if version == 0 {
        // The server explains that the app has no version.
        return Ok(());
    }
    let config = context.client.version(app, version).await?.config;
    let sensitive = config["inputs"]["sensitive"].as_array().into_iter().flatten();
    let mut sensitive = sensitive.filter_map(serde_json::Value::as_str);
    match sensitive.find(|name| inputs.contains_key(*name)) {
        Some(name) => Err(Failure::Outcome(format!(
            "cannot encrypt {name}: {}\n  or: create the install without {name}",
            encrypt::no_key("the install")
        ))),
        None => Ok(()),
    }
}

async fn list(
    context: &CommandContext,
    app: Option<String>,
    part: PageArgs,
) -> Result<(), Failure> {
    let PageArgs { limit, cursor } = part;
    let query = InstallsQuery { app, limit: Some(limit), cursor, ..InstallsQuery::default() };
    let page = context.client.installs(&query).await?;
    context.screen.print_list(&page.items, "No installs.", |screen| {
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
    context.more(page.next.as_deref());
    Ok(())
}
