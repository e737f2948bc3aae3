//! `stead audit doctor`: the server checks all stored events and projection rows.
use crate::client::{sanitize, server_events};
use futures::{StreamExt, pin_mut};
use schemas::control::audit::DoctorProgress;
use serde_json::to_value;

use super::print_result;
use crate::{failure::Failure, render::count, settings::CommandContext};

pub(crate) async fn run(context: &CommandContext) -> Result<(), Failure> {
    let events = server_events(context.client.examine().await?);
    pin_mut!(events);
    let bar = context.screen.bar(0, "");
    let (mut text, mut last) = (String::new(), None);
    while let Some(event) = events.next().await {
        let examined: DoctorProgress = serde_json::from_str(&event?.data)?;
        match examined.state.as_str() {
            "running" => {
                bar.set_prefix(sanitize(&examined.check));
                bar.set_length(examined.total);
                bar.set_position(examined.events);
            }
            "checked" => text += &check_text(&examined),
            _ => last = Some(examined),
        }
    }
    bar.finish_and_clear();
    let stopped = || {
        Failure::Unreachable("the check did not finish: the connection to the server was closed; run the command again".into())
    };
    let last = last.ok_or_else(stopped)?;
    if let Some(detail) = &last.detail {
        return Err(Failure::Outcome(format!("the check did not finish: {}", sanitize(detail))));
    }
    print_result(&context.screen, &to_value(&last)?, &text)?;
    match last.findings.len() {
        0 => Ok(()),
        findings => Err(Failure::Outcome(format!(
            "the check found errors: {}",
            count(findings as u64, "finding")
        ))),
    }
}

fn check_text(examined: &DoctorProgress) -> String {
    let mut text = match examined.findings.len() {
        0 => format!("{}: ok\n", examined.check),
        findings => format!("{}: {}\n", examined.check, count(findings as u64, "finding")),
    };
    for line in examined.findings.iter().chain(&examined.detail) {
        text += &format!("  {}\n", sanitize(line));
    }
    text
}
