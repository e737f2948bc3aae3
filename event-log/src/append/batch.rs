//! Commits that go together: numbered, chained, in the tree, as columns.
use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use proof::{Hash, chain, leaf::Leaf, tree::Node};
use sqlx::PgConnection;

use super::{head::Head, queue::Pending, versions::StaleStreams};
use crate::{Column, ConsumerGuard, Stored, SyncView, stored::bigint};

/// A batch as it would be in the log if the head is where we think.
pub(crate) struct Batch {
    /// The head after it.
    pub head: Head,
    pub events: Vec<Stored>,
    /// For each commit that is not late the positions of its first and last event.
    pub spans: Vec<(u64, u64)>,
    /// Streams that must be looked at.
    pub guards: Guards,
    pub keys: Keys,
    pub probes: Probes,
    pub consumers: Consumers,
    pub sessions: Sessions,
    /// Streams that must not exist, and begin.
    pub begun: Streams,
    /// Streams that exist, and go on.
    pub grown: Streams,
    pub nodes: Vec<(Node, Hash)>,
    pub keys_expire_at: DateTime<Utc>,
    /// Whether there is anything to write at all.
    pub writes: bool,
}

/// Where streams must be.
#[derive(Default)]
pub(crate) struct Guards {
    pub kind: Vec<String>,
    pub id: Vec<String>,
    pub expected: Vec<i64>,
}

/// Idempotency keys that must be absent, and what is remembered under them.
#[derive(Default)]
pub(crate) struct Keys {
    pub principal: Vec<String>,
    pub key: Vec<String>,
    pub request_hash: Vec<Vec<u8>>,
    pub first: Vec<i64>,
    pub last: Vec<i64>,
    pub answer: Vec<Option<String>>,
}

/// Keys of commits that are known to come too late, perhaps because they were carried out.
#[derive(Default)]
pub(crate) struct Probes {
    pub principal: Vec<String>,
    pub key: Vec<String>,
}

/// Where and whose consumers must be. Many commits of a batch depend on the same one, which is asked for once.
#[derive(Default)]
pub(crate) struct Consumers {
    pub name: Vec<String>,
    pub version: Vec<i32>,
    pub shard: Vec<i32>,
    pub expected: Vec<i64>,
    pub owner_epoch: Vec<i64>,
}

impl Consumers {
    fn add(&mut self, guard: &ConsumerGuard) {
        let (expected, owner_epoch) = (bigint(guard.expected), bigint(guard.owner_epoch));
        let known = (0..self.name.len()).any(|at| {
            (self.expected[at], self.owner_epoch[at]) == (expected, owner_epoch)
                && (self.version[at], self.shard[at]) == (guard.version, guard.shard)
                && self.name[at] == guard.name
        });
        if known {
            return;
        }
        self.name.push(guard.name.clone());
        self.version.push(guard.version);
        self.shard.push(guard.shard);
        self.expected.push(expected);
        self.owner_epoch.push(owner_epoch);
    }
}

/// Whose sessions must be whose.
#[derive(Default)]
pub(crate) struct Sessions {
    pub runner: Vec<String>,
    pub server: Vec<String>,
    pub server_epoch: Vec<i64>,
}

/// Streams that get events.
#[derive(Default)]
pub(crate) struct Streams {
    pub kind: Vec<String>,
    pub id: Vec<String>,
    pub version: Vec<i64>,
    pub last_position: Vec<i64>,
}

impl Batch {
    /// Give every event its place, as if nobody else wrote.
    pub(crate) fn number(
        before: &Head,
        commits: &[Pending],
        late: &StaleStreams,
        now: DateTime<Utc>,
        key_ttl: Duration,
    ) -> Batch {
        let mut head = before.clone();
        head.commit_no += 1;
        // Never backwards, whatever the clock does: time → position is a binary search.
        head.recorded_at = before.recorded_at.max(now);
        let mut batch = Batch {
            keys_expire_at: head.recorded_at + key_ttl,
            head,
            events: Vec::with_capacity(commits.iter().map(|one| one.intake.events).sum()),
            spans: Vec::with_capacity(commits.len()),
            guards: Guards::default(),
            keys: Keys::default(),
            probes: Probes::default(),
            consumers: Consumers::default(),
            sessions: Sessions::default(),
            begun: Streams::default(),
            grown: Streams::default(),
            nodes: Vec::new(),
            writes: false,
        };
        for pending in commits {
            if late.is(pending) {
                batch
                    .probes
                    .principal
                    .extend(pending.intake.key.iter().map(|key| key.principal.clone()));
                batch.probes.key.extend(pending.intake.key.iter().map(|key| key.key.clone()));
            } else {
                batch.add(pending);
            }
        }
        batch.writes = !batch.events.is_empty() || !batch.keys.key.is_empty();
        batch
    }

