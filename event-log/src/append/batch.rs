//! Batch: commits that one statement writes, with the positions, hashes and rows that they get.
use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use proof::{Hash, chain, leaf::Leaf, tree::Node};
use sqlx::PgConnection;

use super::{
    head::Head,
    intake::{Intake, IntakeEvent, IntakeWrite},
    queue::PendingCommit,
    statement::{InlineRows, KeyRow, StaleKey, StreamGuard, StreamRow},
    versions::StaleStreams,
};
use crate::{ConsumerGuard, InlineProjection, SessionGuard, StoredEvent};

/// Batch as it will be in the log, provided that the head is the expected one.
pub(crate) struct Batch {
    /// Head of the log after the batch.
    pub head: Head,
    pub events: Vec<StoredEvent>,
    /// First and last position of each commit that is not stale.
    pub spans: Vec<(u64, u64)>,
    pub stream_guards: Vec<StreamGuard>,
    pub keys: Vec<KeyRow>,
    pub stale_keys: Vec<StaleKey>,
    /// Guards on consumers, without duplicates: many commits of a batch depend on the same
    /// consumer.
    pub consumers: Vec<ConsumerGuard>,
    pub sessions: Vec<SessionGuard>,
    pub new_streams: Vec<StreamRow>,
    pub grown_streams: Vec<StreamRow>,
    pub nodes: Vec<(Node, Hash)>,
    pub keys_expire_at: DateTime<Utc>,
    /// `true` if the batch writes anything. Otherwise it only checks guards.
    pub writes: bool,
}

impl Batch {
    /// Numbers the events of commits, as if no other server wrote to the log.
    pub(crate) fn number(
        before: &Head,
        commits: &[PendingCommit],
        stale: &StaleStreams,
        now: DateTime<Utc>,
        key_ttl: Duration,
    ) -> Batch {
        let mut head = before.clone();
        head.commit_no += 1;
        // Times must never decrease along positions, even if the clock goes back, because the
        // search for a time is a binary search.
        head.recorded_at = before.recorded_at.max(now);
        let mut batch = Batch {
            keys_expire_at: head.recorded_at + key_ttl,
            head,
            events: Vec::with_capacity(commits.iter().map(|one| one.intake.events).sum()),
            spans: Vec::with_capacity(commits.len()),
            stream_guards: Vec::new(),
            keys: Vec::new(),
            stale_keys: Vec::new(),
            consumers: Vec::new(),
            sessions: Vec::new(),
            new_streams: Vec::new(),
            grown_streams: Vec::new(),
            nodes: Vec::new(),
            writes: false,
        };
        for pending in commits {
            if stale.contains(pending) {
                batch.stale_keys.extend(pending.intake.key.iter().map(|key| StaleKey {
                    principal: key.principal.clone(),
                    key: key.key.clone(),
                }));
            } else {
                batch.add(&pending.intake);
            }
        }
        batch.writes = !batch.events.is_empty() || !batch.keys.is_empty();
        batch
    }

    fn add(&mut self, intake: &Intake) {
        let first = self.head.position + 1;
        for write in &intake.writes {
            self.add_write(write, &intake.metadata);
        }
        let last = self.head.position;
        self.spans.push((first, last));
        self.keys.extend(intake.key.iter().map(|key| KeyRow {
            principal: key.principal.clone(),
            key: key.key.clone(),
            request_hash: key.request_hash,
            first,
            last,
            response: key.response.as_ref().map(ToString::to_string),
        }));
        for guard in &intake.consumers {
            if !self.consumers.contains(guard) {
                self.consumers.push(guard.clone());
            }
        }
        self.sessions.extend_from_slice(&intake.sessions);
    }

    fn add_write(&mut self, write: &IntakeWrite, metadata: &Arc<str>) {
        let IntakeWrite { stream, expected, events } = write;
        let is_new = *expected == 0 && !events.is_empty();
        if !is_new {
            self.stream_guards.push(StreamGuard { stream: stream.clone(), expected: *expected });
        }
        for (event, sequence) in events.iter().zip(expected + 1..) {
            let stored = self.add_event(write, event, sequence, metadata);
            self.events.push(stored);
        }
        if !events.is_empty() {
            let streams = if is_new { &mut self.new_streams } else { &mut self.grown_streams };
            streams.push(StreamRow {
                stream: stream.clone(),
                version: expected + events.len() as u64,
                last_position: self.head.position,
            });
        }
    }

    /// Extends the head by an event, and returns the event as it will be stored.
    fn add_event(
        &mut self,
        write: &IntakeWrite,
        event: &IntakeEvent,
        sequence: u64,
        metadata: &Arc<str>,
    ) -> StoredEvent {
        let Batch { head, nodes, .. } = self;
        head.position += 1;
        let leaf = Leaf {
            position: head.position,
            event_id: event.event_id.to_bytes(),
            aggregate_type: &write.stream.aggregate_type,
            aggregate_id: &write.stream.aggregate_id,
            sequence,
            event_type: &event.event_type,
            event_version: event.version,
            recorded_at_us: head.recorded_at.timestamp_micros(),
            payload_hash: event.payload_hash,
            metadata_hash: event.metadata_hash,
        }
        .hash();
        head.chain = chain::next(&head.chain, &leaf);
        head.edge.push(leaf, |node, hash| {
            if node.level % 8 == 0 {
                nodes.push((node, *hash));
            }
        });
        StoredEvent {
            position: head.position,
            event_id: event.event_id,
            stream: write.stream.clone(),
            sequence,
            event_type: event.event_type.clone(),
            event_version: event.event_version.clone(),
            payload: event.payload.clone(),
            readable: event.readable.clone(),
            metadata: metadata.clone(),
            salt: event.salt,
            leaf,
            chain: head.chain,
            commit_no: head.commit_no,
            recorded_at: head.recorded_at,
        }
    }

    /// Returns true if the batch has nothing to send: all its commits are stale and have no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.stale_keys.is_empty()
    }

    /// Returns the rows that the inline projections write with the batch.
    pub(crate) fn inline_rows<'a>(
        &'a self,
        projections: &'a [Arc<dyn InlineProjection>],
        connection: &'a mut PgConnection,
    ) -> BoxFuture<'a, Result<Vec<InlineRows>, sqlx::Error>> {
        Box::pin(async move {
            let mut inline = Vec::new();
            if self.events.is_empty() {
                return Ok(inline);
            }
            for (projection, rows) in projections.iter().enumerate() {
                let columns = rows.prepare(connection, &self.events).await?;
                if columns.iter().any(|column| !column.is_empty()) {
                    inline.push(InlineRows { projection, columns });
                }
            }
            Ok(inline)
        })
    }
}
