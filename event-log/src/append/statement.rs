//! The one statement: all guards, the head's compare-and-set, all writes. One round trip, one fsync.
use futures::future::BoxFuture;
use sqlx::{
    PgConnection, Postgres, Row,
    postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity},
    query::Query,
};
use uuid::Uuid;

use super::{
    batch::Batch,
    culprits::{Culprits, Known},
    head::Head,
};
use crate::{Column, Stored, SyncView, stored::bigint};

/// Streams and keys change only under the head, whose compare-and-set covers them. Owners of consumers and
/// sessions change outside an append, so their rows are locked by the guard.
const GUARDS: &str = include_str!("guards.sql");
const WRITES: &str = include_str!("writes.sql");
const ANSWER: &str = include_str!("answer.sql");
/// How many parameters come before those of the views.
const PARAMETERS: usize = 48;

/// What became of a batch.
pub(crate) enum Sent {
    /// It is durable, but for those that were known to come too late.
    Committed(Culprits),
    /// Nothing was written, because of these.
    Culprits(Culprits),
    /// Nothing was written, because the head is not where we thought.
    Moved,
    /// Nothing was written, because the database says so.
    Refused(sqlx::Error),
    /// Nobody knows.
    InDoubt(sqlx::Error),
}

/// The text of the statement, which never changes while the program runs.
pub(crate) struct Statement {
    append: String,
    check: String,
}

impl Statement {
    pub(crate) fn of(views: &[std::sync::Arc<dyn SyncView>]) -> Statement {
        let mut rides = String::new();
        let mut offset = PARAMETERS;
        for (number, view) in views.iter().enumerate() {
            let mut used = 0;
            for (part, sql) in view.statements().iter().enumerate() {
                let (sql, highest) = renumbered(sql, offset);
                used = used.max(highest);
                rides.push_str(&format!(",\n ride_{number}_{part} as ({sql})"));
            }
            offset += used;
        }
        let moved = "(select count(*) from head)";
        let locked = GUARDS.replace("/* lock */", "for update");
        Statement {
            append: format!("{locked}{WRITES}{rides}\n{}", ANSWER.replace("/* moved */", moved)),
            check: format!("{GUARDS}\n{}", ANSWER.replace("/* moved */", "1::bigint")),
        }
    }

    /// Send a batch and wait until the database has said everything it has to say about it.
    pub(crate) fn send<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        before: &'a Head,
        batch: &'a Batch,
        rides: Vec<Column>,
        layout: i32,
    ) -> BoxFuture<'a, Sent> {
        let guards =
            bind_guards(sqlx::query(if batch.writes { &self.append } else { &self.check }), batch);
        let query = if batch.writes {
            rides.into_iter().fold(bind_writes(guards, before, batch, layout), bind_column)
        } else {
            guards
        };
        // All rows, not one: the commit comes after the row, and only the end of the answer says it is durable.
        let answer = query.fetch_all(connection);
        Box::pin(async move {
            match answer.await {
                Ok(rows) => outcome(&rows).unwrap_or_else(Sent::InDoubt),
                Err(error) if is_certain(&error) => Sent::Refused(error),
                Err(error) if batch.writes => Sent::InDoubt(error),
                Err(error) => Sent::Refused(error),
            }
        })
    }
}

/// Whether the database itself said that nothing was written. A connection that it ends (FATAL) may have
/// committed before.
fn is_certain(error: &sqlx::Error) -> bool {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(error) => matches!(error.severity(), PgSeverity::Error),
        // Values that could not even be encoded were never sent.
        None => matches!(error, sqlx::Error::Encode(_)),
    }
}

/// Deadlock, serialisation failure, lock time-out: nothing was written, and the next try may well be.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "40P01" | "40001" | "55P03"))
}

/// Whether a commit in the batch may be to blame, as opposed to the database being away.
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    is_certain(error)
}

fn bind_guards<'q>(
    query: Query<'q, Postgres, PgArguments>,
    batch: &'q Batch,
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(&batch.guards.kind)
        .bind(&batch.guards.id)
        .bind(&batch.guards.expected)
        .bind(&batch.keys.principal)
        .bind(&batch.keys.key)
        .bind(batch.head.recorded_at)
        .bind(&batch.consumers.name)
        .bind(&batch.consumers.version)
        .bind(&batch.consumers.shard)
        .bind(&batch.consumers.expected)
        .bind(&batch.consumers.owner_epoch)
        .bind(&batch.sessions.runner)
        .bind(&batch.sessions.server)
        .bind(&batch.sessions.server_epoch)
        .bind(&batch.probes.principal)
        .bind(&batch.probes.key)
}

