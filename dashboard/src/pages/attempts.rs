//! Two attempts of a job, one beside the other.
use maud::{Markup, html};
use schemas::control::jobs::{Attempt, Job};

use super::{job, log, log::LogPage};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Attempts to compare.
#[derive(Debug, Clone)]
pub struct AttemptsPage {
    /// The job.
    pub job: Job,
    /// Parts of the logs of two attempts, the earlier one first. Empty for a job without attempts.
    pub logs: Vec<LogPage>,
    /// True if the parts begin at the first line. Otherwise, they end at the last line.
    pub is_start: bool,
}

/// Page with two attempts.
#[must_use]
pub fn attempts(caller: &Caller, page: &AttemptsPage) -> Markup {
    let AttemptsPage { job, logs, is_start } = page;
    let heading = format!("Attempts of {}", job::heading(job));
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/runs" { "Runs" }
            @if let Some(run) = &job.run { span { "/" } (components::run_link(run)) }
            span { "/" } a href={ "/ui/jobs/" (job.id) } { (job::heading(job)) }
        }
        (frame::title(caller, &Updates::None, &heading, &components::badge(&job.state)))
        (chooser(page))
        @if logs.is_empty() { section.panel { (components::empty("The job has no attempt yet.", &[])) } }
        div.beside {
            @for log in logs { (column(caller, job, log, *is_start)) }
        }
    };
    frame::page(caller, Section::Runs, &heading, &content)
}

fn chooser(page: &AttemptsPage) -> Markup {
    let shown = |at: usize| page.logs.get(at).map(|log| log.attempt);
    let choice = |label: &str, name: &str, chosen: Option<u32>| {
        html! {
            label {
                (label)
                select name=(name) {
                    @for attempt in &page.job.attempts {
                        option value=(attempt.attempt) selected[chosen == Some(attempt.attempt)] { "Attempt " (attempt.attempt) }
                    }
                }
            }
        }
    };
    html! {
        form.inline method="get" action={ "/ui/jobs/" (page.job.id) "/attempts" } {
            (choice("Left", "left", shown(0)))
            (choice("Right", "right", shown(1)))
            label {
                "Lines"
                select name="part" {
                    option value="end" { "Last lines" }
                    option value="start" selected[page.is_start] { "First lines" }
                }
            }
            button type="submit" { "Compare" }
        }
    }
}

fn column(caller: &Caller, job: &Job, log: &LogPage, is_start: bool) -> Markup {
    let label = format!("Attempt {}", log.attempt);
    let attempt = job.attempts.iter().find(|attempt| attempt.attempt == log.attempt);
    html! {
        section.panel aria-label=(label) {
            header {
                h2 { (label) }
                a.more href={ "/ui/jobs/" (job.id) "?attempt=" (log.attempt) } { "Complete log" span.visually-hidden { " of attempt " (log.attempt) } }
            }
            @if let Some(attempt) = attempt { div.body { (facts(caller, attempt)) } }
            @if log.records.is_empty() { (components::empty("The log has no output.", &[])) }
            @else {
                @if let (Some(first), Some(last)) = (log.records.first(), log.records.last()) {
                    p.range.muted {
                        @if is_start { "First" } @else { "Last" } " lines: " (first.n) " to " (last.n) " of " (log.last)
                    }
                }
                (log::plain_lines(&format!("Output of attempt {}", log.attempt), &log.records, log.styles, |n| log::line_url(job, log, n)))
            }
        }
    }
}

fn facts(caller: &Caller, attempt: &Attempt) -> Markup {
    html! {
        dl.facts {
            @if let Some(phase) = &attempt.phase { div { dt { "Phase" } dd { (components::kind(phase)) } } }
            div { dt { "Claimed" } dd { (components::time(caller.now, attempt.claimed_at)) } }
            div { dt { "Runner" } dd { a href={ "/ui/runners/" (attempt.runner) } { (components::id(&attempt.runner.to_string())) } } }
            @if let Some(result) = job::result(attempt) { div { dt { "Result" } dd { (result) } } }
        }
    }
}
