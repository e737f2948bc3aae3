//! Text output of a run: layers of steps, with their states and the reasons why they wait.
use schemas::control::runs::{Plan, Run, RunSummary, Step};
use serde_json::Value;

use super::preflight;
use crate::render::{Screen, Tone, actor_text, moment, tone};

/// Formats a run. Each step is indented one level more than the deepest step that it depends on.
pub(crate) fn run_text(run: &Run, screen: &Screen) -> String {
    let of = &run.run;
    let mut text = format!(
        "{}  {} on {}: {}\n",
        of.id,
        operation(of),
        of.install_name,
        screen.state(&of.state)
    );
    let requester = actor_text(&of.requested_by, of.requested_by_name.as_deref());
    text += &format!("  requested {} by {}", moment(&of.requested_at), requester);
    if let Some(reason) = &of.reason {
        text += &format!(": {reason}");
    }
    text.push('\n');
    if let Some(earlier) = &run.retry_of {
        text += &format!("  retries {earlier}\n");
    }
    if run.awaits_plans {
        text += "  makes all plans that depend on none of its changes before the first change\n";
    }
    if let Some(ended) = &of.ended_at {
        text += &format!("  finished {}\n", moment(ended));
    }
    text.push('\n');
    if let Some(preflight) = &run.preflight {
        text += &preflight::text(preflight, screen);
    }
    let width = run.dag.iter().map(|s| indent(s) + label(s).chars().count()).max().unwrap_or(0);
    for step in &run.dag {
        text += &line(step, width, screen);
        text += &step_details(step, &of.install_name, screen);
    }
    text
}

/// Operation of the run, with the target version or the name of the action.
pub(crate) fn operation(run: &RunSummary) -> String {
    let to = run.config_version.map(|version| format!(" to version {version}")).unwrap_or_default();
    match run.kind.as_str() {
        "upgrade" | "rollback" => format!("{}{to}", run.kind),
        "input_update" => "input update".into(),
        "action" => format!("action {}", run.action.as_deref().unwrap_or_default()),
        other => other.replace('_', " "),
    }
}

pub(crate) fn line(step: &Step, width: usize, screen: &Screen) -> String {
    let label = label(step);
    let pad = width.saturating_sub(indent(step) + label.chars().count());
    let mut text = format!(
        "  {}{} {label}{}  {}",
        " ".repeat(indent(step)),
        screen.paint(tone(&step.state), symbol(&step.state)),
        " ".repeat(pad),
        screen.state(&step.state)
    );
    if let Some(plan) = &step.plan {
        text += &format!("  {}", counts(plan));
    }
    text.push('\n');
    text
}

/// Formats the details of a step, and the next command for it.
pub(crate) fn step_details(step: &Step, install: &str, screen: &Screen) -> String {
    let mut lines = Vec::new();
    let asks = step.state == "waiting_for_approval";
    match &step.waiting {
        Some(_) if asks => {}
        Some(waiting) if step.approval_later => {
            lines.push((Tone::Faint, format!("approval later: {}", waiting.detail)));
        }
        Some(waiting) if waiting.on == "dependency" => {
            lines.push((Tone::Faint, waiting.detail.clone()));
        }
        Some(waiting) => {
            lines
                .push((Tone::Attention, format!("waiting for {}: {}", waiting.on, waiting.detail)));
        }
        None => {}
    }
    if let (Some(plan), true) = (&step.plan, asks) {
        let command = format!("stead runs approve {install} --digest {} --reason …", plan.digest);
        lines.push((Tone::Attention, format!("approve: {command}")));
    }
    if let Some(decision) = &step.decision {
        let by = actor_text(&decision.by, decision.by_name.as_deref());
        let is_person = !decision.by.starts_with("policy:");
        let reason = decision.reason.as_deref().filter(|_| is_person);
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        lines.push((Tone::Faint, format!("{} by {}{reason}", decision.decision, by)));
    }
    if let Some(resolved) = &step.resolution {
        lines.push((Tone::Faint, format!("job resolved {}", crate::jobs::resolution(resolved))));
    }
    // The decision in the lines above already shows that the step was denied.
    if let Some(reason) = step.reason.as_ref().filter(|reason| *reason != "denied") {
        lines.push((tone(&step.state), reason.clone()));
    }
    if let (Some(job), "failed") = (&step.job, step.state.as_str()) {
        lines.push((Tone::Plain, format!("log: stead jobs logs {job}")));
    }
    let margin = " ".repeat(indent(step) + 6);
    lines.iter().map(|(tone, text)| format!("{margin}{}\n", screen.paint(*tone, text))).collect()
}

/// Formats the changes of a plan, by resource if the plugin lists them.
pub(crate) fn plan(name: &str, summary: &Value, screen: &Screen) -> String {
    let mut text = format!("\n{}\n", screen.paint(Tone::Strong, &format!("plan of {name}")));
    let list = |key: &str| summary.get(key).and_then(Value::as_array).cloned();
    let Some(resources) = list("resources").or_else(|| list("changes")) else {
        let pretty = serde_json::to_string_pretty(summary).unwrap_or_else(|_| summary.to_string());
        return format!("{text}{pretty}\n");
    };
    if resources.is_empty() {
        text += "  no changes\n";
    }
    for resource in &resources {
        text += &changed(resource, screen);
    }
    for output in list("outputs").unwrap_or_default() {
        text += &changed_output(&output, screen);
    }
    text
}

/// Formats a change of an output as `output + name`.
pub(crate) fn changed_output(output: &Value, screen: &Screen) -> String {
    changed(output, screen).replacen("  ", "  output ", 1)
}

/// Formats a change as `+ address (attribute, attribute)`.
pub(crate) fn changed(resource: &Value, screen: &Screen) -> String {
    let field = |key: &str| resource.get(key).and_then(Value::as_str);
    let (sign, tone) = match field("action").unwrap_or_default() {
        "create" | "add" => ("+", Tone::Good),
        "delete" | "destroy" => ("-", Tone::Bad),
        "replace" => ("±", Tone::Bad),
        "read" => ("<", Tone::Faint),
        _ => ("~", Tone::Attention),
    };
    let label = ["address", "resource", "path", "name"].into_iter().find_map(field);
    let label = label.map_or_else(|| resource.to_string(), str::to_owned);
    let attributes = resource.get("attributes").and_then(Value::as_array);
    let attributes: Vec<_> = attributes.into_iter().flatten().filter_map(Value::as_str).collect();
    let attributes = match attributes.is_empty() {
        true => String::new(),
        false => format!(" ({})", attributes.join(", ")),
    };
    format!("  {} {label}{attributes}\n", screen.paint(tone, sign))
}

fn indent(step: &Step) -> usize {
    usize::try_from(step.layer).unwrap_or(0).min(20) * 2
}

fn label(step: &Step) -> String {
    if step.kind == step.name { step.name.clone() } else { format!("{} {}", step.kind, step.name) }
}

/// Formats the number of changes of a plan.
pub(crate) fn counts(plan: &Plan) -> String {
    if plan.noop {
        "no changes".into()
    } else {
        format!("+{} ~{} -{}", plan.add, plan.change, plan.destroy)
    }
}

pub(super) fn symbol(state: &str) -> &'static str {
    match tone(state) {
        Tone::Good => "✔",
        Tone::Bad => "✘",
        Tone::Busy => "▸",
        Tone::Attention => "?",
        Tone::Faint => "-",
        Tone::Strong | Tone::Plain => "·",
    }
}

#[cfg(test)]
mod tests;
