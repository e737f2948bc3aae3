//! Runs, apps and jobs as of an earlier position, and the parts that all pages about the past share.
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use schemas::control::audit::{AsOf, EventRecord};
use serde_json::{Map, Value};

use super::audit;
use crate::{
    components::{self, Node},
    frame::{self, Caller, Section, Updates},
};

/// Kind of an aggregate that has a page as of an earlier position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Run,
    App,
    Job,
}

/// Content of a page that shows an aggregate as of an earlier position.
#[derive(Debug, Clone)]
pub struct EarlierPage {
    /// Kind of the aggregate.
    pub subject: Subject,
    /// Heading of the page about the present.
    pub heading: String,
    /// URL of the page about the present.
    pub present: String,
    /// Earlier state.
    pub earlier: AsOf,
    /// First events of the stream up to the position.
    pub events: Vec<EventRecord>,
    /// True if the stream has more events up to the position.
    pub has_more_events: bool,
}

/// Earlier state of a run, an app or a job: the fold of its stream. The page changes nothing.
#[must_use]
pub fn earlier(caller: &Caller, page: &EarlierPage) -> Markup {
    let EarlierPage { subject, earlier, .. } = page;
    let heading = format!("{} at position {}", page.heading, earlier.position);
    let section = match subject {
        Subject::Run | Subject::Job => Section::Runs,
        Subject::App => Section::Apps,
    };
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            @match subject {
                Subject::Run | Subject::Job => a href="/ui/runs" { "Runs" },
                Subject::App => a href="/ui/apps" { "Apps" },
            }
            span { "/" } a href=(page.present) { (page.heading) }
        }
        (frame::title(caller, &Updates::None, &page.heading, &html! {}))
        (banner(earlier.position, earlier.recorded_at, &page.present))
        @match subject {
            Subject::Run => (run(&earlier.state, earlier.position)),
            Subject::App => (app(&earlier.state)),
            Subject::Job => (job(&earlier.state)),
        }
        section.panel aria-label="Events" {
            header {
                h2 { "Events up to this position" }
                a.more href={ "/ui/audit?stream=" (components::encoded(&earlier.stream)) } { "All events" span.visually-hidden { " of the stream" } }
            }
            (audit::table(&page.events))
            @if page.has_more_events { div.body { p.muted { "Only the first " (page.events.len()) " events are listed." } } }
        }
        section.panel aria-label="Whole state" {
            header { h2 { "Whole state" } span.muted { "after event " (earlier.sequence) " of the stream" } }
            div.body {
                details id="state" { summary { "Show as JSON" } pre.json tabindex="0" { (pretty(&earlier.state)) } }
                (form(&format!("{}/as-of", page.present), Some(earlier.position)))
            }
        }
    };
    frame::page(caller, section, &heading, &content)
}

/// Note that the page shows the past, with the link to the present.
pub(super) fn banner(position: u64, recorded_at: Option<DateTime<Utc>>, present: &str) -> Markup {
    html! {
        section.note.wait aria-label="Earlier state" {
            p {
                strong { "Earlier state." } " This page shows the state as of position " (position)
                @if let Some(at) = recorded_at { ", " (components::exact(at)) } "."
            }
            p { a href=(present) { "Show the current state" } }
        }
    }
}

/// Panel with the form that shows this page as of another point, for callers who may read the past.
pub(super) fn panel(action: &str) -> Markup {
    html! {
        section.panel aria-label="Earlier state" {
            header { h2 { "Earlier state" } }
            div.body { (form(action, None)) }
        }
    }
}

/// Form that shows a page as of another point.
pub(super) fn form(action: &str, position: Option<u64>) -> Markup {
    html! {
        form.inline method="get" action=(action) {
            label {
                "Time (UTC) or log position"
                input type="text" name="as_of" required maxlength="64" value=[position] placeholder="yesterday, 7d ago, 2026-01-31 or 1234";
            }
            button type="submit" { "Show" }
        }
    }
}

fn pretty(state: &Value) -> String {
    serde_json::to_string_pretty(state).unwrap_or_default()
}

/// Text at a member of the state, or an empty one.
fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value[member].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn fact(name: &str, value: &str) -> Markup {
    html! { @if !value.is_empty() { div { dt { (name) } dd { (value) } } } }
}

/// State of a step, in the words of the run page.
fn step_state(step: &Value) -> &str {
    match step["state"]["state"].as_str() {
        Some("awaiting_approval") => "waiting_for_approval",
        Some(other) => other,
        None => "waiting",
    }
}

fn step_name(step: &Value) -> &str {
    let target = &step["spec"]["target"];
    target["name"].as_str().unwrap_or_else(|| target["type"].as_str().unwrap_or_default())
}

