//! One runner, and its control.
use maud::{Markup, html};
use schemas::control::runners::{JournalHeads, Runner};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of a runner page.
#[derive(Debug, Clone)]
pub struct RunnerPage {
    /// The runner.
    pub runner: Runner,
    /// Newest signed heads of its journals.
    pub journals: JournalHeads,
}

/// Runner page.
#[must_use]
pub fn runner(caller: &Caller, page: &RunnerPage) -> Markup {
    let RunnerPage { runner, journals } = page;
    let heading = match &runner.install_name {
        Some(name) => format!("Runner of {name}"),
        None => "Build runner".to_owned(),
    };
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/runners" { "Runners" } }
        (frame::title(caller, &Updates::Keys(vec![format!("runner/{}", runner.id), "job".into()]), &heading, &components::badge(&runner.state)))
        div.columns {
            div.stack {
                (facts(caller, runner))
                section.panel aria-label="Jobs" {
                    header { h2 { "Jobs" } }
                    @if runner.jobs.is_empty() { (components::empty("The runner has no job.", &[])) }
                    @else {
                        div.body { ul.plain { @for job in &runner.jobs { li { a href={ "/ui/jobs/" (job) } { (components::id(&job.to_string())) } } } } }
                    }
                }
            }
            @if caller.may(&[]) && runner.state != "revoked" { (control(caller, runner)) }
        }
        (journal_panel(caller, runner, journals))
    };
    frame::page(caller, Section::Runners, &heading, &content)
}

fn facts(caller: &Caller, runner: &Runner) -> Markup {
    html! {
        section.panel aria-label="Details" {
            header { h2 { "Details" } }
            div.body {
                dl.facts {
                    @if let (Some(id), Some(name)) = (&runner.install, &runner.install_name) {
                        div { dt { "Install" } dd { a href={ "/ui/installs/" (id) } { (name) } } }
                    }
                    div { dt { "Version" } dd { (runner.version) } }
                    div { dt { "Host" } dd { (runner.host) } }
                    div { dt { "Enrolled" } dd { (components::time(caller.now, runner.enrolled_at)) } }
                    @if let Some(at) = runner.last_contact.or(runner.disconnected_since) {
                        div { dt { "Last contact" } dd { (components::time(caller.now, at)) } }
                    }
                    @if !runner.disabled_by.is_empty() { div { dt { "Disabled by" } dd { (runner.disabled_by.join(", ")) } } }
                    div { dt { "Id" } dd { (components::id(&runner.id.to_string())) } }
                }
                @if !runner.identity_key.is_empty() { p { span.muted { "Identity key " } code { (runner.identity_key) } } }
                @if let Some(reason) = &runner.reason { p { span.muted { "Reason: " } (reason) } }
            }
        }
    }
}

/// Signed heads of the journals, with the command that compares a journal with one of them.
fn journal_panel(caller: &Caller, runner: &Runner, journals: &JournalHeads) -> Markup {
    html! {
        section.panel aria-label="Journal" {
            header { h2 { "Journal" } }
            @if journals.heads.is_empty() { (components::empty("The runner has sent no head of its journal yet.", &[])) }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Journal heads" {
                    table {
                        thead { tr { th scope="col" { "Journal" } th.number scope="col" { "Entries" } th scope="col" { "Received" } th scope="col" { "Signed head" } } }
                        tbody id="journal-rows" {
                            @for head in &journals.heads {
                                tr {
                                    td.name { code { (head.journal_id) } }
                                    td.number { (head.entries) }
                                    td.fit { (components::time(caller.now, head.received_at)) }
                                    td.payload {
                                        details id={ "head-" (head.journal_id) } {
                                            summary { "Show" span.visually-hidden { " the signed head of journal " (head.journal_id) } }
                                            code { (serde_json::to_string(&head.head).unwrap_or_default()) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                div.body {
                    p.muted { "A head proves how many entries the journal had. The customer compares the journal with it:" }
                    (components::command(&["stead", "runners", "journal-head", &runner.id.to_string()]))
                }
            }
        }
    }
}

/// Verbs of a runner, with their effects.
fn control(caller: &Caller, runner: &Runner) -> Markup {
    let is_disabled = runner.disabled_by.iter().any(|side| side == "vendor");
    let verb = |name: &str, label: &str, effect: &str| {
        html! {
            details id=(name) {
                summary { (label) }
                form.stacked method="post" action={ "/ui/runners/" (runner.id) "/control" } {
                    (frame::change_fields(caller, name))
                    input type="hidden" name="verb" value=(name);
                    p { (effect) }
                    label { "Reason" input type="text" name="reason" required maxlength="2000"; }
                    div { button class=(if name == "revoke" { "danger" } else { "primary" }) type="submit" { (label) } }
                }
            }
        }
    };
    html! {
        section.panel aria-label="Control" {
            header { h2 { "Control" } }
            div.body {
                @if runner.state == "drained" { (verb("resume", "Resume", "The runner accepts jobs again.")) }
                @else { (verb("drain", "Drain", "The runner finishes its jobs and accepts no more, for example before maintenance.")) }
                @if is_disabled { (verb("enable", "Enable", "The runner gets jobs again, unless its customer disabled it, too.")) }
                @else { (verb("disable", "Disable", "The runner gets no more jobs until it is enabled.")) }
                (verb("rekey", "Replace its key", "The runner replaces its identity key with a new one."))
                (verb("revoke", "Revoke", "The server rejects the runner from its next request on. This is permanent: the install needs a new enrolment."))
            }
        }
    }
}
