//! Head of the log: its last position with chain, tree and fencing token.
use std::{io, time::Duration};

use chrono::{DateTime, Utc};
use proof::{Hash, chain, tree::Edge};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};
use tokio::time::timeout;

use crate::{
    LogError, StoredEvent,
    connect::DURABLE_COMMITS,
    nodes,
    stored::{COLUMNS, bigint, number},
};

/// Maximum number of events of other servers that a catch-up reads. If there are more, it reads
/// only the head.
const MAX_CATCH_UP: u64 = 4_096;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Row of the head, and the right edge of the tree.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub log_id: String,
    pub position: u64,
    pub commit_no: u64,
    /// Fencing token, column `fence`. A statement that was sent with an older token writes nothing.
    pub fence: i64,
    pub epoch: i64,
    pub format: i32,
    pub chain: Hash,
    pub recorded_at: DateTime<Utc>,
    pub edge: Edge,
}

/// Head as the appender publishes it to the rest of the program.
#[derive(Debug, Clone)]
pub(crate) struct PublishedHead {
    pub position: u64,
    pub epoch: u64,
    pub format: i32,
    pub root: Hash,
    pub chain: Hash,
}

/// Writes of other servers since the last read of the head.
pub(crate) enum ForeignWrites {
    None,
    /// Events that follow the last known head.
    Events(Vec<StoredEvent>),
    /// Too many events, events that cannot be decrypted, or another history.
    Unknown,
}

impl Head {
    /// Reads the head, with its edge from stored nodes and at most 255 leaves. Returns `None` if
    /// the database has no log.
    pub(crate) async fn read(connection: &mut PgConnection) -> Result<Option<Head>, LogError> {
        let Some(mut head) = Head::read_row(connection).await? else { return Ok(None) };
        head.edge = edge(connection, head.position).await.map_err(|error| {
            // The database works, but rows that it must have are missing or invalid.
            if let sqlx::Error::Decode(what) = error {
                return LogError::Damaged { position: head.position, what: what.to_string() };
            }
            error.into()
        })?;
        Ok(Some(head))
    }

    /// Reads only the row, for callers that compute the tree from the events.
    pub(crate) async fn read_row(
        connection: &mut PgConnection,
    ) -> Result<Option<Head>, sqlx::Error> {
        row(connection).await?.as_ref().map(Head::of).transpose()
    }

    /// Reads the head again, because other servers may have written.
    pub(crate) async fn refresh(
        &mut self,
        connection: &mut PgConnection,
    ) -> Result<ForeignWrites, sqlx::Error> {
        let row = row(connection).await?.ok_or(sqlx::Error::RowNotFound)?;
        let mut new = Head::of(&row)?;
        let last = self.position;
        let writes = if new.position == last && new.chain == self.chain {
            new.edge = self.edge.clone();
            ForeignWrites::None
        } else if new.position > last && new.position - last <= MAX_CATCH_UP {
            let events = events_between(connection, last, new.position).await?;
            let follows =
                |event: &StoredEvent| event.chain == chain::next(&self.chain, &event.leaf);
            if events.first().is_some_and(follows) {
                new.edge = self.edge.clone();
                events.iter().for_each(|event| new.edge.push(event.leaf, |_, _| {}));
                ForeignWrites::Events(events)
            } else {
                new.edge = edge(connection, new.position).await?;
                ForeignWrites::Unknown
            }
        } else {
            // There are too many events, or the history differs because the database was restored
            // while this server ran.
            new.edge = edge(connection, new.position).await?;
            ForeignWrites::Unknown
        };
        *self = new;
        Ok(writes)
    }

    /// Returns true if both are the same head of the same history.
    pub(crate) fn is_same(&self, other: &Head) -> bool {
        let row = |head: &Head| {
            let Head { position, commit_no, fence, epoch, format, chain, recorded_at, .. } = head;
            (*position, *commit_no, *fence, *epoch, *format, *chain, *recorded_at)
        };
        self.log_id == other.log_id && row(self) == row(other)
    }

