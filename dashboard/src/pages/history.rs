//! Difference of two points of the log: of all installs, or of one stream.
use maud::{Markup, html};
use schemas::control::history::{
    FieldChanged, InstallsDiff, Intervention, RunActivity, StreamDiff,
};
use serde_json::Value;

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the page that compares two points.
#[derive(Debug, Clone, Default)]
pub struct HistoryPage {
    /// Start, as the user typed it.
    pub from: Option<String>,
    /// End, as the user typed it.
    pub to: Option<String>,
    /// Stream to compare. None for all installs.
    pub stream: Option<String>,
    /// Differences. None before the user has entered a start.
    pub diff: Option<InstallsDiff>,
}

/// Maximum number of changed fields of a stream that the page shows. The CLI prints all.
const FIELDS: usize = 100;

/// Comparison page.
#[must_use]
pub fn history(caller: &Caller, page: &HistoryPage) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/audit" { "Audit" } }
        (frame::title(caller, &Updates::None, "Compare two times", &html! {}))
        form.inline method="get" action="/ui/audit/diff" {
            label { "From (UTC time or position)" input type="text" name="from" required maxlength="64" value=[page.from.as_deref()] placeholder="tuesday, 7d ago or 1234"; }
            label { "To (empty: now)" input type="text" name="to" maxlength="64" value=[page.to.as_deref()] placeholder="today"; }
            label { "Only this install or stream" input type="search" name="stream" maxlength="200" value=[page.stream.as_deref()] placeholder="install/acme"; }
            button.primary type="submit" { "Compare" }
        }
        @match &page.diff {
            None => section.panel aria-label="Result" {
                (components::empty("Enter a start to list every install that changed since then, with its runs and approvals.", &["stead", "audit", "diff", "--from", "yesterday"]))
            },
            Some(diff) => (result(caller, page, diff)),
        }
    };
    frame::page(caller, Section::Audit, "Compare two times", &content)
}

fn result(caller: &Caller, page: &HistoryPage, diff: &InstallsDiff) -> Markup {
    let at = |at: Option<chrono::DateTime<chrono::Utc>>| {
        at.map(components::exact).unwrap_or_else(|| "the beginning".into())
    };
    html! {
        p.muted {
            "After position " (diff.from.position) " (" (at(diff.from.recorded_at)) "), up to position "
            (diff.to.position) " (" (at(diff.to.recorded_at)) ")."
        }
        @if diff.items.is_empty() {
            section.panel aria-label="Result" { (components::empty("Nothing changed between these points.", &[])) }
        }
        @for item in &diff.items { (stream(caller, item)) }
        @if let Some(cursor) = &diff.next {
            section.panel aria-label="Further installs" {
                form.pages method="get" action="/ui/audit/diff" {
                    input type="hidden" name="from" value=(diff.from.position);
                    input type="hidden" name="to" value=(diff.to.position);
                    @if let Some(stream) = &page.stream { input type="hidden" name="stream" value=(stream); }
                    input type="hidden" name="cursor" value=(cursor);
                    button type="submit" { "Next page" }
                }
            }
        }
    }
}

fn stream(caller: &Caller, diff: &StreamDiff) -> Markup {
    let name = diff.name.as_deref().unwrap_or(&diff.stream);
    let id = diff.stream.replace('/', "-");
    html! {
        section.panel aria-label=(name) {
            header {
                h2 { @match diff.stream.strip_prefix("install/") { Some(install) => a href={ "/ui/installs/" (components::encoded(install)) } { (name) }, None => (name) } }
                span.muted { (components::count(diff.changes.len() as u64 + diff.more_changes, "changed field")) ", " (components::count(diff.runs.len() as u64, "run")) }
                a.more href={ "/ui/audit?stream=" (components::encoded(&diff.stream)) } { "Events" span.visually-hidden { " of " (name) } }
            }
            @for run in &diff.runs { (activity(caller, run)) }
            @if !diff.changes.is_empty() { div.body { (fields(&id, diff)) } }
            @if !diff.other_events.is_empty() {
                div.body {
                    details id={ "events-" (id) } {
                        summary { (components::count(diff.other_events.len() as u64, "event")) " outside of runs" }
                        ul.plain {
                            @for event in &diff.other_events {
                                li {
                                    code { (event.event_type) } " by " (event.actor_name.as_deref().unwrap_or(&event.actor)) " "
                                    (components::time(caller.now, event.recorded_at)) " " span.muted { "position " (event.position) }
                                    @if let Some(reason) = &event.reason { ": " (reason) }
                                }
                            }
                        }
                    }
                }
            }
            @if diff.complete_through < diff.to.position {
                div.body { p.note.wait { "The list reached its limit. It has all events up to position " (diff.complete_through) ": compare from there to continue." } }
            }
        }
    }
}

fn activity(caller: &Caller, run: &RunActivity) -> Markup {
    html! {
        article.step {
            div.line {
                a.name href={ "/ui/runs/" (run.run) } { (components::kind(&run.kind)) }
                (components::badge(run.outcome.as_deref().unwrap_or("in progress")))
                @if let Some(version) = run.config_version { span.muted { "v" (version) } }
                span.muted {
                    "requested by " (components::actor(run.requested_by_name.as_deref().unwrap_or(&run.requested_by)))
                    @if let Some(at) = run.requested_at { " " (components::time(caller.now, at)) }
                }
                a.end href={ "/ui/audit?stream=" (components::encoded(&format!("run/{}", run.run))) } { "Events" span.visually-hidden { " of the run" } }
            }
            @if let Some(reason) = &run.reason { p { span.muted { "Reason: " } (reason) } }
            @for of in &run.interventions { (intervention(caller, of)) }
            @if !run.components.is_empty() {
                ul.plain {
                    @for change in &run.components {
                        li {
                            code { (change.name) } ": "
                            (change.before.as_ref().map_or_else(|| "not deployed".into(), |at| format!("v{}", at.config_version))) " → "
                            (change.after.as_ref().map_or_else(|| "not deployed".into(), |at| format!("v{}", at.config_version)))
                            @if change.incomplete { " " (components::badge("incomplete")) }
                        }
                    }
                }
            }
        }
    }
}

fn intervention(caller: &Caller, of: &Intervention) -> Markup {
    html! {
        p {
            strong { (components::kind(&of.kind)) " by " (of.by_name.as_deref().unwrap_or(&of.by)) }
            @if let Some(step) = &of.step_name { " " code { (step) } }
            " " (components::time(caller.now, of.at)) " " span.muted { "position " (of.position) }
            @if let Some(reason) = &of.reason { ": " (reason) }
        }
    }
}

fn fields(id: &str, diff: &StreamDiff) -> Markup {
    let hidden = diff.changes.len().saturating_sub(FIELDS) as u64 + diff.more_changes;
    html! {
        details id={ "fields-" (id) } open[diff.changes.len() <= 10] {
            summary { "Changed fields" }
            div.diff {
                table {
                    thead { tr { th scope="col" { "Field" } th scope="col" { "Before" } th scope="col" { "After" } } }
                    tbody { @for field in diff.changes.iter().take(FIELDS) { (row(field)) } }
                }
                @if hidden > 0 { p.muted { (components::count(hidden, "more field")) " not shown." } }
            }
        }
    }
}

fn row(field: &FieldChanged) -> Markup {
    let shown = |value: &Option<Value>| match value {
        Some(value) => components::value(value),
        None => "(none)".to_owned(),
    };
    html! { tr { td { (field.path) } td.destroy { (shown(&field.before)) } td.add { (shown(&field.after)) } } }
}
