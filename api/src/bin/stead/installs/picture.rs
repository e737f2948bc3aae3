//! An install as a person sees it.
use schemas::control::installs::{Enrolment, EnrolmentIssued, Install, InstallComponent};
use serde_json::Value;

use crate::{
    apps::not_acted_on,
    render::{Screen, Table, Tone, moment},
};

/// The install, its components, its inputs.
pub fn of(install: &Install, screen: &Screen) -> String {
    let mut text = format!(
        "{}  {} of {}, version {}: {}\n",
        install.id,
        install.name,
        install.app_name,
        install.config_version,
        screen.state(&install.state)
    );
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("  {name:<9}  {value}\n");
        }
    };
    line("created", &moment(&install.created_at));
    match install.runner {
        Some(runner) => line("runner", &format!("{runner}{}", contact(install, screen))),
        None => line(
            "runner",
            &format!(
                "none yet: stead installs create-enrolment-token {} prints how to start it",
                install.name
            ),
        ),
    }
    line("approval", if install.auto_approve { "automatic" } else { "by a person" });
    for run in &install.runs {
        line("run", &format!("{run} (stead runs show {run})"));
    }
    line("stack", &pairs(&install.stack_outputs));
    line("inputs", &pairs(&install.inputs));
    let parts: Vec<_> = install.sandbox.iter().chain(&install.components).collect();
    if !parts.is_empty() {
        text.push('\n');
        text += &components(&parts, screen);
    }
    if !install.not_acted_on.is_empty() {
        text += "\n";
        text += &not_acted_on(&install.not_acted_on);
    }
    text
}

/// State of the runner, and when it called last.
fn contact(install: &Install, screen: &Screen) -> String {
    let state = install.runner_state.iter().map(|state| screen.state(state));
    let last = install.runner_last_contact.iter().map(|at| format!("last contact {}", moment(at)));
    let known: Vec<String> = state.chain(last).collect();
    if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
}

fn components(parts: &[&InstallComponent], screen: &Screen) -> String {
    let mut table = Table::new(["COMPONENT", "TYPE", "STATE", "VERSION", "OUTPUTS"]);
    for part in parts {
        let mut state = screen.state(&part.state);
        if part.disabled {
            state += " (disabled)";
        }
        if let Some(run) = &part.reserved_by {
            state += &format!(" (held by {run})");
        }
        table.row([
            part.name.clone(),
            part.kind.clone(),
            state,
            part.config_version.map(|v| v.to_string()).unwrap_or_default(),
            pairs(&part.outputs),
        ]);
    }
    table.text(screen)
}

/// A new enrolment token, where the answer still has it.
pub fn issued(issued: &EnrolmentIssued, screen: &Screen) -> String {
    match &issued.enrolment {
        Some(enrolment) => self::enrolment(enrolment, screen),
        None => {
            "The token was made by an earlier call of this command, and is not shown again: make \
                 another.\n"
                .into()
        }
    }
}

/// What the customer runs, and until when it works.
pub fn enrolment(enrolment: &Enrolment, screen: &Screen) -> String {
    format!(
        "\nThe customer runs this once, before {}:\n\n  {}\n\n\
         and, when it asks, pastes this token:\n\n  {}\n\n\
         The token works for one runner and is shown only now. For a service keep it in a file of the \
         runner's user and name that: --token-file FILE.\n\
         To revoke it: stead runners revoke-enrolment-token {}\n",
        moment(&enrolment.expires_at),
        screen.paint(Tone::Strong, &enrolment.command),
        screen.paint(Tone::Strong, &enrolment.token),
        enrolment.id,
    )
}

/// `a=1 b=x`, texts without quotes.
fn pairs<'v>(values: impl IntoIterator<Item = (&'v String, &'v Value)>) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = values.into_iter().map(|(name, value)| format!("{name}={}", shown(value)));
    pairs.collect::<Vec<_>>().join(" ")
}