    pub(crate) fn published(&self) -> PublishedHead {
        PublishedHead {
            position: self.position,
            epoch: number(self.epoch),
            format: self.format,
            root: self.edge.root(),
            chain: self.chain,
        }
    }

    fn of(row: &sqlx::postgres::PgRow) -> Result<Head, sqlx::Error> {
        let chain: Vec<u8> = row.try_get("chain")?;
        Ok(Head {
            log_id: row.try_get("log_id")?,
            position: number(row.try_get("position")?),
            commit_no: number(row.try_get("commit_no")?),
            fence: row.try_get("fence")?,
            epoch: row.try_get("epoch")?,
            format: row.try_get("format")?,
            chain: chain
                .try_into()
                .map_err(|_| damaged("the chain link of the log's head does not have 32 bytes"))?,
            recorded_at: row.try_get("recorded_at")?,
            edge: Edge::default(),
        })
    }
}

/// Awaits a response of the database. A timeout counts as a broken connection: TCP itself reports a
/// silent network only after a quarter of an hour.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    response: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let timed_out = |_| Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()));
    timeout(limit, response).await.unwrap_or_else(timed_out)
}

pub(crate) fn no_connection() -> sqlx::Error {
    sqlx::Error::Io(io::ErrorKind::NotConnected.into())
}

/// Opens the appender's own connection, configured for the append statement.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    response_timeout: Duration,
) -> Result<PgConnection, sqlx::Error> {
    with_timeout(CONNECT_TIMEOUT, connect_without_timeout(options, response_timeout)).await
}

async fn connect_without_timeout(
    options: &PgConnectOptions,
    response_timeout: Duration,
) -> Result<PgConnection, sqlx::Error> {
    let options = options.clone().disable_statement_logging();
    let mut connection = PgConnection::connect_with(&options).await?;
    // Planning the append statement for each batch would cost more than running it, so Postgres
    // uses one generic plan. It may make that plan while the tables are still empty. The settings
    // therefore force a plan that finds every row by its key.
    let settings = "set plan_cache_mode = force_generic_plan; set jit = off; \
         set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
         set enable_bitmapscan = off; \
         set default_transaction_isolation = 'read committed'";
    connection.execute(settings).await?;
    connection.execute(DURABLE_COMMITS).await?;
    // The lock timeout is shorter than the response timeout: then the database reports that nothing
    // was written, and the batch is not in doubt.
    let lock_timeout = (response_timeout / 2).as_millis().max(1);
    connection.execute(&*format!("set lock_timeout = {lock_timeout}")).await?;
    Ok(connection)
}

/// Increments the fencing token, so that statements that were sent before write nothing.
pub(crate) async fn bump_fence(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("update log_head set fence = fence + 1").execute(connection).await?;
    Ok(())
}

/// Reads only the position of the head.
pub(crate) async fn position(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("select position from log_head").fetch_one(connection).await?;
    Ok(number(row.try_get(0)?))
}

async fn row(connection: &mut PgConnection) -> Result<Option<sqlx::postgres::PgRow>, sqlx::Error> {
    sqlx::query(
        "select log_id, position, commit_no, fence, epoch, format, chain, recorded_at from log_head",
    )
    .fetch_optional(connection)
    .await
}

async fn edge(connection: &mut PgConnection, size: u64) -> Result<Edge, sqlx::Error> {
    let hashes = nodes::fetch(connection, Edge::nodes(size)).await?;
    Edge::of(size, hashes).ok_or_else(|| damaged("nodes of the tree's edge are missing"))
}

async fn events_between(
    connection: &mut PgConnection,
    after: u64,
    to: u64,
) -> Result<Vec<StoredEvent>, sqlx::Error> {
    let sql = format!(
        "select {COLUMNS} from log_event where position > $1 and position <= $2 order by position"
    );
    let rows = sqlx::query(&sql).bind(bigint(after)).bind(bigint(to)).fetch_all(connection).await?;
    let events = rows.iter().map(StoredEvent::read).collect::<Result<Vec<_>, _>>();
    events.map_err(|error| damaged(&error.to_string()))
}

fn damaged(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}
