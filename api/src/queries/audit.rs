//! The audit log: events, exports, checkpoints, proofs, past states and differences.
mod bundle;
mod diff;
mod installs_diff;
mod range;
mod records;
mod states;

use bytes::Bytes;
use domain::{decider::Timestamp, ids::InstallId, install::Install};
use event_log::StreamId;
use futures::{StreamExt as _, stream::BoxStream};
use proof::key::VerifierKey;
use schemas::{
    control::{
        audit::{AsOf, AsOfQuery, Checkpoint, EventRecord, Events, EventsQuery, Proof, ProofQuery},
        history::Point,
    },
    keys::KeyUse,
};

pub(crate) use bundle::bundle;
pub(crate) use diff::diff;
pub(crate) use installs_diff::installs_diff;
pub(crate) use range::range;

use crate::{
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Number of events that an export reads at a time.
const EXPORT_PAGE: u32 = 1000;

/// A document that is too large for the memory. An error aborts it, and the reader must detect the
/// incomplete document.
pub(crate) type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Lists events, oldest first.
pub(crate) async fn events(
    app: &App,
    caller: &Caller,
    query: &EventsQuery,
) -> Result<Events, Problem> {
    caller.authorize("GET", "/v1/audit/events")?;
    let limit = query.limit.unwrap_or(50);
    if limit == 0 || limit > 200 {
        return Err(Problem::new(
            Code::BadRequest,
            format!("invalid limit {limit}: it must be between 1 and 200"),
        ));
    }
    let selection = records::EventSelection::of(app, query).await?;
    let (mut items, scanned_through) = selection.next(app, selection.after, limit).await?;
    records::add_actor_names(app, &mut items).await?;
    records::add_readable_payloads(app, &mut items).await?;
    Ok(Events { items, scanned_through, head: selection.until })
}

/// Returns the newest events of an install that tell its history, newest first. Reservations, and the
/// begin of applies, are left out. Reads at most 200 events of the stream.
pub(crate) async fn timeline(
    app: &App,
    caller: &Caller,
    install: InstallId,
) -> Result<Vec<EventRecord>, Problem> {
    caller.authorize("GET", "/v1/audit/events")?;
    let stream = StreamId::of::<Install>(install);
    let mut items = records::newest(app, &stream, 200).await?;
    items.retain(|event| TIMELINE.contains(&event.event_type.as_str()));
    items.truncate(TIMELINE_EVENTS);
    records::add_actor_names(app, &mut items).await?;
    records::add_readable_payloads(app, &mut items).await?;
    Ok(items)
}

/// Maximum number of events of a timeline.
const TIMELINE_EVENTS: usize = 25;
/// Events of an install that its timeline shows.
const TIMELINE: [&str; 13] = [
    "install.created",
    "install.config_pinned",
    "install.inputs_changed",
    "install.auto_approve_changed",
    "install.component_enabled",
    "install.component_disabled",
    "install.stack_outputs_reported",
    "install.stack_outputs_set",
    "install.run_finished",
    "install.component_deployed",
    "install.component_destroyed",
    "install.state_accepted",
    "install.deprovisioned",
];

/// All events up to the current head as NDJSON.
pub(crate) async fn export(
    app: App,
    caller: Caller,
    query: EventsQuery,
) -> Result<ByteStream, Problem> {
    caller.authorize("GET", "/v1/audit/export")?;
    let selection = records::EventSelection::of(&app, &query).await?;
    let lines = async_stream::try_stream! {
        let mut after = selection.after;
        while after < selection.until {
            caller.recheck(&app).map_err(aborted)?;
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
    Ok(lines.boxed())
}

/// Converts a problem into an error that aborts the stream, because the status line is already
/// sent. The client detects the incomplete body.
fn aborted(problem: Problem) -> std::io::Error {
    std::io::Error::other(problem.detail)
}

/// Returns a signed checkpoint of the current head.
pub(crate) fn checkpoint(app: &App, caller: &Caller) -> Result<Checkpoint, Problem> {
    caller.authorize("GET", "/v1/audit/checkpoint")?;
    Ok(signed_checkpoint(app, &app.engine.log().head()))
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

/// Returns an inclusion proof of an event, or a consistency proof with an older checkpoint.
pub(crate) async fn proofs(
    app: &App,
    caller: &Caller,
    which: &ProofQuery,
) -> Result<Proof, Problem> {
    caller.authorize("GET", "/v1/audit/proofs")?;
    let log = app.engine.log();
    let head = log.head();
    let mut proof = Proof {
        checkpoint: signed_checkpoint(app, &head),
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
            let detail =
                "invalid request: it needs exactly one of position and consistent_with; send one";
            return Err(Problem::new(Code::BadRequest, detail));
        }
    };
    proof.hashes = hashes.iter().map(hex::encode).collect();
    Ok(proof)
}

/// Returns the state of an aggregate as of a position or a time.
pub(crate) async fn state(app: &App, caller: &Caller, which: &AsOfQuery) -> Result<AsOf, Problem> {
    caller.authorize("GET", "/v1/audit/state")?;
    let position = resolve_position(app, which.position, which.time).await?;
    let stream = states::parse_stream(app, &which.stream).await?;
    let folded = states::as_of(app, &stream, position).await?;
    if folded.sequence == 0 {
        return Err(states::not_created_yet(app, &stream, position).await?);
    }
    let Point { recorded_at, .. } = point_at(app, position).await?;
    let (stream, sequence, state) = (stream.to_string(), folded.sequence, folded.state);
    Ok(AsOf { stream, position, recorded_at, sequence, state })
}

/// Returns a position with the time of its event. Position 0 has no time.
pub(crate) async fn point_at(app: &App, position: u64) -> Result<Point, Problem> {
    if position == 0 {
        return Ok(Point { position, recorded_at: None });
    }
    let at = app.log().read(position - 1, 1).await?;
    Ok(Point { position, recorded_at: at.first().map(|event| event.recorded_at) })
}

/// Resolves a point of the log: the given position, the last position at the given time, or the
/// head.
pub(crate) async fn resolve_position(
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
            "invalid request: it has a position and a time; send only one",
        )),
    }
}
