//! Selects events by the filters of an auditor. Returns them byte for byte as stored.
use std::collections::HashSet;

use chrono::TimeDelta;
use domain::{
    decider::Timestamp,
    ids::{EventId, PrincipalId},
};
use event_log::{StreamId, archive::FLOOR, encryption::EventContext, read::floor_of};
use schemas::control::audit::{EventRecord, EventsQuery};
use serde_json::value::RawValue;
use sqlx::{Row, postgres::PgRow};
use ulid::Ulid;

use super::states;
use crate::{
    auth::names,
    problem::{Code, Problem},
    queries::filter,
    state::App,
};

mod archived;

/// Number of positions that one statement scans without an index. Bounds the work of a filter that
/// matches few events.
const SCAN_WINDOW: u64 = 100_000;
/// Maximum length of a filter, in bytes.
const MAX_FILTER_BYTES: usize = 200;

const SQL: &str = "select position, encode(uuid_send(event_id), 'hex') as event_id, \
    aggregate_type || '/' || aggregate_id as stream, sequence, event_type, event_version, \
    recorded_at, payload::text as payload, metadata::text as metadata, \
    encode(salt, 'hex') as salt, encode(leaf, 'hex') as leaf, encode(chain, 'hex') as chain, \
    metadata ->> 'actor' as actor, FLOOR as floor from log_event \
    where position > $1 and position <= $2 \
    and ($5::text is null or event_type = $5) \
    and ($6::text is null or starts_with(event_type, $6)) \
    and ($7::text is null or metadata ->> 'actor' = $7) \
    and ";
// Conditions for one stream, and for several streams. A stream has an index, so its statement needs
// no window. The statements are separate, because a generic plan for an optional condition cannot
// use the index.
const ONE_STREAM: &str = "aggregate_type = $3 and aggregate_id = $4";
const ANY_STREAM: &str = "($3::text is null or aggregate_type = $3) and $4::text is null";

/// Filters and range of positions of a query.
pub(super) struct EventSelection {
    /// Position before the range (exclusive start).
    pub after: u64,
    /// Last position of the range (inclusive end).
    pub until: u64,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    event_type: Option<String>,
    event_prefix: Option<String>,
    actor: Option<String>,
}

/// Checks an aggregate type. A misspelled filter would return an empty list that looks valid.
fn check_aggregate_type(filter: &str, kind: &str) -> Result<(), Problem> {
    if states::AGGREGATE_TYPES.contains(&kind) {
        return Ok(());
    }
    let kinds = states::AGGREGATE_TYPES.join(", ");
    let detail = format!(
        "invalid filter `{filter}`: {kind:?} is not an aggregate type; use one of: {kinds}"
    );
    Err(Problem::new(Code::BadRequest, detail))
}

impl EventSelection {
    /// Validates the query and converts times to positions. Times never decrease along the log.
    pub(super) async fn of(app: &App, query: &EventsQuery) -> Result<EventSelection, Problem> {
        let filters =
            [("stream", &query.stream), ("type", &query.event_type), ("actor", &query.actor)];
        for (name, value) in filters {
            let bytes = value.as_ref().map_or(0, String::len);
            if bytes > MAX_FILTER_BYTES {
                let detail = format!(
                    "invalid filter `{name}`: it has {bytes} bytes, but the limit is {MAX_FILTER_BYTES}; shorten it"
                );
                return Err(Problem::new(Code::BadRequest, detail));
            }
        }
        let log = app.engine.log();
        let just_before = |time: Timestamp| time - TimeDelta::microseconds(1);
        let mut after = query.after.unwrap_or(0);
        let mut until = log.position();
        if let Some(since) = query.since {
            after = after.max(log.position_at(just_before(since)).await?);
        }
        if let Some(end) = query.until {
            until = until.min(log.position_at(just_before(end)).await?);
        }
        let (aggregate_type, aggregate_id) = match query.stream.as_deref() {
            Some(stream) if stream.contains('/') => {
                let stream = states::parse_stream(app, stream).await?;
                if app.log().version(&stream).await? == 0 {
                    return Err(Problem::not_found(format!("the stream {stream}")));
                }
                let StreamId { aggregate_type, aggregate_id } = stream;
                (Some(aggregate_type), Some(aggregate_id))
            }
            Some(kind) => {
                check_aggregate_type("stream", kind)?;
                (Some(kind.to_owned()), None)
            }
            None => (None, None),
        };
        let named = query.event_type.clone();
        if let Some(named) = &named {
            let Some((kind, _)) = named.split_once('.') else {
                let detail = format!(
                    "invalid filter `type`: {named:?} is not an event type; for all events of an \
                             aggregate, use a prefix such as `run.`"
                );
                return Err(Problem::new(Code::BadRequest, detail));
            };
            check_aggregate_type("type", kind)?;
            filter::event_type(named)?;
        }
        if let Some(actor) = &query.actor {
            filter::actor(app, actor).await?;
        }
        let (event_prefix, event_type) = match named {
            Some(prefix) if prefix.ends_with('.') => (Some(prefix), None),
            exact => (None, exact),
        };
        let actor = query.actor.clone();
        Ok(EventSelection {
            after,
            until,
            aggregate_type,
            aggregate_id,
            event_type,
            event_prefix,
            actor,
        })
    }

