//! Sending of a batch until every commit in it is durable or rejected.
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use sqlx::PgConnection;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    Appender,
    batch::Batch,
    conflicts::Conflicts,
    head::{Head, no_connection, with_timeout},
    outcome::{self, Outcome},
    pipeline::{self, NumberedBatch, PreparedBatch},
    queue::{PendingCommit, Queue},
    statement::{BoundStatement, Expected, PreparedValues, Uniqueness},
    versions::Versions,
};
use crate::{AppendError, Clock};

#[cfg(feature = "fault-injection")]
use super::fault_injection;

/// Maximum number of retries of the same commits after a transient error (deadlock, lock timeout).
const MAX_RETRIES: u32 = 20;
/// Maximum number of attempts to reconnect before callers get an error.
const MAX_RECONNECTS: u32 = 3;

/// Batch that was prepared while the previous one was in flight.
type Prepared = (NumberedBatch, Option<PreparedValues>);

/// Result of an attempt to write commits.
enum Attempt {
    /// Every commit is durable or rejected.
    Done,
    /// Some commits have no result yet and must be sent again.
    Again,
}

/// Reaction to a failed attempt. Nothing of the batch was written.
enum Recovery {
    Retry(Duration),
    Reconnect(Duration),
    /// One of several commits may cause the error. Sending the batch in halves isolates that
    /// commit. The other commits lose only round trips.
    Split,
    Fail,
}

impl Recovery {
    fn from(error: &sqlx::Error, commits: usize, attempts: u32) -> Recovery {
        let (rejected, transient) = (outcome::is_rejection(error), outcome::is_transient(error));
        let backoff = |step| Duration::from_millis(u64::from(attempts + 1) * step);
        if transient && attempts < MAX_RETRIES {
            Recovery::Retry(backoff(2))
        } else if rejected && !transient && commits > 1 {
            Recovery::Split
        } else if !rejected && attempts < MAX_RECONNECTS {
            Recovery::Reconnect(backoff(20))
        } else {
            Recovery::Fail
        }
    }
}

impl Appender {
    /// Writes a batch. When it returns, every commit is rejected, or durable and in
    /// [`Appender::acks`].
    pub(super) async fn write(
        &mut self,
        commits: Vec<PendingCommit>,
        mut prepared: Option<Prepared>,
        queue: &mut Queue,
    ) {
        #[cfg(feature = "fault-injection")]
        fault_injection::panic_before_write();
        let mut parts = VecDeque::from([commits]);
        let (mut attempts, mut uniqueness) = (0, Uniqueness::ByConstraint);
        while let Some(mut part) = parts.pop_front() {
            if part.is_empty() {
                continue;
            }
            let attempt = self.attempt(&mut part, &mut uniqueness, prepared.take(), queue).await;
            let error = match attempt {
                Ok(Attempt::Done) => {
                    (attempts, uniqueness) = (0, Uniqueness::ByConstraint);
                    continue;
                }
                Ok(Attempt::Again) => {
                    parts.push_front(part);
                    continue;
                }
                Err(error) => error,
            };
            self.acknowledge();
            match Recovery::from(&error, part.len(), attempts) {
                Recovery::Retry(backoff) => {
                    attempts += 1;
                    sleep(backoff).await;
                }
                Recovery::Reconnect(backoff) => {
                    self.connection = None;
                    attempts += 1;
                    sleep(backoff).await;
                }
                Recovery::Split => {
                    let second = part.split_off(part.len() / 2);
                    parts.push_front(second);
                }
                Recovery::Fail => {
                    self.fail(part, error);
                    attempts = 0;
                    continue;
                }
            }
            parts.push_front(part);
        }
    }

    fn fail(&mut self, commits: Vec<PendingCommit>, error: sqlx::Error) {
        warn!(commits = commits.len(), error = %error, "Cannot write commits");
        if !outcome::is_rejection(&error) {
            self.connection = None;
        }
        let error = Arc::new(error);
        for pending in commits {
            pending.respond(Err(AppendError::Database(error.clone())));
        }
    }

    /// Sends commits once. Rejects and removes the commits that have a conflict.
    async fn attempt(
        &mut self,
        commits: &mut Vec<PendingCommit>,
        uniqueness: &mut Uniqueness,
        prepared: Option<Prepared>,
        queue: &mut Queue,
    ) -> Result<Attempt, sqlx::Error> {
        self.ensure_head().await?;
        if self.head.format != self.format {
            let (known, found) = (self.format, self.head.format);
            for pending in commits.drain(..) {
                pending.respond(Err(AppendError::Layout { known, found }));
            }
            return Ok(Attempt::Done);
        }
        let prepared =
            prepared.filter(|(batch, _)| batch.is_current(&self.head, commits, &mut self.versions));
        let (numbered, values) = prepared.unwrap_or_else(|| {
            let Appender { head, versions, clock, key_ttl, .. } = self;
            (number(head, commits, versions, clock, *key_ttl), None)
        });
        if numbered.batch.is_empty() {
            let mut conflicts = Conflicts::default();
            conflicts.add_stale(numbered.stale);
            conflicts.reject(commits);
            return Ok(Attempt::Done);
        }
        #[cfg(feature = "fault-injection")]
        fault_injection::acknowledge_before_commit(&numbered.batch, commits, &numbered.stale);
        let (outcome, read_at) = self.send(&numbered.batch, values, *uniqueness, queue).await?;
        self.handle(outcome, numbered, commits, uniqueness, read_at).await
    }

