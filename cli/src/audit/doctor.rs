//! `stead audit doctor`: the server looks at everything that it stores, with today's code.
use cli::client::{harmless, server_events};
use futures::{StreamExt, pin_mut};
use schemas::control::audit::Examined;
use serde_json::to_value;

use super::tell;
use crate::{failure::Failure, settings::Desk};

pub(crate) async fn run(desk: &Desk) -> Result<(), Failure> {
    let events = server_events(desk.client.examine().await?);
    pin_mut!(events);
    let bar = desk.screen.bar(0, "");
    let (mut text, mut last) = (String::new(), None);
    while let Some(event) = events.next().await {
        let examined: Examined = serde_json::from_str(&event?.data)?;
        match examined.state.as_str() {
            "looking" => {
                bar.set_prefix(harmless(&examined.part));
                bar.set_length(examined.total);
                bar.set_position(examined.events);
            }
            "looked" => text += &said(&examined),
            _ => last = Some(examined),
        }
    }
    bar.finish_and_clear();
    let stopped = || Failure::Unreachable("the server stopped while it looked; try again".into());
    let last = last.ok_or_else(stopped)?;
    if let Some(detail) = &last.detail {
        return Err(Failure::Outcome(format!("the examination ended early: {}", harmless(detail))));
    }
    tell(&desk.screen, &to_value(&last)?, &text)?;
    match last.findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Outcome("one thing is not as it should be".into())),
        many => Err(Failure::Outcome(format!("{many} things are not as they should be"))),
    }
}

fn said(examined: &Examined) -> String {
    let mut text = match examined.findings.len() {
        0 => format!("{}: well\n", examined.part),
        found => format!("{}: {found} found\n", examined.part),
    };
    for line in examined.findings.iter().chain(&examined.detail) {
        text += &format!("  {}\n", harmless(line));
    }
    text
}
