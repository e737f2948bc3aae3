//! `stead audit diff`: the changes between two points, with requests, approvals and jobs.
use chrono::{DateTime, Utc};
use clap::Args;
use schemas::control::history::{
    ComponentChange, DeployedVersion, EventSummary, FieldChanged, InstallsDiffQuery, Intervention,
    JobActivity, RunActivity, StreamDiff, StreamDiffQuery,
};
use serde_json::Value;

use crate::{
    failure::Failure,
    point_in_time::PointInTime,
    render::{Screen, Table, Tone, actor_text, count, moment},
    settings::CommandContext,
};

/// Maximum number of printed characters of a value. JSON output contains the complete value.
const MAX_VALUE_CHARS: usize = 60;

/// Page of the changed installs.
#[derive(Debug, Args)]
pub(crate) struct InstallPageArgs {
    /// Maximum number of installs (1 to 50) [default: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
    limit: Option<u32>,
    /// Cursor that the previous page printed
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(
    context: &CommandContext,
    stream: Option<String>,
    (from, to): (PointInTime, Option<PointInTime>),
    page: InstallPageArgs,
) -> Result<(), Failure> {
    let (from_position, from_time) = from.parts();
    let (to_position, to_time) = to.map_or((None, None), PointInTime::parts);
    let min_position = None;
    let InstallPageArgs { limit, cursor } = page;
    let Some(stream) = stream else {
        let query = InstallsDiffQuery {
            from_position,
            from_time,
            to_position,
            to_time,
            limit,
            cursor,
            min_position,
        };
        return installs_diff(context, &query).await;
    };
    if limit.is_some() || cursor.is_some() {
        let message = "cannot use --limit or --cursor: the diff of one aggregate has no pages; omit these options, or select no aggregate";
        return Err(Failure::Usage(message.into()));
    }
    let query =
        StreamDiffQuery { stream, from_position, from_time, to_position, to_time, min_position };
    let between = context.client.between(&query).await?;
    context.screen.print_one(&between, |screen| text(&between, screen))?;
    print_continuation(context, &between);
    Ok(())
}

/// Prints a page of the changed installs.
async fn installs_diff(context: &CommandContext, query: &InstallsDiffQuery) -> Result<(), Failure> {
    let page = context.client.installs_between(query).await?;
    context.screen.print_one(&page, |screen| match page.items.is_empty() {
        true => "No changes.\n".into(),
        false => {
            page.items.iter().map(|install| text(install, screen)).collect::<Vec<_>>().join("\n")
        }
    })?;
    page.items.iter().for_each(|between| print_continuation(context, between));
    if let Some(cursor) = &page.next {
        // Prints positions, because a relative time would select other positions for the next page.
        context.screen.remark(&format!(
            "Next page: --from {} --to {} --cursor {cursor}",
            page.from.position, page.to.position
        ));
    }
    Ok(())
}

/// Prints a remark if the history is incomplete, with the option that continues it.
fn print_continuation(context: &CommandContext, between: &StreamDiff) {
    let until = between.complete_through;
    if until <= between.from.position && until < between.to.position {
        context
            .screen
            .remark("The history is too long for one response. Select a shorter range with --to.");
    } else if until < between.to.position {
        context.screen.remark(&format!(
            "The history of {} after position {until} is too long for one response. Continue with --from {until}.",
            between.stream
        ));
    }
}

pub(crate) fn text(between: &StreamDiff, screen: &Screen) -> String {
    let named = between.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let mut text = format!(
        "{}{named}: {} to {}\n",
        between.stream,
        point(between.from.position, between.from.recorded_at),
        point(between.to.position, between.to.recorded_at)
    );
    text += &format!("\n{}\n", screen.paint(Tone::Strong, "Changes"));
    text += &changes(between, screen);
    for run in &between.runs {
        text += &run_text(run, &jobs(run, screen), screen);
    }
    if !between.other_events.is_empty() {
        let heading = if between.runs.is_empty() { "Events" } else { "Events outside of runs" };
        text += &format!("\n{}\n", screen.paint(Tone::Strong, heading));
        text += &indented(&events(&between.other_events), screen);
    }
    text
}

fn point(position: u64, at: Option<DateTime<Utc>>) -> String {
    let at = at.map(|at| format!(" ({})", moment(&at))).unwrap_or_default();
    format!("position {position}{at}")
}

fn changes(between: &StreamDiff, screen: &Screen) -> String {
    if between.changes.is_empty() {
        return "  none\n".into();
    }
    let mut table = Table::new(["FIELD", "BEFORE", "AFTER"]);
    for FieldChanged { path, before, after } in &between.changes {
        table.row([path.clone(), value(before.as_ref()), value(after.as_ref())]);
    }
    let mut text = indented(&table, screen);
    if between.more_changes > 0 {
        text += &format!("  and {} more fields\n", between.more_changes);
    }
    text
}

fn value(value: Option<&Value>) -> String {
    let text = match value {
        None => return String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    if text.chars().count() <= MAX_VALUE_CHARS {
        return text;
    }
    text.chars().take(MAX_VALUE_CHARS - 1).chain(['…']).collect()
}

/// Formats a run, with `jobs` as the table of its jobs.
pub(crate) fn run_text(run: &RunActivity, jobs: &Table, screen: &Screen) -> String {
    let to = run.config_version.map(|version| format!(" to version {version}"));
    let to = to.filter(|_| matches!(run.kind.as_str(), "upgrade" | "rollback")).unwrap_or_default();
    let label = format!("{}{to}", run.kind.replace('_', " "));
    let outcome = run.outcome.as_deref().unwrap_or("running");
    let heading = screen.paint(Tone::Strong, &format!("{label}  {}", run.run));
    let mut text = format!("\n{heading}  {}\n", screen.state(outcome));
    let by = actor_text(&run.requested_by, run.requested_by_name.as_deref());
    let at = run.requested_at.as_ref().map(|at| format!(" {}", moment(at))).unwrap_or_default();
    text += &format!("  requested{at} by {by}{}\n", because(run.reason.as_deref()));
    for intervention in &run.interventions {
        text += &intervention_text(intervention);
    }
    if let Some(ended) = &run.ended_at {
        text += &format!("  {} {}\n", outcome.replace('_', " "), moment(ended));
    }
    if !run.jobs.is_empty() {
        text += &indented(jobs, screen);
    }
    if !run.components.is_empty() {
        let mut table = Table::new(["COMPONENT", "BEFORE", "AFTER"]);
        for component in &run.components {
            table.row(component_row(component));
        }
        text += &indented(&table, screen);
    }
    text += &span(run);
    text
}

fn intervention_text(intervention: &Intervention) -> String {
    let of = intervention.step_name.as_ref().map(|of| format!(" {of}")).unwrap_or_default();
    let by = actor_text(&intervention.by, intervention.by_name.as_deref());
    let mut text = format!(
        "  {}{of} {} by {by}",
        intervention.kind.replace('_', " "),
        moment(&intervention.at)
    );
    text += &because(intervention.reason.as_deref());
    text.push('\n');
    if let Some(digest) = &intervention.digest {
        text += &format!("    plan {digest}\n");
    }
    text
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn jobs(run: &RunActivity, screen: &Screen) -> Table {
    let mut table = Table::new(["JOB", "STEP", "OUTCOME", "ATTEMPTS", "ENDED", "ID"]);
    for job in &run.jobs {
        table.row(job_row(job, screen));
    }
    table
}

/// Formats the outcome of a job, with the reason for a failure. Empty until the job ends.
pub(crate) fn outcome(job: &JobActivity, screen: &Screen) -> String {
    match (&job.outcome, &job.detail) {
        (Some(outcome), Some(detail)) => format!("{}: {detail}", screen.state(outcome)),
        (Some(outcome), None) => screen.state(outcome),
        (None, _) => String::new(),
    }
}

fn job_row(job: &JobActivity, screen: &Screen) -> [String; 6] {
    let outcome = outcome(job, screen);
    let ended = job.ended_at.as_ref().map(moment).unwrap_or_default();
    let of = job.name.clone().unwrap_or_default();
    [job.kind.clone(), of, outcome, job.attempts.to_string(), ended, job.job.to_string()]
}

fn component_row(component: &ComponentChange) -> [String; 3] {
    let version = |version: &Option<DeployedVersion>| {
        let deployment = version.as_ref();
        deployment.map(|one| format!("version {} ({})", one.config_version, one.build))
    };
    let mut after = version(&component.after).unwrap_or_else(|| "removed".into());
    if component.incomplete {
        after += ", incomplete";
    }
    [component.name.clone(), version(&component.before).unwrap_or_default(), after]
}

/// Formats the number and the positions of a run's events.
fn span(run: &RunActivity) -> String {
    let (Some(first), Some(last)) = (run.events.first(), run.events.last()) else {
        return String::new();
    };
    let events = count(run.events.len() as u64, "event");
    match first.position == last.position {
        true => format!("  {events}, position {}\n", first.position),
        false => format!("  {events}, positions {} to {}\n", first.position, last.position),
    }
}

pub(crate) fn events(events: &[EventSummary]) -> Table {
    let mut table = Table::new(["POSITION", "RECORDED", "EVENT", "BY", "REASON"]);
    for event in events {
        table.row([
            event.position.to_string(),
            moment(&event.recorded_at),
            event.event_type.clone(),
            actor_text(&event.actor, event.actor_name.as_deref()),
            event.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// Formats a table, indented as part of a longer text.
pub(crate) fn indented(table: &Table, screen: &Screen) -> String {
    table.text(screen).lines().map(|line| format!("  {line}\n")).collect()
}
