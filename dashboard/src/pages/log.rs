//! Log of one attempt of a job: a page of its lines, its phases, and a search.
use maud::{Markup, html};
use schemas::{
    ansi::Styles,
    control::jobs::{Job, LogRecord},
};

use crate::components;

/// Maximum number of lines on a page.
pub const LOG_LINES: u64 = 1000;
/// Number of characters of a match before the searched text.
const CONTEXT: usize = 80;
/// Maximum number of characters of a match.
const MATCH: usize = 300;

/// Part of the log of one attempt.
#[derive(Debug, Clone, Default)]
pub struct LogPage {
    /// Number of the attempt. Zero if no attempt exists.
    pub attempt: u32,
    /// Records of the page.
    pub records: Vec<LogRecord>,
    /// Styles at the first record.
    pub styles: Styles,
    /// True if later records exist.
    pub more: bool,
    /// Number of the last record of the log.
    pub last: u64,
    /// Phases of the log.
    pub phases: Vec<LogPhase>,
    /// True if the page shows the newest records, and gets later ones.
    pub follows: bool,
    /// Result of a search.
    pub search: Option<LogSearch>,
}

/// Consecutive lines of one phase.
#[derive(Debug, Clone)]
pub struct LogPhase {
    /// Name.
    pub name: String,
    /// Number of the first line.
    pub first: u64,
    /// Number of the last line.
    pub last: u64,
    /// Time between these lines, in microseconds.
    pub micros: u64,
}

/// Lines that contain a searched text.
#[derive(Debug, Clone)]
pub struct LogSearch {
    /// Searched text.
    pub text: String,
    /// Number of the line after which the search started.
    pub from: u64,
    /// Number of the last searched line.
    pub through: u64,
    /// Found records, without control characters.
    pub matches: Vec<LogRecord>,
    /// True if later lines were not searched.
    pub more: bool,
}

/// Panel with the log.
pub(super) fn panel(job: &Job, log: &LogPage) -> Markup {
    html! {
        section.panel id="log-panel" aria-label="Log" {
            header {
                h2 { "Log" }
                @if job.attempts.len() > 1 {
                    nav.attempts aria-label="Attempts" {
                        @for attempt in &job.attempts {
                            a href=(url(job, attempt.attempt, "")) aria-current=[(attempt.attempt == log.attempt).then_some("true")] {
                                "Attempt " (attempt.attempt)
                            }
                        }
                        a href={ "/ui/jobs/" (job.id) "/attempts" } { "Compare" span.visually-hidden { " attempts" } }
                    }
                }
                @if log.attempt > 0 { (tools(job, log)) }
            }
            @if log.phases.len() > 1 { (phases(job, log)) }
            @if let Some(search) = &log.search { (matches(job, log, search)) }
            (parts(job, log, "first-part"))
            @if log.records.is_empty() { (components::empty("The log has no output yet.", &[])) }
            @else { (lines(job, log)) }
            (parts(job, log, "last-part"))
        }
    }
}

/// Address of a part of a log.
fn url(job: &Job, attempt: u32, part: &str) -> String {
    format!("/ui/jobs/{}?attempt={attempt}{part}", job.id)
}

/// Stable address of a line.
pub(super) fn line_url(job: &Job, log: &LogPage, n: u64) -> String {
    url(job, log.attempt, &format!("&line={n}#L{n}"))
}

fn tools(job: &Job, log: &LogPage) -> Markup {
    let download =
        |format: &str| format!("/ui/jobs/{}/attempts/{}/log?format={format}", job.id, log.attempt);
    let text = log.search.as_ref().map(|search| search.text.as_str());
    html! {
        form.search role="search" method="get" action={ "/ui/jobs/" (job.id) } {
            input type="hidden" name="attempt" value=(log.attempt);
            input type="search" name="q" value=[text] maxlength="200" required aria-label="Text in the log" placeholder="Search the log";
            button type="submit" { "Search" }
        }
        span.downloads {
            "Download "
            a href=(download("text")) download { "text" } " · " a href=(download("ndjson")) download { "records" }
        }
    }
}

fn phases(job: &Job, log: &LogPage) -> Markup {
    html! {
        nav.phases aria-label="Phases" {
            @for phase in &log.phases {
                a href=(line_url(job, log, phase.first)) {
                    (phase.name) " "
                    span.muted { (seconds(phase.micros)) " · " (components::count(phase.last - phase.first + 1, "line")) }
                }
            }
        }
    }
}

