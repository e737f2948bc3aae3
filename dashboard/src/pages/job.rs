//! One job: its attempts, and a page of its log.
use maud::{Markup, html};
use schemas::control::jobs::{Attempt, Job};

use super::log::{self, LogPage};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Job page.
#[must_use]
pub fn job(caller: &Caller, job: &Job, page: &LogPage) -> Markup {
    let heading = heading(job);
    let updates = updates(job, page);
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/runs" { "Runs" }
            @if let Some(run) = &job.run { span { "/" } (components::run_link(run)) }
        }
        (frame::title(caller, &updates, &heading, &components::badge(&job.state)))
        section.panel aria-label="Details" {
            div.body {
                (facts(caller, job, page))
                @if let Some(waiting) = &job.waiting { p { "Waiting: " (waiting.detail) } }
                @if let Some(reason) = &job.reason {
                    p.note.fail { span { code { (reason) } @if let Some(detail) = &job.detail { " " (detail) } } }
                }
                @if let Some(resolution) = &job.resolution {
                    p.muted {
                        "Resolved as " (resolution.resolution) " by " (resolution.by_name.as_deref().unwrap_or(&resolution.by))
                        " " (components::time(caller.now, resolution.at)) ": " (resolution.reason)
                    }
                }
                @if caller.may(&[]) { (actions(caller, job)) }
            }
        }
        (log::panel(job, page))
    };
    frame::page(caller, Section::Runs, &heading, &content)
}

/// Kind of the job, with the component or the action that it works on.
pub(super) fn heading(job: &Job) -> String {
    match &job.name {
        Some(name) => format!("{} {name}", components::kind(&job.kind)),
        None => components::kind(&job.kind),
    }
}

/// Updates of a page with this part of a log.
pub(super) fn updates(job: &Job, log: &LogPage) -> Updates {
    let keys = vec![format!("job/{}", job.id), "runner".into()];
    match (log.follows, log.attempt) {
        (true, 1..) => Updates::Log { name: format!("{}.{}", job.id, log.attempt), keys },
        (true, 0) => Updates::Keys(keys),
        (false, _) => Updates::None,
    }
}

/// Resolution of an unknown outcome, or cancellation. Only owners may request them.
fn actions(caller: &Caller, job: &Job) -> Markup {
    let newest = job.attempts.iter().max_by_key(|attempt| attempt.attempt);
    let url = |verb: &str| format!("/ui/jobs/{}/{verb}", job.id);
    html! {
        @if job.state == "outcome_unknown" {
            @if let Some(attempt) = newest {
                form.inline id="resolve" method="post" action=(url("resolve")) {
                    (frame::change_fields(caller, "resolve"))
                    input type="hidden" name="execution" value=(attempt.execution);
                    label { "Evidence for the resolution" input type="text" name="reason" required maxlength="2000"; }
                    button type="submit" name="resolution" value="succeeded" { "It succeeded" }
                    button type="submit" name="resolution" value="failed" { "It failed" }
                    button type="submit" name="resolution" value="retry" { "Repeat it" }
                }
                p.muted { "Look at the customer's account first. Repeat the work only if that is safe." }
            }
        } @else if job.ended_at.is_none() && !job.cancelling {
            details id="cancel" {
                summary { "Cancel this job" }
                form.inline method="post" action=(url("cancel")) {
                    (frame::change_fields(caller, "cancel"))
                    label { "Reason for the cancellation" input type="text" name="reason" required maxlength="2000"; }
                    button.danger type="submit" { "Cancel the job" }
                }
            }
        }
    }
}

fn facts(caller: &Caller, job: &Job, log: &LogPage) -> Markup {
    let attempt = job.attempts.iter().find(|attempt| attempt.attempt == log.attempt);
    html! {
        dl.facts {
            div { dt { "Queued" } dd { (components::time(caller.now, job.queued_at)) } }
            @if let Some(at) = job.ended_at { div { dt { "Ended" } dd { (components::time(caller.now, at)) } } }
            @if let Some(attempt) = attempt {
                div { dt { "Runner" } dd { (components::id(&attempt.runner.to_string())) } }
                @if let Some(isolation) = &attempt.isolation { div { dt { "Isolation" } dd { (isolation.text()) } } }
                @if let Some(result) = result(attempt) { div { dt { "Result" } dd { (result) } } }
            }
            div { dt { "Id" } dd { (components::id(&job.id.to_string())) } }
        }
        @for warning in attempt.iter().flat_map(|attempt| &attempt.warnings) { p.note.wait { (warning) } }
    }
}

pub(super) fn result(attempt: &Attempt) -> Option<String> {
    match (attempt.exit_code, attempt.signal) {
        (_, Some(signal)) => Some(format!("signal {signal}")),
        (Some(code), None) => Some(format!("exit code {code}")),
        (None, None) => None,
    }
}
