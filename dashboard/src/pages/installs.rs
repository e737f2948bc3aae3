//! List of installs.
use maud::{Markup, html};
use schemas::control::{
    Page,
    installs::{Install, InstallsQuery},
};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// States of installs and of runners that the filters offer.
const STATES: [&str; 11] = [
    "active",
    "failed",
    "incomplete",
    "provisioning",
    "updating",
    "tearing_down",
    "deprovisioning",
    "waiting_for_runner",
    "torn_down",
    "empty",
    "deprovisioned",
];
const RUNNERS: [&str; 7] =
    ["active", "disconnected", "stopped", "drained", "disabled", "revoked", "none"];

/// Installs page, oldest first.
#[must_use]
pub fn installs(caller: &Caller, query: &InstallsQuery, page: &Page<Install>) -> Markup {
    let filters = filters(query);
    let pairs: Vec<(&str, Option<&str>)> =
        filters.iter().map(|(name, value)| (*name, Some(value.as_str()))).collect();
    let with_filters = |path: &str| {
        let pair =
            |(name, value): &(&str, String)| format!("{name}={}", components::encoded(value));
        format!("{path}?{}", filters.iter().map(pair).collect::<Vec<_>>().join("&"))
    };
    let content = html! {
        (frame::title(caller, &Updates::of_types(&["install", "run", "runner"]), "Installs", &html! {
            div.actions {
                a href=(with_filters("/ui/installs.csv")) download="installs.csv" { "Download CSV" }
                @if caller.may(&[]) { a href=(with_filters("/ui/bulk")) { "Change several" } }
            }
        }))
        form.inline method="get" action="/ui/installs" role="search" data-follow {
            label { "Name" input type="search" name="search" maxlength="64" value=[query.search.as_deref()] placeholder="Part of the name"; }
            label { "App" input type="search" name="app" value=[query.app.as_deref()] placeholder="Name or id"; }
            label { "Version" input type="text" name="version" inputmode="numeric" pattern="[0-9]*" value=[query.version]; }
            (select("State", "state", &STATES, query.state.as_deref()))
            (select("Runner", "runner", &RUNNERS, query.runner.as_deref()))
            label {
                "Health"
                select name="attention" {
                    option value="" { "Any" }
                    option value="true" selected[query.attention == Some(true)] { "Needs attention" }
                }
            }
            button type="submit" { "Filter" }
            @if !filters.is_empty() { a.clear href="/ui/installs" { "Clear" span.visually-hidden { " the filters" } } }
        }
        section.panel aria-label="Installs" {
            @if page.items.is_empty() {
                (components::empty("No installs match.", &["stead", "installs", "create", "APP", "NAME"]))
            } @else { (table(caller, &page.items)) }
            (next_page("/ui/installs", &pairs, page.next.as_deref()))
        }
    };
    frame::page(caller, Section::Installs, "Installs", &content)
}

/// Filters in use, as fields of a form.
pub(super) fn filters(query: &InstallsQuery) -> Vec<(&'static str, String)> {
    let fields = [
        ("search", query.search.clone()),
        ("app", query.app.clone()),
        ("version", query.version.map(|version| version.to_string())),
        ("state", query.state.clone()),
        ("runner", query.runner.clone()),
        ("attention", query.attention.map(|only| only.to_string())),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn select(label: &str, name: &str, values: &[&str], chosen: Option<&str>) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "Any" }
                @for value in values {
                    option value=(value) selected[chosen == Some(*value)] { (components::kind(value)) }
                }
            }
        }
    }
}

fn table(caller: &Caller, installs: &[Install]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Installs" {
            table {
                thead {
                    tr {
                        th scope="col" { "Install" }
                        th scope="col" { "State" }
                        th scope="col" { "App" }
                        th.number scope="col" { "Version" }
                        th.number scope="col" { "Deployed" }
                        th scope="col" { "Runner" }
                        th scope="col" { "Last contact" }
                        th scope="col" { "Created" }
                    }
                }
                tbody id="installs-rows" data-rows="rows" { @for install in installs { (row(caller, install)) } }
            }
        }
    }
}

fn row(caller: &Caller, install: &Install) -> Markup {
    let deployed =
        install.components.iter().filter(|component| component.state == "deployed").count();
    html! {
        tr id=(install.id) {
            td.name { a href={ "/ui/installs/" (install.id) } { (install.name) } }
            td.fit { (components::badge(&install.state)) }
            td { a href={ "/ui/apps/" (install.app) } { (install.app_name) } }
            td.number { "v" (install.config_version) }
            td.number { (deployed) " of " (install.components.len()) }
            td.fit { @match &install.runner_state { Some(state) => (components::badge(state)), None => span.muted { "none" } } }
            td.fit { @if let Some(at) = install.runner_last_contact { (components::time(caller.now, at)) } }
            td.fit { (components::time(caller.now, install.created_at)) }
        }
    }
}
