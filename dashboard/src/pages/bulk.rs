//! Changes of several installs: choice, preview, and results.
use maud::{Markup, html};
use schemas::control::{
    Page,
    apps::Impact,
    installs::{Install, InstallsQuery},
};

use super::installs::filters;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Change of several installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkVerb {
    Upgrade,
    Retry,
    Drain,
}

impl BulkVerb {
    const ALL: [BulkVerb; 3] = [BulkVerb::Upgrade, BulkVerb::Retry, BulkVerb::Drain];

    fn value(self) -> &'static str {
        match self {
            BulkVerb::Upgrade => "upgrade",
            BulkVerb::Retry => "retry",
            BulkVerb::Drain => "drain",
        }
    }

    fn label(self) -> &'static str {
        match self {
            BulkVerb::Upgrade => "Move to a version",
            BulkVerb::Retry => "Retry the failed run",
            BulkVerb::Drain => "Drain the runner",
        }
    }
}

/// Content of the page that chooses installs.
#[derive(Debug, Clone)]
pub struct BulkPage {
    /// Filters that selected the installs.
    pub query: InstallsQuery,
    /// The installs.
    pub page: Page<Install>,
    /// True if the caller asked for none to be selected.
    pub is_none_selected: bool,
}

/// Page that chooses installs and a change.
#[must_use]
pub fn bulk(caller: &Caller, page: &BulkPage) -> Markup {
    let installs = &page.page.items;
    let filters = filters(&page.query);
    let pair = |(name, value): &(&str, String)| format!("{name}={}&", components::encoded(value));
    let same: String = filters.iter().map(pair).collect();
    let content = html! {
        (crumbs())
        (frame::title(caller, &Updates::None, "Change several installs", &html! { span.muted { (components::count(installs.len() as u64, "install")) } }))
        @if page.page.next.is_some() {
            p.note.wait { "These are the first " (installs.len()) " installs that match. Filter the list of installs to change others." }
        }
        @if installs.is_empty() {
            section.panel aria-label="Installs" { (components::empty("No installs match. Change the filters of the list of installs.", &[])) }
        } @else if !caller.may(&[]) { p.note { "Only owners can change installs." } }
        @else {
            form.stacked method="get" action="/ui/bulk/preview" {
                section.panel aria-label="Change" {
                    header { h2 { "Change" } }
                    div.body {
                        div.row.choices {
                            @for (at, verb) in BulkVerb::ALL.into_iter().enumerate() {
                                label.check { input type="radio" name="do" value=(verb.value()) checked[at == 0]; (verb.label()) }
                            }
                        }
                        div.row.fields {
                            label { "Version, to move to" input type="text" name="to" inputmode="numeric" pattern="[0-9]*" placeholder="Newest"; }
                            label.grow { "Reason" input type="text" name="reason" maxlength="2000"; }
                        }
                        div { button.primary type="submit" { "Preview" } }
                    }
                }
                section.panel aria-label="Installs" {
                    header {
                        h2 { "Installs" }
                        @if page.is_none_selected { a.more href={ "/ui/bulk?" (same) } { "Select all" } }
                        @else { a.more href={ "/ui/bulk?" (same) "select=none" } { "Select none" } }
                    }
                    (choice(caller, installs, !page.is_none_selected))
                }
            }
        }
    };
    frame::page(caller, Section::Installs, "Change several installs", &content)
}

fn crumbs() -> Markup {
    html! { nav.crumbs aria-label="Breadcrumbs" { a href="/ui/installs" { "Installs" } } }
}

fn choice(caller: &Caller, installs: &[Install], are_selected: bool) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Installs" {
            table {
                thead { tr { th scope="col" { "Install" } th scope="col" { "State" } th scope="col" { "App" } th.number scope="col" { "Version" } th scope="col" { "Runner" } th scope="col" { "Created" } } }
                tbody {
                    @for install in installs {
                        tr {
                            td.name { label.check { input type="checkbox" name="install" value=(install.id) checked[are_selected]; (install.name) } }
                            td.fit { (components::badge(&install.state)) }
                            td { (install.app_name) }
                            td.number { "v" (install.config_version) }
                            td.fit { @match &install.runner_state { Some(state) => (components::badge(state)), None => span.muted { "none" } } }
                            td.fit { (components::time(caller.now, install.created_at)) }
                        }
                    }
                }
            }
        }
    }
}

/// Install of a preview.
#[derive(Debug, Clone)]
pub struct BulkItem {
    /// Id of the install.
    pub install: String,
    /// Name of the install.
    pub name: String,
    /// Object of the change: the versions as `3>4`, the failed run or the runner. `Err` states why the install is left
    /// out.
    pub target: Result<String, String>,
    /// Operations that an upgrade causes.
    pub impact: Option<Impact>,
    /// True if the install approves its plans automatically.
    pub auto_approve: bool,
}

/// Content of the preview.
#[derive(Debug, Clone)]
pub struct PreviewPage {
    /// The change.
    pub verb: BulkVerb,
    /// Version of an upgrade.
    pub to: Option<u32>,
    /// Reason, as typed.
    pub reason: String,
    /// The chosen installs.
    pub items: Vec<BulkItem>,
}