fn run(state: &Value, position: u64) -> Markup {
    let request = &state["request"];
    let steps = list(state, "steps");
    let outcome = state["outcome"].as_str().unwrap_or("in progress");
    html! {
        section.panel aria-label="Details" {
            div.body {
                p { (components::badge(outcome)) }
                dl.facts {
                    (fact("Operation", &components::kind(text(request, "kind"))))
                    (fact("Requested by", text(request, "by")))
                    @if let Some(version) = request["config_version"].as_u64() { (fact("Config version", &format!("v{version}"))) }
                    (fact("Cancelled by", text(&state["cancel"], "by")))
                }
                @for reason in [text(request, "reason"), text(&state["cancel"], "reason")] {
                    @if !reason.is_empty() { p { span.muted { "Reason: " } (reason) } }
                }
            }
        }
        @if steps.len() > 1 {
            section.panel aria-label="Graph" {
                header { h2 { "Graph" } }
                (components::graph("Graph of the steps; the table of steps below has the same content", &nodes(steps)))
            }
        }
        section.panel aria-label="Steps" {
            header { h2 { "Steps" } }
            @if steps.is_empty() { (components::empty("The run was not planned yet.", &[])) }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Steps" {
                    table {
                        thead { tr { th scope="col" { "Step" } th scope="col" { "Operation" } th scope="col" { "State" } th scope="col" { "Plan" } th scope="col" { "Jobs" } } }
                        tbody { @for step in steps { (step_row(step, position)) } }
                    }
                }
            }
        }
    }
}

fn step_row(step: &Value, position: u64) -> Markup {
    let state = &step["state"];
    let plan = &state["plan"];
    let number = |member: &str| plan[member].as_u64().unwrap_or_default();
    html! {
        tr id=(text(&step["spec"], "step")) {
            td.name { (step_name(step)) }
            td.fit { (text(&step["spec"], "operation")) }
            td {
                (components::badge(step_state(step)))
                @if !text(state, "detail").is_empty() { div.muted.reason { (text(state, "detail")) } }
            }
            td.fit { @if plan.is_object() { (components::changes(number("add"), number("change"), number("destroy"))) } }
            td {
                @for job in list(step, "jobs").iter().filter_map(Value::as_str) {
                    a href={ "/ui/jobs/" (components::encoded(job)) "/as-of?as_of=" (position) } { (components::id(job)) } " "
                }
            }
        }
    }
}

/// Nodes of the graph. A step follows its dependencies, so their layers are known.
fn nodes(steps: &[Value]) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::with_capacity(steps.len());
    for step in steps {
        let spec = &step["spec"];
        let depends_on: Vec<String> = list(spec, "depends_on")
            .iter()
            .filter_map(|on| on.as_str().map(str::to_owned))
            .collect();
        let before = nodes.iter().filter(|node| depends_on.contains(&node.key));
        let layer = before.map(|node| node.layer + 1).max().unwrap_or(0);
        let state = step_state(step);
        nodes.push(Node {
            key: text(spec, "step").to_owned(),
            name: step_name(step),
            subtitle: format!("{} · {}", text(spec, "operation"), components::kind(state)),
            tone: components::tone(state),
            layer,
            depends_on,
            href: format!("#{}", text(spec, "step")),
        });
    }
    nodes
}

fn app(state: &Value) -> Markup {
    let none = Map::new();
    let versions = state["versions"].as_object().unwrap_or(&none);
    let mut versions: Vec<(u64, &Value)> = versions
        .iter()
        .filter_map(|(number, version)| Some((number.parse().ok()?, version)))
        .collect();
    versions.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    html! {
        section.panel aria-label="Versions" {
            header { h2 { "Versions" } }
            @if versions.is_empty() { (components::empty("The app had no version yet.", &[])) }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Versions" {
                    table {
                        thead { tr { th.number scope="col" { "Version" } th scope="col" { "Components" } th scope="col" { "Bundle" } } }
                        tbody {
                            @for (number, version) in versions {
                                tr {
                                    td.number { "v" (number) }
                                    td { (list(version, "components").iter().map(|part| text(part, "name")).collect::<Vec<_>>().join(", ")) }
                                    td.long { code { (text(version, "bundle")) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Content of a state that has none.
static NULL: Value = Value::Null;

/// State of a job: its name, and its content if it has one.
fn job_state(state: &Value) -> (String, &Value) {
    let words = |name: &str| {
        let word = |(at, c): (usize, char)| match c.is_ascii_uppercase() && at > 0 {
            true => format!("_{}", c.to_ascii_lowercase()),
            false => c.to_ascii_lowercase().to_string(),
        };
        name.char_indices().map(word).collect::<String>()
    };
    match state {
        Value::String(name) => (words(name), &NULL),
        Value::Object(of) => match of.iter().next() {
            Some((name, content)) => (words(name), content),
            None => (String::new(), &NULL),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => (String::new(), &NULL),
    }
}

fn job(state: &Value) -> Markup {
    let (name, content) = job_state(&state["state"]);
    let outcome = text(content, "outcome");
    let last = list(state, "last").last().and_then(Value::as_str).unwrap_or_default();
    html! {
        section.panel aria-label="Details" {
            div.body {
                p { (components::badge(if outcome.is_empty() { &name } else { outcome })) }
                dl.facts {
                    (fact("Kind", &components::kind(text(&state["work"], "kind"))))
                    (fact("Class", &components::kind(text(&state["work"], "class"))))
                    @if let Some(attempt) = content["attempt"].as_u64() { (fact("Attempt", &attempt.to_string())) }
                    (fact("Runner", last))
                    @let lost = list(state, "lost").len();
                    @if lost > 0 { (fact("Lost attempts", &lost.to_string())) }
                }
            }
        }
    }
}