fn matches(job: &Job, log: &LogPage, search: &LogSearch) -> Markup {
    let query = format!("&q={}&from=", components::encoded(&search.text));
    html! {
        section.matches aria-label="Matches" {
            p {
                strong { (components::count(search.matches.len() as u64, "line")) }
                " of lines " (search.from + 1) " to " (search.through.max(search.from + 1)) " of " (log.last)
                @if search.matches.len() == 1 { " contains " } @else { " contain " }
                code { (search.text) } ". "
                @if search.more { a href=(url(job, log.attempt, &format!("{query}{}", search.through))) { "Search the next lines" } " · " }
                a href=(url(job, log.attempt, "")) { "End the search" }
            }
            @if !search.matches.is_empty() {
                div.log tabindex="0" role="region" aria-label="Found lines" {
                    @for record in &search.matches {
                        @let part = format!("{query}{}&line={1}#L{1}", search.from, record.n);
                        div class={ "record " (stream(&record.s)) } {
                            a href=(url(job, log.attempt, &part)) { (record.n) }
                            span.at { (seconds(record.t)) }
                            span.text { (marked(&record.m, &search.text)) }
                        }
                    }
                }
            }
        }
    }
}

/// Text around the first match, which is marked.
fn marked(text: &str, searched: &str) -> Markup {
    // ASCII letters keep their number of bytes in lower case. Another match is not marked.
    let found = text.to_ascii_lowercase().find(&searched.to_ascii_lowercase());
    let (start, end) = found.map_or((0, 0), |start| (start, start + searched.len()));
    let before = &text[..start];
    let from = before.char_indices().rev().nth(CONTEXT - 1).map_or(0, |(at, _)| at);
    let rest = &text[end..];
    let to = rest.char_indices().nth(MATCH).map_or(rest.len(), |(at, _)| at);
    html! {
        @if from > 0 { "…" } (&before[from..])
        @if start < end { mark { (&text[start..end]) } }
        (&rest[..to]) @if to < rest.len() { "…" }
    }
}

fn lines(job: &Job, log: &LogPage) -> Markup {
    let mut styles = log.styles;
    let folds = log.records.chunk_by(|one, next| one.p == next.p);
    let last = log.records.last().map(|record| record.n);
    html! {
        div.log id="log" tabindex="0" role="region" aria-label="Output" data-last=[last] data-total=(log.last)
            data-more=[log.more.then_some("true")] data-part=(url(job, log.attempt, "&after=")) {
            @for records in folds {
                @let rows = html! { @for record in records { (line(job, log, record, &mut styles)) } };
                @match records.first().and_then(|first| Some((first.n, first.p.as_deref()?))) {
                    Some((first, phase)) => {
                        details.fold id={ "P" (first) } open {
                            summary { (phase) }
                            (rows)
                        }
                    }
                    None => (rows),
                }
            }
        }
    }
}

fn line(job: &Job, log: &LogPage, record: &LogRecord, styles: &mut Styles) -> Markup {
    html! {
        div class={ "record " (stream(&record.s)) } id={ "L" (record.n) } {
            (cells(record, &line_url(job, log, record.n), styles))
        }
    }
}

fn cells(record: &LogRecord, href: &str, styles: &mut Styles) -> Markup {
    html! {
        a href=(href) { (record.n) }
        span.at { (seconds(record.t)) }
        span.text { (components::output(&record.m, styles.of(&record.s))) }
    }
}

/// Lines without ids, because a page shows them beside others. `href` is the address of a line.
pub(super) fn plain_lines(
    label: &str,
    records: &[LogRecord],
    mut styles: Styles,
    href: impl Fn(u64) -> String,
) -> Markup {
    html! {
        div.log tabindex="0" role="region" aria-label=(label) {
            @for record in records {
                div class={ "record " (stream(&record.s)) } { (cells(record, &href(record.n), &mut styles)) }
            }
        }
    }
}

/// Links to the other parts of a log that does not fit on one page.
fn parts(job: &Job, log: &LogPage, id: &str) -> Markup {
    let (first, last) = match (log.records.first(), log.records.last()) {
        (Some(first), Some(last)) => (first.n, last.n),
        (None, _) | (_, None) => (1, 0),
    };
    let part = |after: u64| url(job, log.attempt, &format!("&after={after}"));
    html! {
        @if log.last > 0 {
            nav.pages id=(id) aria-label="Parts of the log" hidden[first <= 1 && !log.more] {
                a rel="first" href=(part(0)) hidden[first <= 1] { "First" }
                a rel="prev" href=(part(first.saturating_sub(LOG_LINES + 1))) hidden[first <= 1] { "Earlier" }
                span.range.muted { "Lines " (first) " to " (last) " of " (log.last) }
                a rel="next" href=(part(last)) hidden[!log.more] { "Later" }
                a rel="last" href=(url(job, log.attempt, "")) hidden[!log.more] { "Newest" }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_has_some_text_around_it() {
        let text = format!("{}Needle{}", "é".repeat(200), "x".repeat(400));
        let html = marked(&text, "nEEdle").into_string();
        assert_eq!(
            html,
            format!("…{}<mark>Needle</mark>{}…", "é".repeat(CONTEXT), "x".repeat(MATCH))
        );
        assert_eq!(marked("<ÄB>", "äb").into_string(), "&lt;ÄB&gt;");
    }
}
