//! Group commit: one task per process and log writes all waiting commits as a batch, one statement
//! at a time.
//!
//! ```text
//!  queue ─▶ batch (numbered, hashed) ─▶ statement ─┬─ committed ─▶ send the next batch, publish, acknowledge
//!                                                  ├─ conflicts ─▶ reject those commits, send the others
//!                                                  ├─ moved     ─▶ read the head, number the batch again, send it again
//!                                                  ├─ rejected  ─▶ split the batch until the rejected commit is alone
//!                                                  └─ in doubt  ─▶ bump the fence, query, then one of the above
//! ```
mod ack;
pub(crate) mod batch;
mod catch_up;
mod conflicts;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod head;
mod in_doubt;
mod intake;
mod outcome;
mod pipeline;
mod queue;
mod send;
mod statement;
mod versions;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{PgConnection, postgres::PgConnectOptions};
use tokio::time::timeout;

use crate::{Appended, Clock, InlineProjection, KeyRing, cache::Cache, tree_cache::TreeCache};

pub(crate) use ack::HeadPublisher;
use ack::PendingAcks;
use batch::Batch;
pub(crate) use head::connect as connection;
pub(crate) use head::{Head, PublishedHead};
pub(crate) use intake::Intake;
pub(crate) use pipeline::PreparedBatch;
pub(crate) use queue::{PendingCommit, Queue};
pub(crate) use statement::StatementCache;
pub(crate) use versions::Versions;

/// Maximum time without a read of the head while batches that only check guards keep the appender
/// busy.
const MAX_UNREAD: Duration = Duration::from_secs(1);

/// Task that writes all commits of this process to one log.
pub(crate) struct Appender {
    pub options: PgConnectOptions,
    pub response_timeout: Duration,
    pub clock: Clock,
    /// Format of the log that this program writes.
    pub format: i32,
    pub key_ttl: Duration,
    pub projections: Vec<Arc<dyn InlineProjection>>,
    pub statements: StatementCache,
    pub publisher: HeadPublisher,
    pub connection: Option<PgConnection>,
    pub head: Head,
    pub versions: Versions,
    /// Cached aggregate states, valid only for the current history of the log.
    pub cache: Arc<Cache>,
    /// Cached nodes of the Merkle tree, valid only for the current history of the log.
    pub tree: Arc<TreeCache>,
    pub keys: KeyRing,
    /// `true` if the appender must read the head before the next statement.
    pub is_outdated: bool,
    /// Pipelined batch, if one was prepared while the last batch was in flight.
    pub next: Option<PreparedBatch>,
    /// Acknowledgements of durable commits. They wait at most until the next batch is sent.
    pub acks: PendingAcks,
}

impl Appender {
    /// Writes batches until all senders of commits are dropped. `poll_interval` is `None` if no
    /// other server writes to the log.
    pub(crate) async fn run(mut self, mut queue: Queue, poll_interval: Option<Duration>) {
        loop {
            if let Some(next) = self.next.take() {
                let PreparedBatch { commits, numbered, values } = next;
                self.write(commits, Some((numbered, values)), &mut queue).await;
            } else {
                self.acknowledge();
                if let Some(interval) = poll_interval
                    && timeout(interval, queue.wait_for_commit()).await.is_err()
                {
                    self.poll_head().await;
                    continue;
                }
                let Some(commits) = queue.next().await else { return };
                self.write(commits, None, &mut queue).await;
            }
            if poll_interval.is_some() {
                self.poll_head_if_due().await;
            }
        }
    }

    /// Reads the head if the last read is older than [`MAX_UNREAD`]. A batch that writes also reads
    /// the head. A batch that only checks guards does not.
    async fn poll_head_if_due(&mut self) {
        let is_due = self.publisher.read_at.borrow().elapsed() >= MAX_UNREAD;
        // Without a connection, the next batch opens one and reads the head.
        if is_due && self.connection.is_some() {
            self.acknowledge();
            self.poll_head().await;
        }
    }

    /// Records a committed batch. If a next batch is prepared, the acknowledgements wait until it
    /// is sent.
    fn record_commit(
        &mut self,
        batch: Batch,
        commits: impl Iterator<Item = PendingCommit>,
        read_at: Option<Instant>,
    ) {
        let Batch { head, events, spans, writes, .. } = batch;
        let recorded_at = head.recorded_at;
        if writes {
            self.head = head;
        }
        let commit_no = self.head.commit_no;
        if !events.is_empty() {
            for projection in &self.projections {
                projection.committed(&events);
            }
            self.apply_shredding(&events);
            self.versions.record_events(&events);
        }
        let appended =
            spans.into_iter().map(|(first, last)| Appended { first, last, commit_no, recorded_at });
        self.acks.add(events, commits.zip(appended), read_at);
        if self.next.is_none() {
            self.acknowledge();
        }
    }

    /// Publishes the durable events and acknowledges their commits.
    fn acknowledge(&mut self) {
        self.acks.send(&self.head, &self.tree, &self.publisher);
    }
}