fn bind_writes<'q>(
    query: Query<'q, Postgres, PgArguments>,
    before: &Head,
    batch: &'q Batch,
    layout: i32,
) -> Query<'q, Postgres, PgArguments> {
    let events = &batch.events;
    let column = |of: fn(&Stored) -> &str| -> Vec<&'q str> { events.iter().map(of).collect() };
    let nodes = &batch.nodes;
    query
        .bind(bigint(before.position))
        .bind(bigint(before.commit_no))
        .bind(before.turn)
        .bind(before.epoch)
        .bind(layout)
        .bind(bigint(batch.head.position))
        .bind(&batch.head.chain[..])
        .bind(batch.keys_expire_at)
        .bind(&batch.keys.request_hash)
        .bind(&batch.keys.first)
        .bind(&batch.keys.last)
        .bind(&batch.keys.answer)
        .bind(&batch.consumers.to)
        .bind(events.iter().map(|event| bigint(event.position)).collect::<Vec<_>>())
        .bind(
            events.iter().map(|one| Uuid::from_bytes(one.event_id.to_bytes())).collect::<Vec<_>>(),
        )
        .bind(column(|event| &event.stream.aggregate_type))
        .bind(column(|event| &event.stream.aggregate_id))
        .bind(events.iter().map(|event| bigint(event.sequence)).collect::<Vec<_>>())
        .bind(column(|event| &event.event_type))
        .bind(column(|event| &event.event_version))
        .bind(column(|event| &event.payload))
        .bind(column(|event| &event.metadata))
        .bind(events.iter().map(|event| &event.salt[..]).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &event.leaf[..]).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &event.chain[..]).collect::<Vec<_>>())
        .bind(&batch.streams.kind)
        .bind(&batch.streams.id)
        .bind(&batch.streams.version)
        .bind(&batch.streams.last_position)
        .bind(nodes.iter().map(|(node, _)| i32::from(node.level)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|(node, _)| bigint(node.index)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|(_, hash)| &hash[..]).collect::<Vec<_>>())
}

fn bind_column(
    query: Query<'_, Postgres, PgArguments>,
    column: Column,
) -> Query<'_, Postgres, PgArguments> {
    match column {
        Column::Text(values) => query.bind(values),
        Column::Bigint(values) => query.bind(values),
        Column::Integer(values) => query.bind(values),
        Column::Boolean(values) => query.bind(values),
        Column::Bytes(values) => query.bind(values),
        Column::Time(values) => query.bind(values),
    }
}

/// What the statement's one row says.
fn outcome(rows: &[PgRow]) -> Result<Sent, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (moved, culprits) = (row.try_get::<i64, _>("moved")? == 1, culprits(row)?);
    // A check that writes nothing always "moves": it is its guards that count.
    let held = culprits.stale.is_empty() && culprits.sessions.is_empty();
    Ok(match (moved, culprits.is_empty()) {
        (true, _) if held => Sent::Committed(culprits),
        (false, true) => Sent::Moved,
        (true | false, _) => Sent::Culprits(culprits),
    })
}

fn culprits(row: &PgRow) -> Result<Culprits, sqlx::Error> {
    fn list<T: serde::de::DeserializeOwned>(
        row: &PgRow,
        name: &str,
    ) -> Result<Vec<T>, sqlx::Error> {
        match row.try_get::<Option<String>, _>(name)? {
            None => Ok(Vec::new()),
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
            }
        }
    }
    let known = list::<Known>(row, "known")?.into_iter();
    let stale = list::<(String, String, u64)>(row, "stale")?.into_iter();
    Ok(Culprits {
        stale: stale.map(|(kind, id, version)| ((kind, id), version)).collect(),
        known: known.map(|one| ((one.principal.clone(), one.key.clone()), one)).collect(),
        consumers: list(row, "consumers")?.into_iter().collect(),
        sessions: list(row, "sessions")?.into_iter().collect(),
    })
}

/// A view's SQL with its parameters moved behind ours, and the highest number it uses.
fn renumbered(sql: &str, offset: usize) -> (String, usize) {
    let (mut text, mut highest) = (String::with_capacity(sql.len() + 16), 0);
    let mut rest = sql;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        let digits = after[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len() - 1);
        text.push_str(before);
        match after[1..=digits].parse::<usize>() {
            Ok(number) => {
                highest = highest.max(number);
                text.push_str(&format!("${}", number + offset));
            }
            Err(_) => text.push_str(&after[..=digits]),
        }
        rest = &after[1 + digits..];
    }
    text.push_str(rest);
    (text, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_view_come_after_ours() {
        let (sql, highest) = renumbered("unnest($1::text[], $12::int[]) || '$' || $2", 45);
        assert_eq!(sql, "unnest($46::text[], $57::int[]) || '$' || $47");
        assert_eq!(highest, 12);
    }
}