/// Preview of a change, with the form that makes it.
#[must_use]
pub fn bulk_preview(caller: &Caller, page: &PreviewPage) -> Markup {
    let included: Vec<(&BulkItem, &str)> =
        page.items.iter().filter_map(|item| Some((item, item.target.as_deref().ok()?))).collect();
    let count = components::count(included.len() as u64, "install");
    let (heading, verb) = match (page.verb, page.to) {
        (BulkVerb::Upgrade, Some(to)) => (format!("Move {count} to version {to}"), "Move"),
        (BulkVerb::Upgrade, None) => (format!("Move {count} to the newest version"), "Move"),
        (BulkVerb::Retry, _) => (format!("Retry the failed runs of {count}"), "Retry"),
        (BulkVerb::Drain, _) => (format!("Drain the runners of {count}"), "Drain"),
    };
    let automatic =
        page.verb != BulkVerb::Drain && included.iter().any(|(item, _)| item.auto_approve);
    let content = html! {
        (crumbs())
        (frame::title(caller, &Updates::None, &heading, &html! {}))
        @if automatic { p.note.wait { "Installs that are marked \"automatic\" approve their plans automatically: the change is applied without a review." } }
        section.panel aria-label="Preview" {
            header { h2 { "Preview" } }
            div.scroll tabindex="0" role="region" aria-label="Preview" {
                table {
                    thead { tr { th scope="col" { "Install" } th scope="col" { "Object" } th scope="col" { "Effect" } } }
                    tbody { @for item in &page.items { (preview_row(page, item)) } }
                }
            }
        }
        @if included.is_empty() { p.note { "No install can be changed." } }
        @else if caller.may(&[]) {
            section.panel.narrow aria-label="Confirmation" {
                header { h2 { "Confirmation" } }
                div.body {
                    form.stacked id="bulk" method="post" action="/ui/bulk/change" {
                        (frame::change_fields(caller, "bulk"))
                        input type="hidden" name="do" value=(page.verb.value());
                        @for (item, target) in &included { input type="hidden" name={ "item." (item.install) } value=(target); }
                        label { "Reason" input type="text" name="reason" required maxlength="2000" value=(page.reason); }
                        div { button.primary type="submit" { (verb) " " (count) } }
                    }
                }
            }
        }
    };
    frame::page(caller, Section::Installs, &heading, &content)
}

fn preview_row(page: &PreviewPage, item: &BulkItem) -> Markup {
    html! {
        tr {
            td.name { a href={ "/ui/installs/" (item.install) } { (item.name) } @if item.auto_approve && page.verb != BulkVerb::Drain { " " span.badge.flat.wait { "automatic" } } }
            @match &item.target {
                Err(reason) => { td {} td.muted { "Left out: " (reason) } }
                Ok(target) => {
                    td.fit {
                        @match page.verb {
                            BulkVerb::Upgrade => { "v" (target.replace('>', " → v")) },
                            BulkVerb::Retry => (components::run_link(target)),
                            BulkVerb::Drain => a href={ "/ui/runners/" (target) } { (components::id(target)) },
                        }
                    }
                    td {
                        @match (&item.impact, page.verb) {
                            (Some(impact), _) => (components::diff::impact(impact)),
                            (None, BulkVerb::Upgrade) => "Requests a run for the changed components.",
                            (None, BulkVerb::Retry) => "Repeats the unfinished work of the run.",
                            (None, BulkVerb::Drain) => "The runner finishes its jobs and accepts no more.",
                        }
                    }
                }
            }
        }
    }
}

/// Outcome for one install.
#[derive(Debug, Clone)]
pub struct BulkResult {
    /// Id of the install.
    pub install: String,
    /// Name of the install.
    pub name: String,
    /// Run that the change requested, if there is one. `Err` states why the change was rejected.
    pub outcome: Result<Option<String>, String>,
}

/// Content of the page with the results.
#[derive(Debug, Clone)]
pub struct ResultsPage {
    /// The change.
    pub verb: BulkVerb,
    /// Outcomes.
    pub results: Vec<BulkResult>,
}

/// Results of a change of several installs. Each install changed on its own, so some may have failed.
#[must_use]
pub fn bulk_results(caller: &Caller, page: &ResultsPage) -> Markup {
    let failed = page.results.iter().filter(|of| of.outcome.is_err()).count();
    let heading = format!(
        "{}: {}",
        page.verb.label(),
        components::count(page.results.len() as u64, "install")
    );
    let content = html! {
        (crumbs())
        (frame::title(caller, &Updates::None, &heading, &html! {}))
        @if failed == 0 { p.note.ok { "All changes were accepted." } }
        @else { p.note.fail { (components::count(failed as u64, "change")) " of " (page.results.len()) " were rejected." } }
        section.panel aria-label="Results" {
            div.scroll tabindex="0" role="region" aria-label="Results" {
                table {
                    thead { tr { th scope="col" { "Install" } th scope="col" { "Result" } } }
                    tbody {
                        @for of in &page.results {
                            tr {
                                td.name { a href={ "/ui/installs/" (of.install) } { (of.name) } }
                                td {
                                    @match &of.outcome {
                                        Ok(Some(run)) => { "Accepted: " (components::run_link(run)) },
                                        Ok(None) => "Accepted",
                                        Err(reason) => { (components::badge("failed")) " " (reason) },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        p { a href="/ui/installs" { "Back to the installs" } }
    };
    frame::page(caller, Section::Installs, &heading, &content)
}
