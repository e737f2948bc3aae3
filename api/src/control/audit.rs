//! `/v1/audit`: events, checkpoints, proofs, and as-of queries.
mod bundle;
mod diff;
mod doctor;
mod installs_between;
mod range;
mod records;
mod states;

pub use bundle::{__path_bundle, bundle};
pub use diff::{__path_diff, diff};
pub use doctor::{__path_examine, examine};
pub use installs_between::{__path_installs_diff, installs_diff};
pub use range::{__path_range, range};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::decider::Timestamp;
use proof::key::VerifierKey;
use schemas::{
    control::{
        audit::{AsOf, AsOfQuery, Checkpoint, EventRecord, Events, EventsQuery, Proof, ProofQuery},
        history::Point,
    },
    keys::KeyUse,
};

use crate::{
    extract::{Caller, Query},
    problem::{ApiResult, Code, Problem},
    state::App,
};

/// Number of events that an export reads at a time.
const EXPORT_PAGE: u32 = 1000;

/// List events, oldest first
///
/// For the next page, set `after` to `scanned_through`. The list is complete when `scanned_through`
/// equals `head`.
#[utoipa::path(
    get, path = "/v1/audit/events", tag = "audit", params(EventsQuery),
    responses((status = 200, body = Events)),
)]
pub async fn events(State(app): State<App>, Query(which): Query<EventsQuery>) -> ApiResult<Events> {
    let limit = which.limit.unwrap_or(50);
    if limit == 0 || limit > 200 {
        return Err(Problem::new(
            Code::BadRequest,
            format!("invalid limit {limit}: it must be between 1 and 200"),
        ));
    }
    let selection = records::EventSelection::of(&app, &which).await?;
    let (mut items, scanned_through) = selection.next(&app, selection.after, limit).await?;
    records::add_actor_names(&app, &mut items).await?;
    records::add_readable_payloads(&app, &mut items).await?;
    Ok(Json(Events { items, scanned_through, head: selection.until }))
}

/// Export the matching events up to the current head as NDJSON
///
/// Each line has the data to recompute the leaf hash of its event.
#[utoipa::path(
    get, path = "/v1/audit/export", tag = "audit", params(EventsQuery),
    responses((status = 200, body = EventRecord, content_type = "application/x-ndjson")),
)]
pub async fn export(
    State(app): State<App>,
    Query(which): Query<EventsQuery>,
    who: Caller,
) -> Result<Response, Problem> {
    let selection = records::EventSelection::of(&app, &which).await?;
    let lines = async_stream::try_stream! {
        let mut after = selection.after;
        while after < selection.until {
            who.recheck(&app).map_err(aborted)?;
            let page = selection.next(&app, after, EXPORT_PAGE).await.map_err(aborted)?;
            let mut text = Vec::new();
            for event in &page.0 {
                serde_json::to_writer(&mut text, event)?;
                text.push(b'\n');
            }
            after = page.1;
            yield Bytes::from(text);
        }
    };
    let lines: std::pin::Pin<Box<dyn futures::Stream<Item = std::io::Result<Bytes>> + Send>> =
        Box::pin(lines);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Converts a problem into an error that aborts the stream, because the status line is already
/// sent. The client detects the incomplete body.
fn aborted(problem: Problem) -> std::io::Error {
    std::io::Error::other(problem.detail)
}

/// Get a signed checkpoint of the current head
#[utoipa::path(
    get, path = "/v1/audit/checkpoint", tag = "audit",
    responses((status = 200, body = Checkpoint)),
)]
pub async fn checkpoint(State(app): State<App>) -> Json<Checkpoint> {
    Json(signed_checkpoint(&app, &app.engine.log().head()))
}

