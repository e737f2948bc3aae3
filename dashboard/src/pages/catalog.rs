//! Catalog of the components, each in all its states, for their design and their review.
use chrono::TimeDelta;
use maud::{Markup, html};
use schemas::{
    ansi::Styles,
    control::jobs::LogRecord,
    plugin::{Action, AttributeDetails, DetailValue, PlanDetails, ResourceDetails},
};
use serde_json::json;

use super::{RunDay, home, log};
use crate::{
    components::{self, Node, Tone},
    frame::{self, Caller, Updates},
};

/// States of each tone, as the Control API names them.
const STATES: [(&str, &[&str]); 5] = [
    ("Good", &["active", "succeeded", "deployed", "approved"]),
    ("In progress", &["running", "planning", "applying", "queued"]),
    ("Waiting", &["waiting_for_approval", "incomplete", "outcome_unknown", "drained"]),
    ("Failed", &["failed", "denied", "disconnected", "revoked"]),
    ("Neutral", &["cancelled", "skipped", "torn_down"]),
];
const NAMES: [&str; 5] =
    ["network", "cluster", "orders-database-with-a-long-name", "api", "certificates"];

/// Catalog page.
#[must_use]
pub fn catalog(caller: &Caller) -> Markup {
    let content = html! {
        (frame::title(caller, &Updates::None, "Components", &html! { span.muted { "Every component of the dashboard in every state" } }))
        div.columns {
            div.stack {
                (panel("Badges", &badges()))
                (panel("Plan", &plan()))
                (panel("Form", &form()))
            }
            div.stack {
                (panel("Text", &text(caller)))
                (panel("Buttons and links", &buttons()))
                (panel("Notes", &notes()))
                (panel("Time of the page", &status()))
            }
        }
        (table(caller))
        section.panel aria-label="Empty table" {
            header { h2 { "Empty table" } a.more href="#main" { "View all" } }
            (components::empty("No runs match. This command starts one.", &["stead", "installs", "deploy", "acme corp"]))
        }
        (home::strip(&days(caller)))
        (log_panel())
        @for count in [1, 5, 30, 200] { (graph(count)) }
    };
    frame::page(caller, None, "Components", &content)
}

fn panel(heading: &str, body: &Markup) -> Markup {
    html! {
        section.panel aria-label=(heading) { header { h2 { (heading) } } div.body { (body) } }
    }
}

fn badges() -> Markup {
    html! {
        @for (tone, states) in STATES {
            div.row { span.muted { (tone) } @for state in states { (components::badge(state)) } }
        }
        div.row { span.muted { "Counts" } span.badge.flat.ok { "v2 (newest): 3 installs" } span.badge.flat.idle { "v1: 197 installs" } }
    }
}

fn text(caller: &Caller) -> Markup {
    html! {
        h2 { "Heading of a panel" }
        p { "Text with " code { "code" } ", " strong { "importance" } ", a " a href="#main" { "link" } " and " span.muted { "less important words" } "." }
        p { (components::time(caller.now, caller.now - TimeDelta::minutes(12))) " · " (components::id("run_01ARZ3NDEKTSV4RRFFQ69G5FAV")) " · " kbd { "Ctrl K" } }
        (components::command(&["stead", "runs", "approve", "acme corp", "--reason", "it's reviewed"]))
        code.command.secret { "secret-that-is-shown-once" }
        dl.facts {
            div { dt { "Runner" } dd { (components::badge("active")) } }
            div { dt { "Last contact" } dd { "now" } }
            div { dt { "A long value" } dd { "arn:aws:iam::123456789012:role/stead-runner-of-a-customer" } }
        }
    }
}

fn buttons() -> Markup {
    html! {
        div.row {
            button type="button" { "Filter" } button.primary type="button" { "Approve" } button.danger type="button" { "Deny" }
            a.button href="#main" { "Open" } a.button.primary href="#main" { "Create" }
        }
        div.row {
            button type="button" disabled { "Filter" } button.primary type="button" disabled { "Approve" } button.danger type="button" disabled { "Deny" }
        }
    }
}

fn notes() -> Markup {
    html! {
        p.note { "A note that informs." }
        p.note.ok { "Nothing needs attention." }
        p.note.wait { "This install approves its plans automatically." }
        p.note.fail { "The plan failed: the quota of the account is used up; request a higher one." }
        p.stale role="alert" { "This plan changed, was approved or denied, or your role changed." }
    }
}

fn status() -> Markup {
    html! {
        @for (state, text) in [("live", "live"), ("reconnecting", "reconnecting · as of 12:03"), ("", "as of 2026-01-31 12:03:00 UTC")] {
            div.row { span.status data-state=(state) { (text) } }
        }
        div.row { span.status data-state="live" { "live " button type="button" { "Show 3 changes" } } }
    }
}

fn form() -> Markup {
    let text = |label: &str, kind: &str, value: &str, is_disabled: bool| {
        html! { label { (label) input type=(kind) value=(value) placeholder="Placeholder" disabled[is_disabled]; } }
    };
    html! {
        div.row.fields {
            (text("Empty", "text", "", false))
            (text("With a value", "text", "acme", false))
            (text("Search", "search", "acme", false))
            (text("Number", "number", "3", false))
            (text("Disabled", "text", "a reason", true))
            label { "Choice" select { option { "Any" } option { "failed" } } }
        }
        fieldset {
            legend { "Topics" }
            div.row.choices {
                label.check { input type="checkbox" checked; "run.failed" }
                label.check { input type="checkbox"; "run.waiting" }
                label.check { input type="radio" name="kind" checked; "JSON" }
                label.check { input type="radio" name="kind"; "Slack" }
            }
        }
        details { summary { "A closed fold" } p { "Content." } }
        details open { summary { "An open fold" } p { "Content." } }
    }
}