    /// Returns the next events after a position, and the position up to which the log was scanned.
    pub(super) async fn next(
        &self,
        app: &App,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<EventRecord>, u64), Problem> {
        let (of, end) = match &self.aggregate_id {
            Some(_) => (ONE_STREAM, self.until),
            None => (ANY_STREAM, self.until.min(after.saturating_add(SCAN_WINDOW))),
        };
        if end <= after {
            return Ok((Vec::new(), after.min(self.until)));
        }
        let sql = format!("{SQL}{of} order by position limit $8").replace("FLOOR", FLOOR);
        let mut connection = app.pool.acquire().await?;
        let rows = sqlx::query(&sql)
            .bind(bigint(after))
            .bind(bigint(end))
            .bind(&self.aggregate_type)
            .bind(&self.aggregate_id)
            .bind(&self.event_type)
            .bind(&self.event_prefix)
            .bind(&self.actor)
            .bind(i64::from(limit))
            .fetch_all(&mut *connection)
            .await?;
        let floor = floor_of(&mut connection, &rows).await?;
        let mut records = vec![];
        if floor > after {
            let range = (after, end.min(floor));
            let found = archived::find(app.log(), &mut connection, self, range, limit).await?;
            records = found.iter().map(archived::record).collect::<Result<_, _>>()?;
        }
        let left = (limit as usize).saturating_sub(records.len());
        for row in rows.iter().take(left) {
            records.push(record(row)?);
        }
        let full = records.len() == limit as usize;
        let scanned_through = records.last().filter(|_| full).map_or(end, |last| last.position);
        Ok((records, scanned_through))
    }
}

/// Returns the newest events of a stream that are not in an archive, newest first.
pub(super) async fn newest(
    app: &App,
    stream: &StreamId,
    limit: u32,
) -> Result<Vec<EventRecord>, Problem> {
    let sql = format!("{SQL}{ONE_STREAM} order by sequence desc limit $8").replace("FLOOR", FLOOR);
    let none = None::<&str>;
    let rows = sqlx::query(&sql)
        .bind(bigint(0))
        .bind(bigint(app.log().position()))
        .bind(&stream.aggregate_type)
        .bind(&stream.aggregate_id)
        .bind(none)
        .bind(none)
        .bind(none)
        .bind(i64::from(limit))
        .fetch_all(&app.pool)
        .await?;
    rows.iter().map(record).collect()
}

/// Adds the current names of actors. Only lists contain names, because exports must stay identical
/// over time.
pub(super) async fn add_actor_names(app: &App, records: &mut [EventRecord]) -> Result<(), Problem> {
    let principals: HashSet<PrincipalId> =
        records.iter().filter_map(|record| record.actor.parse().ok()).collect();
    let names = names::get(&app.pool, principals).await?;
    for record in records {
        record.actor_name = record.actor.parse().ok().and_then(|id| names.get(&id).cloned());
    }
    Ok(())
}

/// Adds decrypted payloads. Only lists contain them, because exports must stay identical over time.
pub(super) async fn add_readable_payloads(
    app: &App,
    records: &mut [EventRecord],
) -> Result<(), Problem> {
    let mut connection = app.pool.acquire().await?;
    let payloads = records.iter().map(|record| record.payload.get());
    let keys = app.log().key_ring().decryption_keys(&mut connection, payloads).await?;
    for record in records {
        let Some((aggregate_type, aggregate_id)) = record.stream.split_once('/') else { continue };
        let (sequence, event_type) = (record.sequence, &*record.event_type);
        let which = EventContext { aggregate_type, aggregate_id, sequence, event_type };
        // If a payload cannot be decrypted, the record contains only the stored payload.
        let readable = keys.open(record.payload.get(), which).ok().flatten();
        record.readable_payload =
            readable.map(RawValue::from_string).transpose().map_err(Problem::internal)?;
    }
    Ok(())
}

fn record(row: &PgRow) -> Result<EventRecord, Problem> {
    let number = |column: &str| -> Result<u64, sqlx::Error> {
        Ok(row.try_get::<i64, _>(column)?.max(0).cast_unsigned())
    };
    let raw = |column: &str| -> Result<Box<RawValue>, Problem> {
        RawValue::from_string(row.try_get(column)?).map_err(Problem::internal)
    };
    let id: String = row.try_get("event_id")?;
    let id = u128::from_str_radix(&id, 16).map_err(Problem::internal)?;
    Ok(EventRecord {
        position: number("position")?,
        event_id: EventId(Ulid(id)),
        stream: row.try_get("stream")?,
        sequence: number("sequence")?,
        event_type: row.try_get("event_type")?,
        version: row.try_get("event_version")?,
        recorded_at: row.try_get("recorded_at")?,
        actor: row.try_get::<Option<String>, _>("actor")?.unwrap_or_default(),
        actor_name: None,
        payload: raw("payload")?,
        readable_payload: None,
        metadata: raw("metadata")?,
        salt: row.try_get("salt")?,
        leaf: row.try_get("leaf")?,
        chain: row.try_get("chain")?,
    })
}

fn bigint(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}
