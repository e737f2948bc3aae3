//! List of runners.
use maud::{Markup, html};
use schemas::control::{
    Page,
    runners::{EnrolmentToken, Runner},
};

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
    /// Newest enrolment tokens. Empty if the caller may not list them.
    pub tokens: Vec<EnrolmentToken>,
    /// Id of the enrolment token that was just revoked.
    pub revoked: Option<String>,
}

/// Runners page.
#[must_use]
pub fn runners(caller: &Caller, page: &RunnersPage) -> Markup {
    let RunnersPage { runners: page, tokens, revoked } = page;
    let content = html! {
        (frame::title(caller, &Updates::of_types(&["runner", "enrolment", "job", "install"]), "Runners", &html! {}))
        section.panel aria-label="Runners" {
            @if page.items.is_empty() {
                (components::empty("No runner is enrolled yet. This command creates a token for the runner of an install.", &["stead", "installs", "create-enrolment-token", "INSTALL"]))
            } @else { (table(caller, "runners", &page.items)) }
            (next_page("/ui/runners", &[], page.next.as_deref()))
        }
        @if let Some(token) = revoked { p.note.ok { "Revoked the enrolment token " code { (token) } "." } }
        @if caller.may(&[]) { (enrolment_tokens(caller, tokens)) }
    };
    frame::page(caller, Section::Runners, "Runners", &content)
}

/// Newest enrolment tokens, with the forms that create and revoke one.
fn enrolment_tokens(caller: &Caller, tokens: &[EnrolmentToken]) -> Markup {
    html! {
        section.panel aria-label="Enrolment tokens" {
            header { h2 { "Enrolment tokens" } }
            div.body {
                p { "A build runner builds the artifacts of all apps. The page of an install creates the token for its runner." }
                form id="enrol" method="post" action="/ui/runners/enrol" {
                    (frame::change_fields(caller, "enrol"))
                    button type="submit" { "Create a token for a build runner" }
                }
            }
            @if !tokens.is_empty() {
                div.scroll tabindex="0" role="region" aria-label="Enrolment tokens" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Token" }
                                th scope="col" { "State" }
                                th scope="col" { "For" }
                                th scope="col" { "Created" }
                                th scope="col" { "Expires" }
                                th scope="col" { "Runner" }
                                th scope="col" { "Revoke" }
                            }
                        }
                        tbody id="token-rows" data-rows="rows" { @for token in tokens { (token_row(caller, token)) } }
                    }
                }
            }
        }
    }
}

fn token_row(caller: &Caller, token: &EnrolmentToken) -> Markup {
    let id = token.id.to_string();
    html! {
        tr id=(id) {
            td.fit { (components::id(&id)) }
            td.fit { (components::badge(&token.state)) }
            td {
                @match (&token.install, &token.install_name) {
                    (Some(install), name) => a href={ "/ui/installs/" (install) } { (name.as_deref().unwrap_or("an install")) },
                    (None, _) => span.muted { "builds" },
                }
            }
            td.fit { (components::time(caller.now, token.created_at)) }
            td.fit { (components::time(caller.now, token.expires_at)) }
            td.fit { @if let Some(runner) = &token.runner { a href={ "/ui/runners/" (runner) } { (components::id(&runner.to_string())) } } }
            td {
                @if token.state == "unused" {
                    details id={ "revoke-" (id) } {
                        summary { "Revoke" span.visually-hidden { " the token " (id) } }
                        form.stacked.menu method="post" action="/ui/runners/revoke-token" {
                            (frame::change_fields(caller, &id))
                            input type="hidden" name="token" value=(id);
                            label { "Reason" input type="text" name="reason" required maxlength="2000"; }
                            div { button.danger type="submit" { "Revoke the token" } }
                        }
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
