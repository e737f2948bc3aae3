//! Where the log is, as far as this process knows.
use std::{io, time::Duration};

use chrono::{DateTime, Utc};
use proof::{Hash, chain, tree::Edge};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};
use tokio::time::timeout;

use crate::{
    LogError, Stored, nodes,
    stored::{COLUMNS, bigint, number},
};

/// How many events of others are read one by one; beyond that only the head is.
const CATCH_UP: u64 = 4_096;
/// How long a connection may take before the next try.
const CONNECT: Duration = Duration::from_secs(5);

/// The head row and the right edge of the tree.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub log_id: String,
    pub position: u64,
    pub commit_no: u64,
    pub turn: i64,
    pub epoch: i64,
    pub layout: i32,
    pub chain: Hash,
    pub recorded_at: DateTime<Utc>,
    pub edge: Edge,
}

/// What the rest of the program sees of the head.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub position: u64,
    pub epoch: u64,
    pub layout: i32,
    pub root: Hash,
    pub chain: Hash,
}

/// What other servers did since the head was read last.
pub(crate) enum Others {
    Nothing,
    Wrote(Vec<Stored>),
    Unknown,
}

impl Head {
    /// Read the head and put the edge together from stored nodes and at most 255 leaves. `None`: no log.
    pub(crate) async fn read(connection: &mut PgConnection) -> Result<Option<Head>, LogError> {
        let Some(mut head) = Head::read_row(connection).await? else { return Ok(None) };
        head.edge = edge(connection, head.position).await.map_err(|error| match error {
            // The database does answer; what it should have is gone.
            sqlx::Error::Decode(what) => {
                LogError::Damaged { position: head.position, what: what.to_string() }
            }
            other => other.into(),
        })?;
        Ok(Some(head))
    }

    /// Only the row, for whoever computes the tree from the events.
    pub(crate) async fn read_row(
        connection: &mut PgConnection,
    ) -> Result<Option<Head>, sqlx::Error> {
        row(connection).await?.as_ref().map(Head::of).transpose()
    }

    /// Read it again, after others may have written.
    pub(crate) async fn advance(
        &mut self,
        connection: &mut PgConnection,
    ) -> Result<Others, sqlx::Error> {
        let row = row(connection).await?.ok_or(sqlx::Error::RowNotFound)?;
        let mut new = Head::of(&row)?;
        let known = self.position;
        let others = if new.position == known && new.chain == self.chain {
            new.edge = self.edge.clone();
            Others::Nothing
        } else if new.position > known && new.position - known <= CATCH_UP {
            let events = between(connection, known, new.position).await?;
            let follows = |event: &Stored| event.chain == chain::next(&self.chain, &event.leaf);
            if events.first().is_some_and(follows) {
                new.edge = self.edge.clone();
                events.iter().for_each(|event| new.edge.push(event.leaf, |_, _| {}));
                Others::Wrote(events)
            } else {
                new.edge = edge(connection, new.position).await?;
                Others::Unknown
            }
        } else {
            // Far ahead; or behind or elsewhere, after a restore beneath a running server.
            new.edge = edge(connection, new.position).await?;
            Others::Unknown
        };
        *self = new;
        Ok(others)
    }

    /// Whether it is this one: what follows from the one follows from the other.
    pub(crate) fn is(&self, other: &Head) -> bool {
        let row = |head: &Head| {
            let Head { position, commit_no, turn, epoch, layout, chain, recorded_at, .. } = head;
            (*position, *commit_no, *turn, *epoch, *layout, *chain, *recorded_at)
        };
        self.log_id == other.log_id && row(self) == row(other)
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen {
            position: self.position,
            epoch: number(self.epoch),
            layout: self.layout,
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
            turn: row.try_get("fence")?,
            epoch: row.try_get("epoch")?,
            layout: row.try_get("format")?,
            chain: chain.try_into().map_err(|_| damaged("the head's chain is not 32 bytes"))?,
            recorded_at: row.try_get("recorded_at")?,
            edge: Edge::default(),
        })
    }
}

/// Whoever has not answered by then is treated as a connection that broke: where a network goes silent, TCP says
/// so after a quarter of an hour.
pub(crate) async fn within<T>(
    limit: Duration,
    asking: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let late = |_| Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()));
    timeout(limit, asking).await.unwrap_or_else(late)
}

/// A connection of the appender's own, set up for the one statement it sends.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    answer: Duration,
) -> Result<PgConnection, sqlx::Error> {
    within(CONNECT, connected(options, answer)).await
}

async fn connected(
    options: &PgConnectOptions,
    answer: Duration,
) -> Result<PgConnection, sqlx::Error> {
    let options = options.clone().disable_statement_logging();
    let mut connection = PgConnection::connect_with(&options).await?;
    // The statement is long and always the same: planning it again for each batch would cost more than running
    // it. The one plan is made while the tables may still be empty, and must be good when they no longer are:
    // look every row up by its key. An acknowledged event is durable, whatever the database's default is.
    let settings = "set plan_cache_mode = force_generic_plan; set jit = off; \
         set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
         set enable_bitmapscan = off; \
         set default_transaction_isolation = 'read committed'; \
         select set_config('synchronous_commit', 'on', false) \
          where current_setting('synchronous_commit') = 'off'";
    connection.execute(settings).await?;
    // A lock that is not given in half the time that we wait for an answer: then the database says itself that
    // nothing was written, and nobody has to be in doubt.
    let locks = format!("set lock_timeout = {}", (answer / 2).as_millis().max(1));
    connection.execute(&*locks).await?;
    Ok(connection)
}

/// Make every statement that was sent with an older turn write nothing.
pub(crate) async fn raise_turn(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("update log_head set fence = fence + 1").execute(connection).await?;
    Ok(())
}

/// Only the head's position.
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
    Edge::of(size, hashes).ok_or_else(|| damaged("the tree's edge is incomplete"))
}

async fn between(
    connection: &mut PgConnection,
    after: u64,
    to: u64,
) -> Result<Vec<Stored>, sqlx::Error> {
    let sql = format!(
        "select {COLUMNS} from log_event where position > $1 and position <= $2 order by position"
    );
    let rows = sqlx::query(&sql).bind(bigint(after)).bind(bigint(to)).fetch_all(connection).await?;
    let events = rows.iter().map(Stored::read).collect::<Result<Vec<_>, _>>();
    events.map_err(|error| damaged(&error.to_string()))
}

fn damaged(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}
