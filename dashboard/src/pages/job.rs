//! One job: its attempts, and a page of its log.
use maud::{Markup, html};
use schemas::control::jobs::{Attempt, Job, LogRecord};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Maximum number of lines on a page.
pub const LOG_LINES: usize = 1000;

/// Part of the log of one attempt.
#[derive(Debug, Clone, Default)]
pub struct LogPage {
    /// Number of the attempt. Zero if no attempt exists.
    pub attempt: u32,
    /// Records of the page.
    pub records: Vec<LogRecord>,
    /// True if later records exist.
    pub more: bool,
    /// True if the page shows the newest records, and gets later ones.
    pub follows: bool,
}

/// Job page.
#[must_use]
pub fn job(caller: &Caller, job: &Job, log: &LogPage) -> Markup {
    let heading = match &job.name {
        Some(name) => format!("{} {name}", components::kind(&job.kind)),
        None => components::kind(&job.kind),
    };
    let updates = updates(job, log);
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/runs" { "Runs" }
            @if let Some(run) = &job.run { span { "/" } (components::run_link(run)) }
        }
        (frame::title(caller, &updates, &heading, &components::badge(&job.state)))
        section.panel aria-label="Details" {
            div.body {
                (facts(caller, job, log))
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
        (log_panel(job, log))
    };
    frame::page(caller, Section::Runs, &heading, &content)
}

/// Updates of a page with this part of a log.
pub(super) fn updates(job: &Job, log: &LogPage) -> Updates {
    match (log.follows, log.attempt) {
        (true, 1..) => Updates::Log(format!("/ui/jobs/{}/attempts/{}/live", job.id, log.attempt)),
        (true, 0) => Updates::Events,
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

fn result(attempt: &Attempt) -> Option<String> {
    match (attempt.exit_code, attempt.signal) {
        (_, Some(signal)) => Some(format!("signal {signal}")),
        (Some(code), None) => Some(format!("exit code {code}")),
        (None, None) => None,
    }
}

pub(super) fn log_panel(job: &Job, log: &LogPage) -> Markup {
    let mut phase: Option<&str> = None;
    let lines = log.records.iter().map(|record| {
        let began = (record.p.as_deref() != phase).then_some(record.p.as_deref()).flatten();
        phase = record.p.as_deref();
        (began, record)
    });
    html! {
        section.panel aria-label="Log" {
            header {
                h2 { "Log" }
                @for attempt in &job.attempts {
                    a href={ "/ui/jobs/" (job.id) "?attempt=" (attempt.attempt) } aria-current=[(attempt.attempt == log.attempt).then_some("true")] {
                        "Attempt " (attempt.attempt)
                    }
                }
                @if log.attempt > 0 {
                    a.more href={ "/ui/jobs/" (job.id) "/attempts/" (log.attempt) "/log" } download { "Download" }
                }
            }
            (log_links(job, log))
            @if log.records.is_empty() { (components::empty("The log has no output yet.", &[])) }
            @else {
                div.log id="log" tabindex="0" role="region" aria-label="Output" {
                    @for (began, record) in lines {
                        @if let Some(name) = began { div.phase { (name) } }
                        div class={ "record " (stream(&record.s)) } id={ "L" (record.n) } {
                            a href={ "#L" (record.n) } { (record.n) }
                            span.at { (seconds(record.t)) }
                            span.text { (plain(&record.m)) }
                        }
                    }
                }
            }
        }
    }
}

/// Links to the other parts of a log that does not fit on one page.
fn log_links(job: &Job, log: &LogPage) -> Markup {
    let (first, last) = match (log.records.first(), log.records.last()) {
        (Some(first), Some(last)) => (first.n, last.n),
        (None, _) | (_, None) => (1, 0),
    };
    let part = |after: u64| format!("/ui/jobs/{}?attempt={}&after={after}", job.id, log.attempt);
    html! {
        @if first > 1 || log.more {
            nav.pages aria-label="Parts of the log" {
                span.muted { "Lines " (first) " to " (last) }
                @if first > 1 {
                    a href=(part(0)) { "First" }
                    a href=(part(first.saturating_sub(LOG_LINES as u64 + 1))) { "Earlier" }
                }
                @if log.more {
                    a href=(part(last)) { "Later" }
                    a href={ "/ui/jobs/" (job.id) "?attempt=" (log.attempt) } { "Newest" }
                }
            }
        }
    }
}

fn stream(name: &str) -> &'static str {
    match name {
        "e" => "e",
        "x" => "x",
        _ => "o",
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1_000 % 1_000)
}

/// Text without ANSI control sequences and other control characters.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // A control sequence ends with a character from `@` to `~`.
            for next in characters.by_ref() {
                if ('@'..='~').contains(&next) {
                    break;
                }
            }
        } else if character == '\t' || !character.is_control() {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_text_has_no_control_characters() {
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m\tok\u{7}\u{1b}]0;title"), "red\tok]0;title");
        assert_eq!(plain("cut \u{1b}[3"), "cut ");
    }
}