    fn add(&mut self, pending: &Pending) {
        let intake = &pending.intake;
        let first = self.head.position + 1;
        for write in &intake.writes {
            let begins = write.expected == 0 && !write.events.is_empty();
            if !begins {
                self.guards.kind.push(write.stream.aggregate_type.clone());
                self.guards.id.push(write.stream.aggregate_id.clone());
                self.guards.expected.push(bigint(write.expected));
            }
            for (event, sequence) in write.events.iter().zip(write.expected + 1..) {
                let position = self.head.position + 1;
                let leaf = Leaf {
                    position,
                    event_id: event.event_id.to_bytes(),
                    aggregate_type: &write.stream.aggregate_type,
                    aggregate_id: &write.stream.aggregate_id,
                    sequence,
                    event_type: &event.event_type,
                    event_version: event.version,
                    recorded_at_us: self.head.recorded_at.timestamp_micros(),
                    payload_hash: event.payload_hash,
                    metadata_hash: event.metadata_hash,
                }
                .hash();
                let link = chain::next(&self.head.chain, &leaf);
                let nodes = &mut self.nodes;
                self.head.edge.push(leaf, |node, hash| {
                    if node.level % 8 == 0 {
                        nodes.push((node, *hash));
                    }
                });
                self.head.position = position;
                self.head.chain = link;
                self.events.push(Stored {
                    position,
                    event_id: event.event_id,
                    stream: write.stream.clone(),
                    sequence,
                    event_type: event.event_type.clone(),
                    event_version: event.event_version.clone(),
                    payload: event.payload.clone(),
                    said: event.said.clone(),
                    metadata: intake.metadata.clone(),
                    salt: event.salt,
                    leaf,
                    chain: link,
                    commit_no: self.head.commit_no,
                    recorded_at: self.head.recorded_at,
                });
            }
            if !write.events.is_empty() {
                let streams = if begins { &mut self.begun } else { &mut self.grown };
                streams.kind.push(write.stream.aggregate_type.clone());
                streams.id.push(write.stream.aggregate_id.clone());
                streams.version.push(bigint(write.expected + write.events.len() as u64));
                streams.last_position.push(bigint(self.head.position));
            }
        }
        let last = self.head.position;
        self.spans.push((first, last));
        if let Some(key) = &intake.key {
            self.keys.principal.push(key.principal.clone());
            self.keys.key.push(key.key.clone());
            self.keys.request_hash.push(key.request_hash.to_vec());
            self.keys.first.push(bigint(first));
            self.keys.last.push(bigint(last));
            self.keys.answer.push(key.answer.as_ref().map(ToString::to_string));
        }
        for of in &intake.consumers {
            self.consumers.add(of);
        }
        for session in &intake.sessions {
            self.sessions.runner.push(session.runner.clone());
            self.sessions.server.push(session.server.clone());
            self.sessions.server_epoch.push(bigint(session.server_epoch));
        }
    }

    /// Whether there is nothing to ask the database.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.probes.key.is_empty()
    }

    /// What the synchronous views want to write with it.
    pub(crate) fn rides<'a>(
        &'a self,
        views: &'a [Arc<dyn SyncView>],
        connection: &'a mut PgConnection,
    ) -> BoxFuture<'a, Result<Vec<Ride>, sqlx::Error>> {
        Box::pin(async move {
            let mut rides = Vec::new();
            if !self.events.is_empty() {
                for (number, view) in views.iter().enumerate() {
                    let columns = view.prepare(connection, &self.events).await?;
                    if columns.iter().any(|column| !column.is_empty()) {
                        rides.push(Ride { view: number, columns });
                    }
                }
            }
            Ok(rides)
        })
    }
}

/// What one view writes with a batch.
pub(crate) struct Ride {
    /// Which view.
    pub view: usize,
    /// Its parameters.
    pub columns: Vec<Column>,
}
