//! Partitions of `log_event`: ranges of positions. The role that owns the tables creates them in
//! advance.
//!
//! An append needs no partition: events outside every range go to `log_event_default`. If the
//! default partition has rows, `create_missing` attaches it as the missing range, so no row is
//! moved. A new, empty default partition takes its place.
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, Row};

use crate::{
    migrate::{APPLICATION_ROLE, has_application_role},
    stored::{bigint, number},
};

/// Default number of positions in a partition.
pub const SIZE: u64 = 10_240_000;
/// Number of positions in a block of the tree. Partitions consist of whole blocks, because an
/// append needs the leaves of an unfinished block as rows.
pub const BLOCK: u64 = 256;
/// Number of empty partitions that a server with table privileges keeps ahead of the head.
pub const AHEAD: u64 = 1;
/// Number of empty partitions that `stead migrate` creates. The servers may have no privilege to
/// create more.
pub const FAR_AHEAD: u64 = 4;
/// Lock timeout in milliseconds. Appends queue behind the lock request for at most this time.
const LOCK_MS: u32 = 2_000;
/// Timeout in milliseconds after which the database ends an idle transaction, for example after a
/// lost connection.
const IDLE_TIMEOUT_MS: u32 = 5_000;

/// A range of positions with its own table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub table: String,
    pub first: u64,
    pub last: u64,
}

/// Returns the partitions in order, without the default partition.
///
/// # Errors
/// If a database operation fails.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<Partition>, sqlx::Error> {
    // Bounds are parsed from the text that Postgres prints: FOR VALUES FROM ('1') TO ('257').
    let sql = "select c.relname::text as name, \
           (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''(\\d+)''\\) TO \\(''(\\d+)''\\)')) as bounds \
         from pg_inherits i join pg_class c on c.oid = i.inhrelid \
         where i.inhparent = 'log_event'::regclass and not i.inhdetachpending";
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    let mut all = vec![];
    for row in &rows {
        // The default partition has no bounds.
        let Some(bounds) = row.try_get::<Option<Vec<String>>, _>(1)? else { continue };
        let bound = |at: usize| bounds.get(at).and_then(|text| text.parse::<u64>().ok());
        if let (Some(first), Some(end)) = (bound(0), bound(1)) {
            all.push(Partition { table: row.try_get(0)?, first, last: end.saturating_sub(1) });
        }
    }
    all.sort_by_key(|partition| partition.first);
    Ok(all)
}

/// Creates the missing partitions of `size` positions: for the rows of the default partition,
/// for the head, and `ahead` empty ones. Several programs may call this concurrently. Returns
/// the created partitions.
///
/// # Errors
/// If a database operation fails. Only the owner of the tables may create partitions, but a
/// call that finds none missing does not need this privilege.
pub async fn create_missing(
    owner: &PgPool,
    size: u64,
    ahead: u64,
) -> Result<Vec<Partition>, sqlx::Error> {
    let size = size.max(1).next_multiple_of(BLOCK);
    let mut made = vec![];
    loop {
        let mut connection = owner.acquire().await?;
        let Some(missing) = next_missing(&mut connection, size, ahead).await? else {
            return Ok(made);
        };
        // The transaction begins after the first check. Two transactions that had both read the
        // table would deadlock when they lock it.
        let mut tx = connection.begin().await?;
        // Bounds the wait of readers and appends while this server waits for the lock, or stalls
        // while it holds the lock.
        tx.execute(&*format!(
            "set local lock_timeout = '{LOCK_MS}ms'; \
             set local idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_MS}ms'"
        ))
        .await?;
        // If the default partition has rows, the whole table must be locked. Otherwise it is enough
        // to lock the default partition: attaching a table does not block the others.
        let lock = if missing.takes_rest { "log_event" } else { "log_event_default" };
        tx.execute(&*format!("lock table {lock} in access exclusive mode")).await?;
        // Checked again: another program may have created the partition, or added rows to the
        // default one.
        if self::next_missing(&mut tx, size, ahead).await?.as_ref() != Some(&missing) {
            tx.rollback().await?;
            continue;
        }
        made.push(create_partition(&mut tx, missing).await?);
        tx.commit().await?;
    }
}

/// The next partition to create.
#[derive(PartialEq)]
struct Missing {
    first: u64,
    last: u64,
    /// True if its rows are in the default partition.
    takes_rest: bool,
}

async fn next_missing(
    connection: &mut PgConnection,
    size: u64,
    ahead: u64,
) -> Result<Option<Missing>, sqlx::Error> {
    let end = end_of_partitions(connection).await?;
    let found = "select coalesce((select position from log_head), 0), \
                 (select max(r.position) from log_event_default r, log_head h \
                   where r.position > $1 and r.position <= h.position)";
    let row = sqlx::query(found).bind(bigint(end)).fetch_one(&mut *connection).await?;
    let (head, rest) = (number(row.try_get(0)?), row.try_get::<Option<i64>, _>(1)?);
    let first = end + 1;
    if let Some(rest) = rest {
        let last = (end + size).max(number(rest).next_multiple_of(BLOCK));
        return Ok(Some(Missing { first, last, takes_rest: true }));
    }
    let last_needed = head.saturating_add(ahead.saturating_mul(size));
    Ok((end <= last_needed).then_some(Missing { first, last: end + size, takes_rest: false }))
}

/// Last position that has, or had, a partition.
async fn end_of_partitions(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let made = list(connection).await?.last().map_or(0, |partition| partition.last);
    let archived = "select coalesce(max(last_position), 0) from log_archive";
    Ok(made.max(number(sqlx::query_scalar(archived).fetch_one(connection).await?)))
}

async fn create_partition(
    connection: &mut PgConnection,
    missing: Missing,
) -> Result<Partition, sqlx::Error> {
    let Missing { first, last, takes_rest } = missing;
    let (table, end) = (format!("log_event_{first}"), last + 1);
    let make = if takes_rest {
        format!(
            "alter table log_event detach partition log_event_default; \
             alter table log_event_default rename to {table}; \
             alter index log_event_default_pkey rename to {table}_pkey; \
             alter index log_event_default_stream rename to {table}_stream; \
             alter table log_event attach partition {table} for values from ({first}) to ({end}); \
             create table log_event_default (like {table}, primary key (position), \
               constraint log_event_default_stream unique (aggregate_type, aggregate_id, sequence)); \
             alter table log_event attach partition log_event_default default"
        )
    } else {
        format!(
            "create table {table} (like log_event_default, constraint {table}_pkey primary key (position), \
               constraint {table}_stream unique (aggregate_type, aggregate_id, sequence)); \
             alter table log_event attach partition {table} for values from ({first}) to ({end})"
        )
    };
    connection.execute(&*make).await?;
    keep_from_application(connection).await?;
    Ok(Partition { table, first, last })
}

/// Restricts the database role of servers. The role may read partitions. It may insert rows only
/// through the parent table, and may not change or delete a row.
pub(crate) async fn keep_from_application(
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    if !has_application_role(&mut *connection).await? {
        return Ok(());
    }
    let tables = "select string_agg(inhrelid::regclass::text, ', ') from pg_inherits \
                  where inhparent = 'log_event'::regclass";
    let tables: Option<String> = sqlx::query_scalar(tables).fetch_one(&mut *connection).await?;
    if let Some(tables) = tables {
        let rights = format!(
            "revoke all on {tables} from {APPLICATION_ROLE}; grant select on {tables} to {APPLICATION_ROLE}"
        );
        connection.execute(&*rights).await?;
    }
    Ok(())
}
