//! Home: what needs attention, then the newest runs, their days, and the versions of the installs.
mod overview;

use maud::{Markup, html};
use schemas::control::{jobs::Job, runners::Runner, runs::RunSummary, tokens::Token};

pub(super) use self::overview::strip;
pub use self::overview::{AppVersions, RunDay};
use super::{
    proofs::{self, Verification},
    runners, runs,
};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the home page.
#[derive(Debug, Clone, Default)]
pub struct Attention {
    /// Runs that wait for an approval.
    pub waiting: Vec<RunSummary>,
    /// Newest failed runs.
    pub failed: Vec<RunSummary>,
    /// Jobs whose outcome is unknown.
    pub unknown: Vec<Job>,
    /// Runners without contact.
    pub disconnected: Vec<Runner>,
    /// Tokens that expire soon. Empty if the caller may not list tokens.
    pub expiring: Vec<Token>,
    /// Number of checked runners, if more exist.
    pub compared_runners: Option<u64>,
    /// Newest runs.
    pub newest: Vec<RunSummary>,
    /// Runs of the last days, oldest day first.
    pub days: Vec<RunDay>,
    /// Versions of the installs by app.
    pub versions: Vec<AppVersions>,
    /// True if `versions` does not count all installs.
    pub are_versions_partial: bool,
    /// Verification of the log by this server.
    pub verification: Verification,
}

/// Home page.
#[must_use]
pub fn home(caller: &Caller, attention: &Attention) -> Markup {
    let Attention { waiting, failed, unknown, disconnected, compared_runners, newest, .. } =
        attention;
    let expiring = &attention.expiring;
    let is_intact = attention.verification.corrupt.is_none();
    let calm = is_intact
        && waiting.is_empty()
        && unknown.is_empty()
        && disconnected.is_empty()
        && expiring.is_empty()
        && failed.is_empty();
    let table = |id: &str, rows: &[RunSummary]| runs::table(caller, id, rows);
    let content = html! {
        (frame::title(caller, &Updates::of_types(&["run", "job", "runner", "install", "app"]), "Home", &html! {}))
        div.stack id="attention" data-rows="sections" {
            @if !is_intact { div id="corrupt" { (proofs::verified(&attention.verification, caller.position)) } }
            @if calm { p.note.ok id="calm" { "Nothing needs attention." } }
            @if !waiting.is_empty() {
                (panel("waiting", "Waiting for approval", Some("/ui/runs?state=waiting_for_approval"), &approvals(caller, waiting)))
            }
            @if !unknown.is_empty() { (panel("unknown", "Unknown outcomes", None, &jobs(caller, unknown))) }
            @if !disconnected.is_empty() {
                (panel("disconnected", "Disconnected runners", Some("/ui/runners"), &runners::table(caller, "disconnected", disconnected)))
            }
            @if !expiring.is_empty() {
                (panel("expiring", "Tokens that expire soon", Some("/ui/settings"), &tokens(caller, expiring)))
            }
            @if let Some(compared) = compared_runners {
                p.muted id="compared" { "Only the first " (compared) " runners are checked for contact." }
            }
            @if !failed.is_empty() {
                (panel("failed", "Newest failed runs", Some("/ui/runs?state=failed"), &table("failed", failed)))
            }
            @if newest.is_empty() {
                section.panel id="newest" {
                    @if attention.versions.is_empty() {
                        (components::empty("No runs yet. Publish an app, then create an install.", &["stead", "apps", "sync", "DIRECTORY"]))
                    } @else { (components::empty("No runs yet. The first run of an install starts when its runner enrols.", &[])) }
                }
            } @else {
                (panel("newest", "Newest runs", Some("/ui/runs"), &table("newest", newest)))
            }
            @if !attention.days.is_empty() { (overview::strip(&attention.days)) }
            @if !attention.versions.is_empty() { (overview::versions(&attention.versions, attention.are_versions_partial)) }
            @if let (Some(verified), None) = (attention.verification.verified, attention.verification.corrupt) {
                p.muted id="verified" { "Log verified up to event " (verified) "." }
            }
        }
    };
    frame::page(caller, Section::Home, "Home", &content)
}

fn panel(id: &str, heading: &str, more: Option<&str>, table: &Markup) -> Markup {
    html! {
        section.panel id=(id) aria-labelledby={ (id) "-heading" } {
            header {
                h2 id={ (id) "-heading" } { (heading) }
                @if let Some(more) = more {
                    a.more href=(more) { "View all" span.visually-hidden { ": " (heading) } }
                }
            }
            (table)
        }
    }
}

/// Runs whose plans wait, with the size of the plans and the time since the first of them.
fn approvals(caller: &Caller, runs: &[RunSummary]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Runs that wait for an approval" {
            table {
                thead {
                    tr {
                        th scope="col" { "Run" }
                        th scope="col" { "Install" }
                        th scope="col" { "Changes" }
                        th.number scope="col" { "Plans" }
                        th scope="col" { "Requested by" }
                        th scope="col" { "Waits since" }
                    }
                }
                tbody id="waiting-rows" data-rows="rows" {
                    @for run in runs {
                        tr id={ "waiting-" (run.id) } {
                            td.name { a href={ "/ui/runs/" (run.id) } title=(run.id) { (components::kind(&run.kind)) } }
                            td { a href={ "/ui/installs/" (run.install) } { (run.install_name) } }
                            @match &run.waiting_plans {
                                Some(plans) => {
                                    td.fit { (components::changes(plans.add, plans.change, plans.destroy)) }
                                    td.number { (plans.plans) }
                                }
                                None => { td {} td.number {} }
                            }
                            td.actor { (components::actor(run.requested_by_name.as_deref().unwrap_or(&run.requested_by))) }
                            td.fit { (components::time(caller.now, run.waiting_plans.as_ref().map_or(run.requested_at, |plans| plans.since))) }
                        }
                    }
                }
            }
        }
    }
}

fn tokens(caller: &Caller, tokens: &[Token]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Tokens that expire soon" {
            table {
                thead { tr { th scope="col" { "User or service" } th scope="col" { "Roles" } th scope="col" { "Expires" } th scope="col" { "Token" } } }
                tbody id="expiring-rows" data-rows="rows" {
                    @for token in tokens {
                        tr id={ "expiring-" (token.id) } {
                            td.name { (token.name.clone().unwrap_or_else(|| token.principal.to_string())) }
                            td { (token.roles.join(", ")) }
                            td.fit { @if let Some(at) = token.expires_at { (components::time(caller.now, at)) } }
                            td.fit { (components::id(&token.id.to_string())) }
                        }
                    }
                }
            }
        }
    }
}

fn jobs(caller: &Caller, jobs: &[Job]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Jobs with an unknown outcome" {
            table {
                thead {
                    tr {
                        th scope="col" { "Job" }
                        th scope="col" { "Component" }
                        th scope="col" { "Run" }
                        th scope="col" { "Queued" }
                    }
                }
                tbody id="unknown-rows" data-rows="rows" {
                    @for job in jobs {
                        tr id={ "unknown-" (job.id) } {
                            td.name {
                                a href={ "/ui/jobs/" (job.id) } { (components::kind(&job.kind)) } " "
                                span.muted { (components::id(&job.id.to_string())) }
                            }
                            td { (job.name.as_deref().unwrap_or("–")) }
                            td.fit { @if let Some(run) = &job.run { (components::run_link(run)) } }
                            td.fit { (components::time(caller.now, job.queued_at)) }
                        }
                    }
                }
            }
        }
    }
}
