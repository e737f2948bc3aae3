//! A run as a person sees it: layers of steps, each with its state and what it waits for.
use schemas::control::runs::{Plan, Run, Step};
use serde_json::Value;

use crate::render::{Screen, Tone, moment, tone};

/// The whole run. A step stands one level right of the deepest step that it waits for.
pub fn of(run: &Run, screen: &Screen) -> String {
    let of = &run.run;
    let mut text = format!(
        "{}  {} of {}: {}\n",
        of.id,
        of.kind.replace('_', " "),
        of.install_name,
        screen.state(&of.state)
    );
    text += &format!("  requested {} by {}", moment(&of.requested_at), of.requested_by);
    if let Some(reason) = &of.reason {
        text += &format!(": {reason}");
    }
    text.push('\n');
    if let Some(earlier) = &run.retry_of {
        text += &format!("  retries {earlier}\n");
    }
    if let Some(ended) = &of.ended_at {
        text += &format!("  finished {}\n", moment(ended));
    }
    text.push('\n');
    let width = run.dag.iter().map(|s| indent(s) + label(s).chars().count()).max().unwrap_or(0);
    for step in &run.dag {
        text += &line(step, width, screen);
    }
    text
}

/// One step on one line, and under it what somebody should know.
pub fn line(step: &Step, width: usize, screen: &Screen) -> String {
    let label = label(step);
    let pad = width.saturating_sub(indent(step) + label.chars().count());
    let mut text = format!(
        "  {}{} {label}{}  {}",
        " ".repeat(indent(step)),
        screen.paint(tone(&step.state), mark(&step.state)),
        " ".repeat(pad),
        screen.state(&step.state)
    );
    if let Some(plan) = &step.plan {
        text += &format!("  {}", counts(plan));
    }
    text.push('\n');
    let below = " ".repeat(indent(step) + 6);
    if let Some(waiting) = &step.waiting {
        let said = format!("waiting for {}: {}", waiting.on, waiting.detail);
        text += &format!("{below}{}\n", screen.paint(Tone::Ask, &said));
    }
    if let (Some(plan), "waiting_for_approval") = (&step.plan, step.state.as_str()) {
        text += &format!("{below}plan {}\n", plan.digest);
    }
    if let Some(decision) = &step.decision {
        let reason = decision.reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default();
        let said = format!("{} by {}{reason}", decision.verdict, decision.by);
        text += &format!("{below}{}\n", screen.paint(Tone::Faint, &said));
    }
    if let Some(reason) = &step.reason {
        text += &format!("{below}{}\n", screen.paint(tone(&step.state), reason));
        if let (Some(job), "failed") = (&step.job, step.state.as_str()) {
            text += &format!("{below}log: stead jobs logs {job}\n");
        }
    }
    text
}

/// What a plan would change, line by line where the plugin says so.
pub fn plan(name: &str, summary: &Value, screen: &Screen) -> String {
    let mut text = format!("\n{}\n", screen.paint(Tone::Strong, &format!("plan of {name}")));
    let changes = summary.get("changes").and_then(Value::as_array);
    for change in changes.into_iter().flatten() {
        let word =
            |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (sign, tone) = match word("action").as_str() {
            "create" | "add" => ("+", Tone::Good),
            "delete" | "destroy" => ("-", Tone::Bad),
            "replace" => ("±", Tone::Bad),
            "read" => ("<", Tone::Faint),
            _ => ("~", Tone::Ask),
        };
        let what = [word("address"), word("resource"), word("path"), word("name")];
        let what = what.into_iter().find(|w| !w.is_empty()).unwrap_or_else(|| change.to_string());
        text += &format!("  {} {what}\n", screen.paint(tone, sign));
    }
    if changes.is_none() {
        let pretty = serde_json::to_string_pretty(summary).unwrap_or_else(|_| summary.to_string());
        text += &format!("{pretty}\n");
    }
    text
}

fn indent(step: &Step) -> usize {
    usize::try_from(step.layer).unwrap_or(0).min(20) * 2
}

fn label(step: &Step) -> String {
    if step.kind == step.name { step.name.clone() } else { format!("{} {}", step.kind, step.name) }
}

fn counts(plan: &Plan) -> String {
    if plan.noop {
        "no changes".into()
    } else {
        format!("+{} ~{} -{}", plan.add, plan.change, plan.destroy)
    }
}

fn mark(state: &str) -> &'static str {
    match tone(state) {
        Tone::Good => "✔",
        Tone::Bad => "✘",
        Tone::Busy => "▸",
        Tone::Ask => "?",
        Tone::Faint => "-",
        Tone::Strong | Tone::Plain => "·",
    }
}

#[cfg(test)]
mod tests;