fn signed_checkpoint(app: &App, head: &proof::checkpoint::Checkpoint) -> Checkpoint {
    let keys = app.keys.current();
    let (key, note) = (keys.checkpoints().verifying_key(), head.sign(keys.checkpoints()));
    let former = || keys.former(KeyUse::Checkpoints).map(|former| former.key);
    let verifier = |key| VerifierKey { name: head.origin(), key }.to_string();
    Checkpoint {
        note,
        size: head.size,
        key: hex::encode(key.as_bytes()),
        former_keys: former().map(|key| hex::encode(key.as_bytes())).collect(),
        verifier_key: verifier(key),
        former_verifier_keys: former().map(verifier).collect(),
    }
}

/// Get an inclusion proof of an event or a consistency proof with an older checkpoint
#[utoipa::path(
    get, path = "/v1/audit/proofs", tag = "audit", params(ProofQuery),
    responses((status = 200, body = Proof)),
)]
pub async fn proofs(State(app): State<App>, Query(which): Query<ProofQuery>) -> ApiResult<Proof> {
    let log = app.engine.log();
    let head = log.head();
    let mut proof = Proof {
        checkpoint: signed_checkpoint(&app, &head),
        position: which.position,
        leaf: None,
        consistent_with: which.consistent_with,
        hashes: Vec::new(),
    };
    let hashes = match (which.position, which.consistent_with) {
        (Some(position), None) if (1..=head.size).contains(&position) => {
            let event = log.read(position - 1, 1).await?;
            proof.leaf = event.first().map(|event| hex::encode(event.leaf));
            log.inclusion(position, head.size).await?
        }
        (Some(position), None) => {
            let what = format!("position {position} (the log has positions 1 to {})", head.size);
            return Err(Problem::not_found(what));
        }
        (None, Some(old)) => log.consistency(old, head.size).await?,
        (Some(_), Some(_)) | (None, None) => {
            let detail = "the request needs exactly one of position and consistent_with; send one";
            return Err(Problem::new(Code::BadRequest, detail));
        }
    };
    proof.hashes = hashes.iter().map(hex::encode).collect();
    Ok(Json(proof))
}

/// Get the state of an aggregate as of a position or a time
#[utoipa::path(
    get, path = "/v1/audit/state", tag = "audit", params(AsOfQuery),
    responses((status = 200, body = AsOf)),
)]
pub async fn state(State(app): State<App>, Query(which): Query<AsOfQuery>) -> ApiResult<AsOf> {
    let position = resolve_position(&app, which.position, which.time).await?;
    let stream = states::parse_stream(&app, &which.stream).await?;
    let folded = states::as_of(&app, &stream, position).await?;
    if folded.sequence == 0 {
        return Err(states::not_created_yet(&app, &stream, position).await?);
    }
    let Point { recorded_at, .. } = point_at(&app, position).await?;
    let (stream, sequence, state) = (stream.to_string(), folded.sequence, folded.state);
    Ok(Json(AsOf { stream, position, recorded_at, sequence, state }))
}

/// Returns a position with the time of its event. Position 0 has no time.
pub async fn point_at(app: &App, position: u64) -> Result<Point, Problem> {
    if position == 0 {
        return Ok(Point { position, recorded_at: None });
    }
    let at = app.log().read(position - 1, 1).await?;
    Ok(Point { position, recorded_at: at.first().map(|event| event.recorded_at) })
}

/// Resolves a point of the log: the given position, the last position at the given time, or the
/// head.
pub async fn resolve_position(
    app: &App,
    position: Option<u64>,
    time: Option<Timestamp>,
) -> Result<u64, Problem> {
    let log = app.engine.log();
    let head = log.position();
    match (position, time) {
        (None, None) => Ok(head),
        (Some(position), None) if position <= head => Ok(position),
        (Some(position), None) => {
            let detail =
                format!("position {position} does not exist yet; use a position up to {head}");
            Err(Problem::new(Code::NotFound, detail))
        }
        (None, Some(time)) => Ok(log.position_at(time).await?),
        (Some(_), Some(_)) => Err(Problem::new(
            Code::BadRequest,
            "the request has a position and a time; send only one",
        )),
    }
}
