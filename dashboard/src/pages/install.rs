//! One install: its state, components, inputs and runs, now or as of an earlier position.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use schemas::control::{
    installs::{Install, InstallComponent, InstallState},
    runs::RunSummary,
};
use serde_json::{Map, Value};

use super::{
    as_of,
    dependencies::{self, Shown},
    runs,
};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of an install page.
#[derive(Debug, Clone)]
pub struct InstallPage {
    /// The install.
    pub install: Install,
    /// Its newest runs.
    pub newest: Vec<RunSummary>,
    /// Newest versions of its app. Empty if the caller may not change the install.
    pub versions: Vec<u32>,
    /// Parsed configuration of its version. Null if it cannot be read.
    pub config: Value,
}

/// Install page.
#[must_use]
pub fn install(caller: &Caller, page: &InstallPage) -> Markup {
    let InstallPage { install, newest, versions, config } = page;
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/installs" { "Installs" } }
        (frame::title(caller, &updates(page), &install.name, &components::badge(&install.state)))
        @if let Some(graph) = graph(install, config) {
            section.panel aria-label="Graph" {
                header { h2 { "Graph" } span.muted { "Dependencies of the components of v" (install.config_version) } }
                (graph)
            }
        }
        div.columns {
            div.stack {
                section.panel aria-label="Components" {
                    header { h2 { "Components" } }
                    @if install.sandbox.is_none() && install.components.is_empty() {
                        (components::empty("The config version has no components.", &[]))
                    } @else { (component_table(install)) }
                }
                section.panel aria-label="Runs" {
                    header { h2 { "Runs" } a.more href={ "/ui/runs?install=" (install.id) } { "View all" } }
                    @if newest.is_empty() {
                        (components::empty(
                            "No runs yet. The first run starts when the runner enrols. This command creates another enrolment token.",
                            &["stead", "installs", "create-enrolment-token", &install.name],
                        ))
                    } @else { (runs::table(caller, "runs", newest)) }
                }
            }
            div.stack {
                (facts(caller, install))
                (changes(caller, install, versions))
                (values("Inputs", &install.inputs))
                (values("Stack outputs", &install.stack_outputs))
                (as_of::panel(&format!("/ui/installs/{}", install.id)))
                (history(caller, install))
            }
        }
    };
    frame::page(caller, Section::Installs, &install.name, &content)
}

/// Events of the install announce its new runs.
fn updates(page: &InstallPage) -> Updates {
    let InstallPage { install, newest, .. } = page;
    let runs = newest.iter().map(|run| format!("run/{}", run.id));
    let runner = install.runner.iter().map(|runner| format!("runner/{runner}"));
    let app = [format!("install/{}", install.id), format!("app/{}", install.app)];
    Updates::Keys(app.into_iter().chain(runner).chain(runs).collect())
}

/// Install as of an earlier position: the state that its templates read then.
#[must_use]
pub fn install_as_of(
    caller: &Caller,
    install: &Install,
    earlier: &InstallState,
    recorded_at: Option<DateTime<Utc>>,
) -> Markup {
    let state = &earlier.state["stead"];
    let present = format!("/ui/installs/{}", install.id);
    let heading = format!("{} at position {}", install.name, earlier.position);
    let components = state["components"].as_object();
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/installs" { "Installs" } span { "/" } a href=(present) { (install.name) }
        }
        (frame::title(caller, &Updates::None, &install.name, &html! {}))
        (as_of::banner(earlier.position, recorded_at, &present))
        div.columns {
            section.panel aria-label="Components" {
                header { h2 { "Components" } }
                div.scroll tabindex="0" role="region" aria-label="Components" {
                    table {
                        thead { tr { th scope="col" { "Component" } th scope="col" { "State" } th scope="col" { "Outputs" } } }
                        tbody {
                            (earlier_component("sandbox", &state["sandbox"]))
                            @for (name, component) in components.into_iter().flatten() { (earlier_component(name, component)) }
                        }
                    }
                }
            }
            div.stack {
                (members("Inputs", &state["inputs"]["inputs"]))
                (members("Stack outputs", &state["install_stack"]["outputs"]))
                section.panel aria-label="Another time" {
                    header { h2 { "Another time" } }
                    div.body { (as_of::form(&present, Some(earlier.position))) }
                }
            }
        }
    };
    frame::page(caller, Section::Installs, &heading, &content)
}

fn earlier_component(name: &str, component: &Value) -> Markup {
    let none = Map::new();
    html! {
        tr {
            td.name { (name) }
            td.fit {
                (components::badge(match component["status"].as_str() {
                    Some("active") => "deployed",
                    Some(_) | None => "not deployed",
                }))
            }
            td { (outputs(name, component["outputs"].as_object().unwrap_or(&none))) }
        }
    }
}

fn outputs<'v>(
    component: &str,
    values: impl IntoIterator<Item = (&'v String, &'v Value), IntoIter: ExactSizeIterator>,
) -> Markup {
    let values = values.into_iter();
    html! {
        @if values.len() > 0 {
            details id={ "outputs-" (component) } {
                summary { (components::count(values.len() as u64, "output")) }
                // A link to an element in a closed fold opens the fold.
                div id={ "values-" (component) } { (list(values)) }
            }
        }
    }
}

fn list<'v>(values: impl Iterator<Item = (&'v String, &'v Value)>) -> Markup {
    html! {
        dl.facts.wide {
            @for (name, value) in values {
                div { dt { (name) } dd { code { (components::value(value)) } } }
            }
        }
    }
}

