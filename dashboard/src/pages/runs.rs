//! List of runs.
use maud::{Markup, html};
use schemas::control::{
    Page,
    runs::{RunSummary, RunsQuery},
};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

const STATES: [&str; 9] = [
    "requested",
    "running",
    "waiting_for_approval",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
    "denied",
    "expired",
];

/// Runs page, newest first.
#[must_use]
pub fn runs(caller: &Caller, query: &RunsQuery, page: &Page<RunSummary>) -> Markup {
    let content = html! {
        (frame::title(caller, &Updates::of_types(&["run"]), "Runs", &html! {}))
        form.inline method="get" action="/ui/runs" role="search" {
            label { "Install" input type="search" name="install" value=[query.install.as_deref()] placeholder="Name or id"; }
            label {
                "State"
                select name="state" {
                    option value="" { "Any" }
                    @for state in STATES {
                        option value=(state) selected[query.state.as_deref() == Some(state)] { (components::kind(state)) }
                    }
                }
            }
            button type="submit" { "Filter" }
        }
        section.panel aria-label="Runs" {
            @if page.items.is_empty() {
                (components::empty("No runs match.", &["stead", "installs", "deploy", "INSTALL"]))
            } @else { (table(caller, "runs", &page.items)) }
            (next_page("/ui/runs", &[("install", query.install.as_deref()), ("state", query.state.as_deref())], page.next.as_deref()))
        }
    };
    frame::page(caller, Section::Runs, "Runs", &content)
}

/// Table of runs. `id` makes the ids of the rows unique.
pub(super) fn table(caller: &Caller, id: &str, runs: &[RunSummary]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Runs" {
            table {
                thead {
                    tr {
                        th scope="col" { "Run" }
                        th scope="col" { "Install" }
                        th scope="col" { "State" }
                        th.number scope="col" { "Steps" }
                        th scope="col" { "Requested by" }
                        th scope="col" { "Requested" }
                    }
                }
                tbody id={ (id) "-rows" } data-rows="rows" {
                    @for run in runs {
                        tr id={ (id) "-" (run.id) } {
                            td.name {
                                a href={ "/ui/runs/" (run.id) } title=(run.id) { (components::kind(&run.kind)) }
                                @if let Some(action) = &run.action { " " code { (action) } }
                            }
                            td { a href={ "/ui/installs/" (run.install) } { (run.install_name) } }
                            td.fit { (components::badge(&run.state)) }
                            td.number { (run.steps_ended) " of " (run.steps) }
                            td.actor { (components::actor(run.requested_by_name.as_deref().unwrap_or(&run.requested_by))) }
                            td.fit { (components::time(caller.now, run.requested_at)) }
                        }
                    }
                }
            }
        }
    }
}

/// Link to the next page of a list, with the filters of this one.
pub(super) fn next_page(
    path: &str,
    filters: &[(&str, Option<&str>)],
    next: Option<&str>,
) -> Markup {
    html! {
        @if let Some(cursor) = next {
            form.pages method="get" action=(path) {
                @for (name, value) in filters {
                    @if let Some(value) = value { input type="hidden" name=(name) value=(value); }
                }
                input type="hidden" name="cursor" value=(cursor);
                button type="submit" { "Next page" }
            }
        }
    }
}
