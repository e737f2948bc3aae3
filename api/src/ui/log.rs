//! Job page with a part of its log, and the download of a log.
use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use dashboard::pages::{self, AttemptsPage, LOG_LINES, LogPage, LogPhase, LogSearch};
use domain::ids::JobId;
use schemas::control::jobs::Job;
use serde::Deserialize;

use super::{
    pages::{caller_of, set},
    response::{Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    problem::{Code, Problem},
    queries::{
        jobs,
        logs::{self, LogRecords, PageStart},
        min_position,
    },
    state::App,
};

/// Maximum length of a searched text in bytes.
const MAX_SEARCH_BYTES: usize = 200;

/// Part of a log.
#[derive(Default, Deserialize)]
pub(super) struct Part {
    /// Attempt. Default: the newest.
    attempt: Option<u32>,
    /// Number of the record before the part. Default: the newest records.
    after: Option<u64>,
    /// Number of the last record that an open page of the newest records has.
    since: Option<u64>,
    /// Number of a record that the part contains.
    line: Option<u64>,
    /// Text to search for.
    q: Option<String>,
    /// Number of the record after which the search starts.
    from: Option<u64>,
}

impl Part {
    fn start(&self) -> PageStart {
        match (self.line, self.after.or(self.since)) {
            (Some(n), _) => PageStart::Around(n),
            (None, Some(n)) => PageStart::After(n),
            (None, None) => PageStart::Newest,
        }
    }
}

pub(super) async fn job(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<JobId>>,
    Ui(Query(part)): Ui<Query<Part>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, None).await?;
    let job = jobs::get(&app, &caller, id).await?;
    let log = part_of(&app, &caller, &job, part).await?;
    Ok(Page(pages::job(&caller_of(&app, &caller, &session).await?, &job, &log)))
}

/// Two attempts to compare.
#[derive(Deserialize)]
pub(super) struct Compared {
    /// Default: the attempt before the newest one.
    left: Option<u32>,
    /// Default: the newest attempt.
    right: Option<u32>,
    #[serde(default)]
    part: Edge,
}

/// Lines that a comparison shows.
#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Edge {
    Start,
    #[default]
    End,
}

/// Shows two attempts, one beside the other.
pub(super) async fn attempts(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<JobId>>,
    Ui(Query(compared)): Ui<Query<Compared>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let job = jobs::get(&app, &caller, id).await?;
    let newest = job.attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or(0);
    let right = compared.right.unwrap_or(newest);
    let left = compared.left.unwrap_or(right.saturating_sub(1));
    let is_start = compared.part == Edge::Start;
    let mut logs = Vec::new();
    for attempt in [left, right].into_iter().filter(|attempt| *attempt > 0) {
        let part = Part { attempt: Some(attempt), after: is_start.then_some(0), ..Part::default() };
        logs.push(part_of(&app, &caller, &job, part).await?);
    }
    let page = AttemptsPage { job, logs, is_start };
    Ok(Page(pages::attempts(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Returns a part of the log of a job. A job without attempts has an empty one.
pub(super) async fn part_of(
    app: &App,
    caller: &Caller,
    job: &Job,
    mut part: Part,
) -> Result<LogPage, Problem> {
    set(&mut part.q);
    let newest = job.attempts.iter().map(|attempt| attempt.attempt).max().unwrap_or(0);
    let attempt = part.attempt.unwrap_or(newest);
    if attempt == 0 {
        let follows = job.ended_at.is_none();
        return Ok(LogPage { follows, ..LogPage::default() });
    }
    let log = logs::get(app, caller, (job.id, attempt)).await?;
    let search = match part.q.take() {
        Some(text) => Some(search(app, caller, (job.id, attempt), text, part.from).await?),
        None => None,
    };
    let start = part.start();
    let LogRecords { records, styles, more, last, phases } = log.page(start, LOG_LINES).await?;
    let phases = phases.into_iter().map(|phase| LogPhase {
        name: phase.name,
        first: phase.first,
        last: phase.last,
        micros: phase.times.1 - phase.times.0,
    });
    let is_complete = job.attempts.iter().any(|of| of.attempt == attempt && of.log.is_some());
    let is_newest = part.line.is_none() && part.after.is_none() && attempt == newest;
    let follows = is_newest && search.is_none() && !is_complete && job.ended_at.is_none();
    let phases = phases.collect();
    Ok(LogPage { attempt, records, styles, more, last, phases, follows, search })
}

async fn search(
    app: &App,
    caller: &Caller,
    attempt: (JobId, u32),
    text: String,
    from: Option<u64>,
) -> Result<LogSearch, Problem> {
    if text.len() > MAX_SEARCH_BYTES {
        let detail = format!(
            "cannot search the log: the text has more than {MAX_SEARCH_BYTES} bytes; shorten it"
        );
        return Err(Problem::new(Code::BadRequest, detail));
    }
    let from = from.unwrap_or(0);
    let found = logs::get(app, caller, attempt).await?.search(&text, from).await?;
    let through = found.searched_through;
    Ok(LogSearch { text, from, through, matches: found.records, more: found.more })
}

/// Format of a downloaded log.
#[derive(Deserialize)]
pub(super) struct Download {
    format: Option<Format>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// The text of the job.
    Text,
    /// The records as stored.
    Ndjson,
}

/// Downloads the log of an attempt.
pub(super) async fn download(
    State(app): State<App>,
    Ui(Path((job, attempt))): Ui<Path<(JobId, u32)>>,
    Ui(Query(query)): Ui<Query<Download>>,
    caller: Caller,
) -> Result<Response, PageProblem> {
    let log = logs::get(&app, &caller, (job, attempt)).await?;
    let length = log.length;
    let (kind, extension, body) = match query.format.unwrap_or(Format::Ndjson) {
        Format::Text => ("text/plain; charset=utf-8", "log", Body::from_stream(log.text())),
        Format::Ndjson => {
            ("application/x-ndjson", "ndjson", Body::from_stream(log.bytes(0..length)))
        }
    };
    let name = format!("attachment; filename=\"{job}-{attempt}.{extension}\"");
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, body).into_response())
}