/// Components with their states. A click leads to the outputs of a component.
fn graph(install: &Install, config: &Value) -> Option<Markup> {
    let label = "Graph of the components; the table below has the same content";
    dependencies::graph(label, config, install.sandbox.is_some(), |name| {
        let mut all = install.sandbox.iter().chain(&install.components);
        let component = all.find(|component| component.name == name);
        let state = match component {
            Some(component) if component.disabled => "disabled",
            Some(component) => component.state.as_str(),
            None => "absent",
        };
        let version = component.and_then(|component| component.config_version);
        let version = version.map(|version| format!(" · v{version}")).unwrap_or_default();
        let anchor = match component {
            Some(component) if !component.outputs.is_empty() => "values",
            Some(_) | None => "component",
        };
        Shown {
            subtitle: format!("{}{version}", components::kind(state)),
            tone: components::tone(state),
            href: format!("#{anchor}-{}", components::encoded(name)),
        }
    })
}

fn component_table(install: &Install) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Components" {
            table {
                thead {
                    tr {
                        th scope="col" { "Component" }
                        th scope="col" { "Type" }
                        th scope="col" { "State" }
                        th.number scope="col" { "Version" }
                        th scope="col" { "Outputs" }
                    }
                }
                tbody {
                    @for component in install.sandbox.iter().chain(&install.components) { (component_row(component)) }
                }
            }
        }
    }
}

fn component_row(component: &InstallComponent) -> Markup {
    html! {
        tr id={ "component-" (component.name) } {
            td.name {
                (component.name)
                @if let Some(run) = &component.reserved_by {
                    div.muted { "reserved by " (components::run_link(run)) }
                }
            }
            td { code { (component.kind) } }
            td.fit { (components::badge(if component.disabled { "disabled" } else { &component.state })) }
            td.number { @if let Some(version) = component.config_version { "v" (version) } }
            td { (outputs(&component.name, &component.outputs)) }
        }
    }
}

fn facts(caller: &Caller, install: &Install) -> Markup {
    html! {
        section.panel aria-label="Details" {
            header { h2 { "Details" } }
            div.body {
                dl.facts {
                    div { dt { "App" } dd { a href={ "/ui/apps/" (install.app) } { (install.app_name) } " v" (install.config_version) } }
                    div { dt { "Approval" } dd { @if install.auto_approve { "automatic" } @else { "required" } } }
                    div { dt { "Runner" } dd { @match &install.runner_state { Some(state) => (components::badge(state)), None => "not enrolled" } } }
                    @if let Some(at) = install.runner_last_contact { div { dt { "Last contact" } dd { (components::time(caller.now, at)) } } }
                    div { dt { "Created" } dd { (components::time(caller.now, install.created_at)) } }
                    div { dt { "Id" } dd { (components::id(&install.id.to_string())) } }
                }
                @if !install.ignored_settings.is_empty() {
                    details id="ignored" {
                        summary { (components::count(install.ignored_settings.len() as u64, "setting")) " of the version without effect" }
                        div.stacked.menu {
                            @for ignored in &install.ignored_settings {
                                p.note.wait { span { code { (ignored.file) @if let Some(line) = ignored.line { ":" (line) } } ": " (ignored.message) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Choice of another version to compare and move to, and the link to the other changes.
fn changes(caller: &Caller, install: &Install, versions: &[u32]) -> Markup {
    let now = install.config_version;
    let others: Vec<u32> = versions.iter().copied().filter(|version| *version != now).collect();
    html! {
        @if caller.may(&[]) {
            section.panel aria-label="Change" {
                header { h2 { "Change" } a.more href={ "/ui/installs/" (install.id) "/change" } { "Deploy, inputs, actions, teardown" } }
                div.body {
                    @if others.is_empty() { p.muted { "The app has no other version." } }
                    @else {
                        form.inline method="get" action={ "/ui/installs/" (install.id) "/upgrade" } {
                            label {
                                "Version"
                                select name="to" {
                                    @for version in others {
                                        option value=(version) { "v" (version) @if version > now { " (upgrade)" } @else { " (roll back)" } }
                                    }
                                }
                            }
                            button.primary type="submit" { "Compare" }
                        }
                    }
                }
            }
        }
    }
}

fn values(heading: &str, values: &BTreeMap<String, Value>) -> Markup {
    value_panel(heading, values.is_empty(), &list(values.iter()))
}

fn members(heading: &str, object: &Value) -> Markup {
    let none = Map::new();
    let values = object.as_object().unwrap_or(&none);
    value_panel(heading, values.is_empty(), &list(values.iter()))
}

fn value_panel(heading: &str, is_empty: bool, list: &Markup) -> Markup {
    html! {
        @if !is_empty {
            section.panel aria-label=(heading) {
                header { h2 { (heading) } }
                div.body { (list) }
            }
        }
    }
}

/// Links to the events, the comparison and the proof of the install, for auditors.
fn history(caller: &Caller, install: &Install) -> Markup {
    let stream = components::encoded(&format!("install/{}", install.id));
    html! {
        @if caller.may(&["auditor"]) {
            section.panel aria-label="History" {
                header { h2 { "History" } a.more href={ "/ui/audit?stream=" (stream) } { "Events" span.visually-hidden { " of the install" } } }
                div.body {
                    form.inline method="get" action="/ui/audit/diff" {
                        input type="hidden" name="stream" value={ "install/" (install.id) };
                        label { "Changes since" input type="text" name="from" required maxlength="64" placeholder="yesterday or 7d ago"; }
                        button type="submit" { "Compare" }
                    }
                    p { a href={ "/ui/audit/proofs?of=" (install.id) } { "Download a proof of this install" } }
                }
            }
        }
    }
}
