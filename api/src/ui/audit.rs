//! Audit pages: events, the difference of two points, the checkpoint, and the download of proofs.
use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use dashboard::pages::{self, AuditPage, HistoryPage, ProofsPage, Verification};
use domain::decider::Timestamp;
use proof::bundle::MEDIA_TYPE;
use schemas::{
    control::{
        audit::EventsQuery,
        bundles::BundleQuery,
        history::{InstallsDiff, InstallsDiffQuery, StreamDiffQuery},
    },
    point_in_time::{ACCEPTED_FORMATS, parse_time},
};
use serde::Deserialize;

use super::{
    pages::{caller_of, set},
    response::{Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Query},
    problem::{Code, Problem},
    queries::{audit, min_position},
    state::App,
};

/// Number of events on the audit page.
const EVENTS: u64 = 50;
/// Number of installs on the comparison page.
const INSTALLS: u32 = 20;

/// Position or time.
pub(super) type Point = (Option<u64>, Option<Timestamp>);

/// Parses a position or a time of the log, as the CLI does.
pub(super) fn point(app: &App, text: &str) -> Result<Point, Problem> {
    if let Ok(position) = text.trim().parse() {
        return Ok((Some(position), None));
    }
    let time = parse_time(text.trim(), app.now()).ok_or_else(|| {
        let detail = format!(
            "invalid point {text:?}: it is neither a position nor a time; use a number, or a time such as {ACCEPTED_FORMATS}"
        );
        Problem::new(Code::BadRequest, detail)
    })?;
    Ok((None, Some(time)))
}

/// Filters of the audit page. A form sends its empty fields, too.
#[derive(Deserialize)]
pub(super) struct Filters {
    from: Option<String>,
    until: Option<String>,
    stream: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    actor: Option<String>,
    min_position: Option<u64>,
}

pub(super) async fn events(
    State(app): State<App>,
    Ui(Query(filters)): Ui<Query<Filters>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let Filters { mut from, mut until, mut stream, mut event_type, mut actor, min_position } =
        filters;
    for field in [&mut from, &mut until, &mut stream, &mut event_type, &mut actor] {
        set(field);
    }
    let (position, since) =
        from.as_deref().map(|text| point(&app, text)).transpose()?.unwrap_or_default();
    let end = match until.as_deref().map(|text| point(&app, text)).transpose()? {
        Some((Some(_), _)) => {
            let detail = "page rejected: the end of the list is a position; pass a time";
            return Err(Problem::new(Code::BadRequest, detail).into());
        }
        Some((None, time)) => time,
        None => None,
    };
    min_position::wait(&app, min_position).await?;
    let query = EventsQuery {
        after: position.map(|first| first.saturating_sub(1)),
        stream,
        event_type,
        actor,
        since,
        until: end,
        min_position,
        ..EventsQuery::default()
    };
    let is_filtered = [&query.stream, &query.event_type, &query.actor, &from, &until]
        .iter()
        .any(|of| of.is_some());
    // The form keeps the fields of the user, so that a filter searches from the start of the log.
    let mut read = query.clone();
    if !is_filtered {
        read.after = Some(app.log().position().saturating_sub(EVENTS));
    }
    let events = audit::events(&app, &caller, &read).await?;
    let page = AuditPage { query, from, until, events };
    Ok(Page(pages::audit(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Points to compare. Without a start, the page has only the form.
#[derive(Deserialize)]
pub(super) struct Compare {
    from: Option<String>,
    to: Option<String>,
    stream: Option<String>,
    cursor: Option<String>,
}

pub(super) async fn diff(
    State(app): State<App>,
    Ui(Query(compare)): Ui<Query<Compare>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let Compare { mut from, mut to, mut stream, cursor } = compare;
    for field in [&mut from, &mut to, &mut stream] {
        set(field);
    }
    caller.authorize("GET", "/v1/audit/diff/installs")?;
    min_position::wait(&app, None).await?;
    let to_point = to.as_deref().map(|text| point(&app, text)).transpose()?.unwrap_or_default();
    let (to_position, to_time) = to_point;
    let diff = match (from.as_deref().map(|text| point(&app, text)).transpose()?, &stream) {
        (None, _) => None,
        (Some((from_position, from_time)), None) => {
            let limit = Some(INSTALLS);
            let query = InstallsDiffQuery {
                from_position,
                from_time,
                to_position,
                to_time,
                limit,
                cursor,
                min_position: None,
            };
            Some(audit::installs_diff(&app, &caller, &query).await?)
        }
        (Some((from_position, from_time)), Some(named)) => {
            // The name of an install is enough.
            let stream =
                if named.contains('/') { named.clone() } else { format!("install/{named}") };
            let query = StreamDiffQuery {
                stream,
                from_position,
                from_time,
                to_position,
                to_time,
                min_position: None,
            };
            let diff = audit::diff(&app, &caller, &query).await?;
            let (from, to) = (diff.from.clone(), diff.to.clone());
            Some(InstallsDiff { from, to, items: vec![diff], next: None })
        }
    };
    let page = HistoryPage { from, to, stream, diff };
    Ok(Page(pages::history(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Object to prove: an install, a position, an event, an id or a stream.
#[derive(Deserialize)]
pub(super) struct Object {
    of: Option<String>,
}

pub(super) async fn proofs(
    State(app): State<App>,
    Ui(Query(Object { mut of })): Ui<Query<Object>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    set(&mut of);
    let checkpoint = audit::checkpoint(&app, &caller)?;
    let file = file_name(of.as_deref().unwrap_or_default());
    let page = ProofsPage { checkpoint, verification: verification(&app), of, file };
    Ok(Page(pages::proofs(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Result of the last verification by this server.
pub(super) fn verification(app: &App) -> Verification {
    let corrupt = app.metrics.log_corrupt_position.get().filter(|position| *position > 0);
    Verification { verified: app.metrics.log_verified_position.get(), corrupt }
}

/// Name of the file with a proof. It contains only characters that need no quotes in a header or a shell.
fn file_name(of: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let plain: String = of.chars().take(80).map(|c| if is_plain(c) { c } else { '-' }).collect();
    format!("stead-proof-{plain}.json")
}

/// Response that a browser stores in a file.
pub(super) fn attachment(kind: &'static str, name: &str, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    (headers, body).into_response()
}

pub(super) async fn bundle(
    State(app): State<App>,
    Ui(Query(Object { mut of })): Ui<Query<Object>>,
    caller: Caller,
) -> Result<Response, PageProblem> {
    set(&mut of);
    let of = of.ok_or_else(|| {
        let detail =
            "cannot create the proof: the request names no object; open the page of proofs";
        Problem::new(Code::BadRequest, detail)
    })?;
    let bytes = audit::bundle(app, caller, BundleQuery::of(of.trim())).await?;
    Ok(attachment(MEDIA_TYPE, &file_name(&of), Body::from_stream(bytes)))
}

pub(super) async fn checkpoint(
    State(app): State<App>,
    caller: Caller,
) -> Result<Response, PageProblem> {
    let checkpoint = audit::checkpoint(&app, &caller)?;
    let name = format!("stead-checkpoint-{}.txt", checkpoint.size);
    Ok(attachment("text/plain; charset=utf-8", &name, Body::from(checkpoint.note)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_have_only_plain_characters() {
        assert_eq!(file_name("run/run_1"), "stead-proof-run-run_1.json");
        assert_eq!(file_name("a\"\r\nb; é"), "stead-proof-a---b---.json");
        assert!(file_name(&"x".repeat(900)).len() < 120);
    }
}
