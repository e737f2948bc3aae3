//! `/v1/audit`: events, checkpoints, proofs, as-of queries, differences and the self-check.
mod doctor;

pub(super) use doctor::{__path_examine, examine};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use proof::bundle::MEDIA_TYPE;
use schemas::control::{
    audit::{AsOf, AsOfQuery, Checkpoint, EventRecord, Events, EventsQuery, Proof, ProofQuery},
    bundles::{BundleQuery, RangeQuery},
    history::{InstallsDiff, InstallsDiffQuery, StreamDiff, StreamDiffQuery},
};

use crate::{
    extract::{Caller, Query},
    problem::{ApiResult, Problem},
    queries::audit::{self, ByteStream},
    state::App,
};

/// Media type of an export.
const NDJSON: &str = "application/x-ndjson";

fn streamed(kind: &'static str, bytes: ByteStream) -> Response {
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(bytes)).into_response()
}

/// List events, oldest first
///
/// For the next page, set `after` to `scanned_through`. The list is complete when `scanned_through`
/// equals `head`.
#[utoipa::path(
    get, path = "/v1/audit/events", tag = "audit", params(EventsQuery),
    responses((status = 200, body = Events)),
)]
pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<EventsQuery>,
) -> ApiResult<Events> {
    audit::events(&app, &caller, &query).await.map(Json)
}

/// Export the matching events up to the current head as NDJSON
///
/// Each line has the data to recompute the leaf hash of its event.
#[utoipa::path(
    get, path = "/v1/audit/export", tag = "audit", params(EventsQuery),
    responses((status = 200, body = EventRecord, content_type = "application/x-ndjson")),
)]
pub(super) async fn export(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<EventsQuery>,
) -> Result<Response, Problem> {
    Ok(streamed(NDJSON, audit::export(app, caller, query).await?))
}

/// Get a signed checkpoint of the current head
#[utoipa::path(
    get, path = "/v1/audit/checkpoint", tag = "audit",
    responses((status = 200, body = Checkpoint)),
)]
pub(super) async fn checkpoint(State(app): State<App>, caller: Caller) -> ApiResult<Checkpoint> {
    audit::checkpoint(&app, &caller).map(Json)
}

/// Get an inclusion proof of an event or a consistency proof with an older checkpoint
#[utoipa::path(
    get, path = "/v1/audit/proofs", tag = "audit", params(ProofQuery),
    responses((status = 200, body = Proof)),
)]
pub(super) async fn proofs(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ProofQuery>,
) -> ApiResult<Proof> {
    audit::proofs(&app, &caller, &query).await.map(Json)
}

/// Get a bundle that proves an event, a stream, or an install with its runs, jobs and builds
///
/// The bundle can be verified offline. docs/audit.md lists its content and what it proves.
#[utoipa::path(
    get, path = "/v1/audit/bundle", tag = "audit", params(BundleQuery),
    responses((status = 200, body = Object, content_type = "application/vnd.stead.bundle.v1+json")),
)]
pub(super) async fn bundle(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<BundleQuery>,
) -> Result<Response, Problem> {
    Ok(streamed(MEDIA_TYPE, audit::bundle(app, caller, query).await?))
}

/// Export a range of the log with a proof of completeness
///
/// The first line has the signed checkpoint and the proofs. Each further line is an event, as in an
/// export. docs/audit.md describes both.
#[utoipa::path(
    get, path = "/v1/audit/range", tag = "audit", params(RangeQuery),
    responses((status = 200, body = EventRecord, content_type = "application/x-ndjson")),
)]
pub(super) async fn range(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<RangeQuery>,
) -> Result<Response, Problem> {
    Ok(streamed(NDJSON, audit::range(app, caller, query).await?))
}

/// Get the state of an aggregate as of a position or a time
#[utoipa::path(
    get, path = "/v1/audit/state", tag = "audit", params(AsOfQuery),
    responses((status = 200, body = AsOf)),
)]
pub(super) async fn state(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AsOfQuery>,
) -> ApiResult<AsOf> {
    audit::state(&app, &caller, &query).await.map(Json)
}

/// Compare a stream at two points: its changed fields, and its runs with approvals and jobs
///
/// Events of an install or a run are grouped by run; other streams list their events. Events after
/// `complete_through` are not listed. To continue, set `from_position` to `complete_through`.
#[utoipa::path(
    get, path = "/v1/audit/diff", tag = "audit", params(StreamDiffQuery),
    responses((status = 200, body = StreamDiff)),
)]
pub(super) async fn diff(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<StreamDiffQuery>,
) -> ApiResult<StreamDiff> {
    audit::diff(&app, &caller, &query).await.map(Json)
}

/// Compare every install at two points
///
/// Lists the fields that differ, and the runs with their requests, approvals and steps. Includes
/// each install that has an event in between, or whose run has one.
#[utoipa::path(
    get, path = "/v1/audit/diff/installs", tag = "audit", params(InstallsDiffQuery),
    responses((status = 200, body = InstallsDiff)),
)]
pub(super) async fn installs_diff(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<InstallsDiffQuery>,
) -> ApiResult<InstallsDiff> {
    audit::installs_diff(&app, &caller, &query).await.map(Json)
}
