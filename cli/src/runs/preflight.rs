//! Text output of the preflight of a run.
use schemas::{
    control::runs::Preflight,
    runner::{Check, CheckStatus},
};

use super::output::symbol;
use crate::render::{Screen, Tone, tone};

/// Formats a preflight: its result in one line, and each check that did not pass.
pub(crate) fn text(preflight: &Preflight, screen: &Screen) -> String {
    let state = preflight.state.as_str();
    let mut text = format!(
        "  {} preflight  {}{}\n",
        screen.paint(tone(state), symbol(state)),
        screen.state(state),
        counts(&preflight.checks)
    );
    let mut lines = Vec::new();
    if let Some(waiting) = &preflight.waiting {
        let wait = format!("waiting for {}: {}", waiting.on, waiting.detail);
        lines.push((Tone::Attention, wait));
    }
    if let Some(reason) = &preflight.reason {
        lines.push((tone(state), reason.clone()));
    }
    for check in &preflight.checks {
        match check.status {
            CheckStatus::Failed => lines.push((Tone::Bad, format!("failed: {}", check.text()))),
            CheckStatus::Deferred => {
                lines.push((Tone::Faint, format!("deferred check: {}", check.text())));
            }
            CheckStatus::Ok => {}
        }
    }
    if let (Some(job), "failed") = (&preflight.job, state) {
        lines.push((Tone::Plain, format!("log: stead jobs logs {job}")));
    }
    for (tone, line) in lines {
        text += &format!("      {}\n", screen.paint(tone, &line));
    }
    text
}

fn counts(checks: &[Check]) -> String {
    let count = |status: CheckStatus| checks.iter().filter(|one| one.status == status).count();
    let shown = [
        (checks.len(), "checks"),
        (count(CheckStatus::Failed), "failed"),
        (count(CheckStatus::Deferred), "later"),
    ];
    let shown = shown.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown.map(|(count, what)| format!("{count} {what}")).collect();
    if shown.is_empty() { String::new() } else { format!("  {}", shown.join(", ")) }
}
