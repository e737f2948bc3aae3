//! Text output of an install.
use schemas::control::installs::{Enrolment, EnrolmentIssued, Install, InstallComponent};
use serde::Serialize;
use serde_json::Value;

use crate::{
    apps::ignored_settings_text,
    pins::{PinStatus, Pins, fingerprint},
    render::{Screen, Table, Tone, moment},
};

/// Install with the comparison of its keys and the pinned ones.
#[derive(Serialize)]
pub(crate) struct ShownInstall<'a> {
    #[serde(flatten)]
    install: &'a Install,
    /// Fingerprint of the install's keys. Absent without valid keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_fingerprint: Option<String>,
    /// `pinned`, `not_pinned` or `differs`.
    key_pin: &'static str,
    #[serde(skip)]
    status: PinStatus,
}

impl<'a> ShownInstall<'a> {
    pub(crate) fn new(install: &'a Install, pins: &Pins) -> Self {
        let status = pins.status(install);
        let key_pin = match status {
            PinStatus::Pinned => "pinned",
            PinStatus::NotPinned => "not_pinned",
            PinStatus::Differs { .. } => "differs",
        };
        let key_fingerprint = fingerprint(install).map(|fingerprint| fingerprint.to_string());
        ShownInstall { install, key_fingerprint, key_pin, status }
    }

    /// Fingerprint of the keys, and whether it is pinned. Empty before the runner reported keys.
    fn keys(&self) -> String {
        let shown = self.key_fingerprint.as_deref();
        match (&self.status, shown) {
            (PinStatus::Pinned, shown) => format!("{} (pinned)", shown.unwrap_or_default()),
            (PinStatus::NotPinned, None) => String::new(),
            (PinStatus::NotPinned, Some(shown)) => format!(
                "{shown} (not pinned; get the fingerprint from the customer: stead installs pin {} FINGERPRINT)",
                self.install.name
            ),
            (PinStatus::Differs { pinned }, shown) => format!(
                "{} (DIFFERS from the pinned {pinned}: the customer replaced the keys, or the server returned others)",
                shown.unwrap_or("none")
            ),
        }
    }
}

/// Formats an install with its components and inputs.
pub(crate) fn install_text(shown: &ShownInstall<'_>, screen: &Screen) -> String {
    let install = shown.install;
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
    line("keys", &shown.keys());
    line("approval", if install.auto_approve { "automatic" } else { "required for each plan" });
    for run in &install.runs {
        line("run", &format!("{run} (stead runs show {run})"));
    }
    line("stack", &pairs(&install.stack_outputs));
    line("inputs", &pairs(&install.inputs));
    for input in &install.waits_for {
        let (name, input) = (&install.name, screen.paint(Tone::Strong, input));
        line(
            "waits for",
            &format!("{input} (stead installs set-inputs {name} --secret {input}=FILE)"),
        );
    }
    let parts: Vec<_> = install.sandbox.iter().chain(&install.components).collect();
    if !parts.is_empty() {
        text.push('\n');
        text += &components(&parts, screen);
    }
    if !install.ignored_settings.is_empty() {
        text += "\n";
        text += &ignored_settings_text(&install.ignored_settings);
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
