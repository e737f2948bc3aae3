//! Text output of an install.
use schemas::control::installs::{Enrolment, EnrolmentIssued, Install, InstallComponent};
use serde_json::Value;

use crate::{
    apps::settings_without_effect,
    render::{Screen, Table, Tone, moment},
};

/// Formats an install with its components and inputs.
pub(crate) fn install_text(install: &Install, screen: &Screen) -> String {
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
                "none yet; create an enrolment token: stead installs create-enrolment-token {}",
                install.name
            ),
        ),
    }
    line("approval", if install.auto_approve { "automatic" } else { "required for each plan" });
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
    if !install.settings_without_effect.is_empty() {
        text += "\n";
        text += &settings_without_effect(&install.settings_without_effect);
    }
    text
}

/// State and last contact of the runner.
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
            state += &format!(" (reserved by {run})");
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

/// Formats a new enrolment token, if the response contains it.
pub(crate) fn issued(issued: &EnrolmentIssued, screen: &Screen) -> String {
    match &issued.enrolment {
        Some(enrolment) => self::enrolment(enrolment, screen),
        None => {
            "An earlier request of this command created the token, which is not shown again. Create \
         another token.\n"
                .into()
        }
    }
}

/// Formats the command and the token for the customer, with the end of their validity.
pub(crate) fn enrolment(enrolment: &Enrolment, screen: &Screen) -> String {
    format!(
        "\nThe customer runs this command once, before {}:\n\n  {}\n\n\
         and pastes this token at its prompt:\n\n  {}\n\n\
         The token is valid for one runner and is not shown again. For a service, store it in a file of the \
         runner's user and add --token-file FILE.\n\
         To revoke it: stead runners revoke-enrolment-token {}\n",
        moment(&enrolment.expires_at),
        screen.paint(Tone::Strong, &enrolment.command),
        screen.paint(Tone::Strong, &enrolment.token),
        enrolment.id,
    )
}

/// Formats values as `a=1 b=x`, with strings unquoted.
fn pairs<'v>(values: impl IntoIterator<Item = (&'v String, &'v Value)>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = values.into_iter().map(|(name, value)| format!("{name}={}", text(value)));
    pairs.collect::<Vec<_>>().join(" ")
}