fn plan() -> Markup {
    let attribute = |path: &str, before: Option<DetailValue>, after: Option<DetailValue>| {
        AttributeDetails { path: path.into(), before, after, replaces: path == "engine" }
    };
    let resource = |address: &str, action: Action, attributes: Vec<AttributeDetails>| {
        ResourceDetails { address: address.into(), action, attributes, omitted: 0 }
    };
    let value = |of: &str| Some(DetailValue::Value(json!(of)));
    let long = DetailValue::Truncated { text: "{\"Statement\": [".into(), size_bytes: 20_480 };
    let replaced = vec![
        attribute("engine", value("postgres 15"), value("postgres 17")),
        attribute("endpoint", value("db-1.example"), Some(DetailValue::KnownAfterApply)),
        attribute("password", Some(DetailValue::Sensitive), Some(DetailValue::Sensitive)),
        attribute("policy", None, Some(long)),
    ];
    let resources = vec![
        resource("aws_db_instance.orders", Action::Replace, replaced),
        resource("aws_s3_bucket.logs", Action::Create, vec![]),
        resource("aws_route53_record.api", Action::Update, vec![]),
        resource("aws_iam_role.old", Action::Delete, vec![]),
        resource("kubernetes_namespace.app", Action::Adopt, vec![]),
        resource("null_resource.once", Action::Forget, vec![]),
    ];
    html! {
        div.row { (components::changes(3, 2, 1)) (components::changes(0, 0, 0)) }
        (components::plan_details("sample", &PlanDetails { resources, outputs: vec![], omitted: 2 }, None))
    }
}

fn table(caller: &Caller) -> Markup {
    html! {
        section.panel aria-label="Table" {
            header { h2 { "Table" } span.muted { "3 of 200" } a.more href="#main" { "View all" span.visually-hidden { " rows" } } }
            div.scroll tabindex="0" role="region" aria-label="Rows" {
                table {
                    thead { tr { th scope="col" { "Install" } th scope="col" { "State" } th.number scope="col" { "Version" } th scope="col" { "Changes" } th scope="col" { "Last contact" } th scope="col" { "Reason" } } }
                    tbody {
                        @for (name, state) in NAMES.iter().zip(["active", "waiting_for_approval", "failed"]) {
                            tr {
                                td.name { a href="#main" { (name) } }
                                td.fit { (components::badge(state)) }
                                td.number { "v12" }
                                td.fit { (components::changes(12, 3, 0)) }
                                td.fit { (components::time(caller.now, caller.now - TimeDelta::hours(3))) }
                                td.long { "The quota of the account is used up; request a higher one, then retry the run." }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn days(caller: &Caller) -> Vec<RunDay> {
    let counts = [(9, 0, 1), (12, 1, 0), (3, 0, 0), (0, 0, 0), (7, 4, 2), (15, 0, 1), (2, 2, 0)];
    let first = caller.now.date_naive() - TimeDelta::days(counts.len() as i64);
    let days = first.iter_days().zip(counts);
    days.map(|(day, (succeeded, failed, other))| RunDay { day, succeeded, failed, other }).collect()
}

fn log_panel() -> Markup {
    let colors =
        (0..16).map(|n| format!("\u{1b}[{}m{n}\u{1b}[0m", if n < 8 { 30 + n } else { 82 + n }));
    let lines = [
        ("o", "Plan: 3 to add, 2 to change, 1 to destroy.".to_owned()),
        ("o", colors.collect::<Vec<_>>().join(" ")),
        ("o", "\u{1b}[1mbold\u{1b}[0m \u{1b}[2mdim\u{1b}[0m \u{1b}[3mitalic\u{1b}[0m \u{1b}[4munderlined\u{1b}[0m \u{1b}[7minverse\u{1b}[0m \u{1b}[41mred\u{1b}[0m".to_owned()),
        ("e", "Error: the quota of the account is used up".to_owned()),
        ("x", "The job exited with code 1".to_owned()),
    ];
    let records = (1_u64..).zip(lines).map(|(n, (stream, text))| LogRecord {
        n,
        t: n * 1_250_000,
        s: stream.into(),
        p: None,
        m: text,
        c: false,
    });
    html! {
        section.panel aria-label="Log" {
            header { h2 { "Log" } }
            (log::plain_lines("Sample output", &records.collect::<Vec<_>>(), Styles::default(), |_| "#main".into()))
        }
    }
}

/// A graph with this many nodes.
fn graph(count: usize) -> Markup {
    let tones = [Tone::Ok, Tone::Running, Tone::Waiting, Tone::Failed, Tone::Idle];
    let states = ["deployed", "applying", "waiting for approval", "failed", "pending"];
    let rows = (1..).find(|rows| rows * rows * 2 >= count).unwrap_or(1);
    let nodes: Vec<Node<'_>> = (0..count)
        .map(|n| Node {
            key: n.to_string(),
            name: NAMES[n % NAMES.len()],
            subtitle: format!("{n} · {}", states[n % 7 % states.len()]),
            tone: tones[n % 7 % tones.len()],
            layer: n / rows,
            depends_on: [
                n.checked_sub(rows),
                (n % 3 == 0).then(|| n.checked_sub(rows + 1)).flatten(),
            ]
            .into_iter()
            .flatten()
            .filter(|from| from / rows < n / rows)
            .map(|from| from.to_string())
            .collect(),
            href: "#main".into(),
        })
        .collect();
    html! {
        section.panel aria-label={ "Graph of " (count) } {
            header { h2 { "Graph of " (components::count(count as u64, "node")) } }
            (components::graph(&format!("Graph of {}", components::count(count as u64, "node")), &nodes))
        }
    }
}
