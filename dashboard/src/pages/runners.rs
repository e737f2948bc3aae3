//! List of runners.
use maud::{Markup, html};
use schemas::control::{Page, runners::Runner};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the runners page.
#[derive(Debug, Clone)]
pub struct RunnersPage {
    /// Runners in the order of their enrolment.
    pub runners: Page<Runner>,
    /// Id of the enrolment token that was just revoked.
    pub revoked: Option<String>,
}

/// Runners page.
#[must_use]
pub fn runners(caller: &Caller, page: &RunnersPage) -> Markup {
    let RunnersPage { runners: page, revoked } = page;
    let content = html! {
        (frame::title(caller, &Updates::Events, "Runners", &html! {}))
        section.panel aria-label="Runners" {
            @if page.items.is_empty() {
                (components::empty("No runner is enrolled yet. This command creates a token for the runner of an install.", &["stead", "installs", "create-enrolment-token", "INSTALL"]))
            } @else { (table(caller, "runners", &page.items)) }
            (next_page("/ui/runners", &[], page.next.as_deref()))
        }
        @if let Some(token) = revoked { p.note.ok { "Revoked the enrolment token " code { (token) } "." } }
        @if caller.may(&[]) { (tokens(caller)) }
    };
    frame::page(caller, Section::Runners, "Runners", &content)
}

/// Forms for enrolment tokens.
fn tokens(caller: &Caller) -> Markup {
    html! {
        section.panel.narrow aria-label="Enrolment tokens" {
            header { h2 { "Enrolment tokens" } }
            div.body {
                p { "A build runner builds the artifacts of all apps. The page of an install creates the token for its runner." }
                form id="enrol" method="post" action="/ui/runners/enrol" {
                    (frame::change_fields(caller, "enrol"))
                    button type="submit" { "Create a token for a build runner" }
                }
                details id="revoke-token" {
                    summary { "Revoke an enrolment token that no runner has used" }
                    form.stacked method="post" action="/ui/runners/revoke-token" {
                        (frame::change_fields(caller, "revoke-token"))
                        label { "Id of the token" input type="text" name="token" required maxlength="64" placeholder="tok_…"; }
                        label { "Reason" input type="text" name="reason" required maxlength="2000"; }
                        div { button.danger type="submit" { "Revoke the token" } }
                    }
                }
            }
        }
    }
}

/// Table of runners. `id` makes the ids of the rows unique.
pub(super) fn table(caller: &Caller, id: &str, runners: &[Runner]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Runners" {
            table {
                thead {
                    tr {
                        th scope="col" { "Runner" }
                        th scope="col" { "State" }
                        th scope="col" { "Install" }
                        th scope="col" { "Version" }
                        th scope="col" { "Host" }
                        th.number scope="col" { "Jobs" }
                        th scope="col" { "Last contact" }
                    }
                }
                tbody id={ (id) "-rows" } data-rows="rows" {
                    @for runner in runners { (row(caller, id, runner)) }
                }
            }
        }
    }
}

fn row(caller: &Caller, id: &str, runner: &Runner) -> Markup {
    html! {
        tr id={ (id) "-" (runner.id) } {
            td.fit { a href={ "/ui/runners/" (runner.id) } { (components::id(&runner.id.to_string())) } }
            td.fit {
                (components::badge(&runner.state))
                @if let Some(reason) = &runner.reason { div.muted.reason { (reason) } }
            }
            td {
                @match (&runner.install, &runner.install_name) {
                    (Some(id), Some(name)) => a href={ "/ui/installs/" (id) } { (name) },
                    (Some(_) | None, Some(_) | None) => span.muted { "builds" },
                }
            }
            td.fit { (runner.version) }
            td { (runner.host) }
            td.number { (runner.jobs.len()) }
            td.fit {
                @if let Some(at) = runner.last_contact.or(runner.disconnected_since) {
                    (components::time(caller.now, at))
                }
            }
        }
    }
}
