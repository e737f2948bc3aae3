//! Resolves the parameters of a bundle: the stream or event, the older checkpoint, and the entries
//! of other streams.
use chrono::TimeDelta;
use domain::{app::App as AppState, decider::Decider, ids::EventId, install::Install};
use event_log::StreamId;
use proof::{
    Hash,
    bundle::{Base64, MAX_OTHERS, Since},
    checkpoint::Checkpoint,
    key::VerifierKey,
};
use sqlx::Row;

use crate::{
    problem::{Code, Problem},
    state::App,
    usecases::{apps, installs},
};

/// Maximum length of a checkpoint.
const MAX_NOTE_BYTES: usize = 4096;
/// Maximum difference between the time in an event's id and its recorded time.
const TIME_WINDOW: TimeDelta = TimeDelta::hours(1);

/// Number of archived events that are read at a time.
const PAGE: u32 = 2_000;

/// Parses a stream. Installs and apps can be given by name.
pub(super) async fn parse_stream(app: &App, stream: &str) -> Result<StreamId, Problem> {
    let (kind, id) = stream.split_once('/').ok_or_else(|| {
        Problem::new(
            Code::BadRequest,
            format!(
                "invalid stream {stream:?}: it has no `/`; use <aggregate type>/<aggregate id>"
            ),
        )
    })?;
    Ok(match kind {
        AppState::NAME => StreamId::new(kind, apps::find(app, id).await?.to_string()),
        Install::NAME => StreamId::new(kind, installs::find(app, id).await?.to_string()),
        _ => StreamId::new(kind, id),
    })
}

/// Returns the position of an event. Ids have no index, so this searches around the time that the
/// id contains.
pub(super) async fn position_of_event(app: &App, event: EventId) -> Result<u64, Problem> {
    let unknown = || Problem::not_found(format!("the event {event}"));
    let milliseconds = i64::try_from(event.0.timestamp_ms()).map_err(|_| unknown())?;
    let created = chrono::DateTime::from_timestamp_millis(milliseconds).ok_or_else(unknown)?;
    let (early, late) =
        (created.checked_sub_signed(TIME_WINDOW), created.checked_add_signed(TIME_WINDOW));
    let after = app.log().position_at(early.ok_or_else(unknown)?).await?;
    let until = app.log().position_at(late.ok_or_else(unknown)?).await?;
    let id = hex::encode(event.0.to_bytes());
    let row = sqlx::query(
        "select position from log_event where position > $1 and position <= $2 and event_id = $3::text::uuid",
    )
    .bind(after.cast_signed())
    .bind(until.cast_signed())
    .bind(id)
    .fetch_optional(&app.pool)
    .await?;
    if let Some(row) = row {
        return Ok(row.try_get::<i64, _>(0)?.cast_unsigned());
    }
    let mut connection = app.pool.acquire().await?;
    let mut at = after;
    loop {
        let archives = app.log().archives();
        let archived = archives.events(&mut connection, (at, until), PAGE).await?;
        at = archived.last().ok_or_else(unknown)?.position;
        if let Some(found) = archived.iter().find(|archived| archived.event_id == event.0) {
            return Ok(found.position);
        }
    }
}

/// Returns the position of the stream's last event that the head covers.
pub(super) async fn last_position(app: &App, stream: &StreamId, size: u64) -> Result<u64, Problem> {
    let row = sqlx::query(
        "select position from log_event where aggregate_type = $1 and aggregate_id = $2 \
         and position <= $3 order by sequence desc limit 1",
    )
    .bind(&stream.aggregate_type)
    .bind(&stream.aggregate_id)
    .bind(size.cast_signed())
    .fetch_optional(&app.pool)
    .await?;
    if let Some(row) = row {
        return Ok(row.try_get::<i64, _>(0)?.cast_unsigned());
    }
    let mut connection = app.pool.acquire().await?;
    let archives = app.log().archives();
    let archived = archives.stream(&mut connection, stream, (0, size), u32::MAX).await?;
    let last = archived.last().ok_or_else(|| Problem::not_found(format!("the stream {stream}")))?;
    Ok(last.position)
}

/// Returns the first position of the entries of other streams, and the tree edge before this
/// position. Rejects the request if a bundle cannot have that many entries.
pub(super) async fn entries_from(
    app: &App,
    from: u64,
    size: u64,
) -> Result<(u64, Vec<Base64<Hash>>), Problem> {
    let positions = size + 1 - from;
    if positions > MAX_OTHERS {
        let detail = format!(
            "cannot create the bundle: it needs entries for {positions} positions, but the limit is {MAX_OTHERS}; \
             send other_entries=none (the bundle then does not prove that the stream ended), or export the log"
        );
        return Err(Problem::new(Code::TooLarge, detail));
    }
    let edge = app.log().edge(from - 1).await?;
    Ok((from, edge.into_iter().map(Base64).collect()))
}

/// Returns the older checkpoint, the key that signed it, and a consistency proof from it to the
/// head.
pub(super) async fn prior_checkpoint(
    app: &App,
    note: &str,
    head: &Checkpoint,
) -> Result<Since, Problem> {
    let invalid =
        |why: &str| Problem::new(Code::Invalid, format!("invalid older checkpoint: {why}"));
    if note.len() > MAX_NOTE_BYTES {
        return Err(invalid("it is longer than 4096 bytes"));
    }
    let keys = app.keys.current().checkpoint_keys();
    let opens = |key: &_| Checkpoint::open(note, std::slice::from_ref(key)).ok();
    let found = keys.iter().find_map(|key| Some((*key, opens(key)?)));
    let (key, older) = found.ok_or_else(|| invalid("no key of this server signed it"))?;
    if older.log_id != head.log_id {
        return Err(invalid(&format!(
            "it belongs to {}, but this log is {}",
            older.origin(),
            head.origin()
        )));
    }
    if older.size > head.size {
        let (had, has) = (older.size, head.size);
        return Err(invalid(&format!(
            "it covers {had} events, but this log has only {has}; keep the checkpoint as evidence"
        )));
    }
    let path = app.log().consistency(older.size, head.size).await?;
    Ok(Since {
        signer: VerifierKey { name: head.origin(), key }.to_string(),
        checkpoint: note.into(),
        consistency: path.into_iter().map(Base64).collect(),
    })
}