    /// Sends a batch. While the batch is in flight, acknowledges the previous batch and prepares
    /// the next one. Returns the outcome. Also returns the start of the statement if the batch
    /// writes, because such a statement reads the head.
    async fn send(
        &mut self,
        batch: &Batch,
        values: Option<PreparedValues>,
        uniqueness: Uniqueness,
        queue: &mut Queue,
    ) -> Result<(Outcome, Option<Instant>), sqlx::Error> {
        let (key_ttl, format, limit) = (self.key_ttl, self.format, self.response_timeout);
        let Appender { head, acks, tree, publisher, statements, versions, clock, .. } = self;
        let Some(connection) = self.connection.as_mut() else { return Err(no_connection()) };
        let mut acknowledge = || acks.send(head, tree, publisher);
        let inline = with_timeout(limit, batch.inline_rows(&self.projections, connection));
        let inline = pipeline::if_pending(inline, &mut acknowledge).await?;
        let expected = Expected { head, format, uniqueness };
        let statement = statements.bind(&expected, batch, values, inline);
        let read_at = batch.writes.then(Instant::now);
        let in_flight = pipeline::after_sending(statement.send(connection, limit), acknowledge);
        let after = if batch.writes { &batch.head } else { &*head };
        let prepare = |commits: Vec<PendingCommit>| {
            let numbered = number(after, &commits, versions, clock, key_ttl);
            let uniqueness = Uniqueness::ByConstraint;
            let expected = Expected { head: after, format, uniqueness };
            let values = PreparedValues::of(&expected, &numbered.batch);
            PreparedBatch { commits, numbered, values }
        };
        let outcome = pipeline::prepare_during(in_flight, queue, &mut self.next, prepare).await;
        Ok((outcome, read_at))
    }

    async fn handle(
        &mut self,
        outcome: Outcome,
        numbered: NumberedBatch,
        commits: &mut Vec<PendingCommit>,
        uniqueness: &mut Uniqueness,
        read_at: Option<Instant>,
    ) -> Result<Attempt, sqlx::Error> {
        let NumberedBatch { batch, stale, .. } = numbered;
        match outcome {
            Outcome::Committed(mut conflicts) => {
                conflicts.add_stale(stale);
                conflicts.reject(commits);
                self.record_commit(batch, commits.drain(..), read_at);
            }
            Outcome::Conflicts(mut conflicts) => {
                self.versions.record_stale(&conflicts.stale);
                conflicts.add_stale(stale);
                conflicts.reject(commits);
            }
            Outcome::HeadMoved => self.is_outdated = true,
            Outcome::NotUnique => *uniqueness = Uniqueness::Queried,
            Outcome::Rejected(error) => return Err(error),
            #[cfg(feature = "fault-injection")]
            Outcome::InDoubt(_) if fault_injection::retries_in_doubt() => self.connection = None,
            Outcome::InDoubt(error) => {
                warn!(error = %error, "Lost the connection during a commit; the outcome of the commit is in doubt");
                self.connection = None;
                let committed = self.resolve_in_doubt(&batch).await;
                info!(committed, "Determined the outcome of an in-doubt commit");
                if committed {
                    // The response with the keys of stale commits is lost. The stale commits are
                    // sent again to look up their keys.
                    let written: Vec<_> =
                        commits.extract_if(.., |pending| !stale.contains(pending)).collect();
                    self.record_commit(batch, written.into_iter(), None);
                }
                // Other servers may have written since.
                self.is_outdated = true;
            }
        }
        Ok(if commits.is_empty() { Attempt::Done } else { Attempt::Again })
    }
}

impl BoundStatement {
    /// Sends the statement and waits for the end of the response, at most as long as `limit`.
    fn send(self, connection: &mut PgConnection, limit: Duration) -> BoxFuture<'_, Outcome> {
        let BoundStatement { sql, values, shape } = self;
        Box::pin(async move {
            let values = match values {
                Ok(values) => values,
                Err(error) => return Outcome::Rejected(error),
            };
            // `fetch_all` instead of `fetch_one`: the database commits after it sends the row, so
            // only the end of the response proves durability.
            let rows = sqlx::query_with(&sql, values).fetch_all(connection);
            match with_timeout(limit, rows).await {
                Ok(rows) => Outcome::read(&rows).unwrap_or_else(Outcome::InDoubt),
                Err(error) => Outcome::of_error(error, shape),
            }
        })
    }
}

/// Numbers commits after a head. Stale commits are left out.
fn number(
    head: &Head,
    commits: &[PendingCommit],
    versions: &mut Versions,
    clock: &Clock,
    key_ttl: Duration,
) -> NumberedBatch {
    let stale = versions.stale_streams(commits);
    let batch = Batch::number(head, commits, &stale, clock.now(), key_ttl);
    NumberedBatch { batch, stale, before: head.clone() }
}
