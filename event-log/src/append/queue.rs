//! Queue of commits, and the selection of those that one batch can write.
use std::collections::{HashMap, VecDeque};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::intake::{BATCH_BYTES, BATCH_EVENTS, Intake};
use crate::{AppendError, Appended, StreamId};

/// Maximum number of yields to other tasks, which may add commits, before a batch is selected.
const MAX_YIELDS: u32 = 32;
/// Number of consecutive yields without a new commit after which the batch is selected.
const MAX_IDLE_YIELDS: u32 = 2;

/// Minimum number of commits in a full batch. From this size on, the round trip is a small share of
/// a batch's cost.
pub(crate) const FULL_BATCH: usize = 32;

/// Commit that waits for its response.
pub(crate) struct PendingCommit {
    pub intake: Intake,
    pub response: oneshot::Sender<Result<Appended, AppendError>>,
    /// Slots of the queue, released with the response. A commit that waits for an earlier commit of
    /// its stream also occupies slots.
    pub _capacity: OwnedSemaphorePermit,
}

impl PendingCommit {
    /// Sends the response. If the caller dropped its receiver, the commit still stays in the log.
    pub(crate) fn respond(self, response: Result<Appended, AppendError>) {
        let _ = self.response.send(response);
    }
}

/// Waiting commits in order of arrival.
pub(crate) struct Queue {
    arrivals: mpsc::UnboundedReceiver<PendingCommit>,
    waiting: VecDeque<PendingCommit>,
    /// Number of commits in the last batch.
    last_batch: usize,
}

/// Resource that at most one commit of a batch may change. Any number of commits may guard it.
#[derive(PartialEq, Eq, Hash)]
enum Resource {
    Stream(StreamId),
    Key(String, String),
    Consumer(String, i32, i32),
}

/// Use of a resource by a commit.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Use {
    /// Guard on a version or position, and on an owner epoch. Commits with the same guard can share
    /// a batch.
    Guard(u64, u64),
    /// Change, or a guard that differs from an earlier one.
    Exclusive,
}

impl Queue {
    pub(crate) fn new(arrivals: mpsc::UnboundedReceiver<PendingCommit>) -> Queue {
        Queue { arrivals, waiting: VecDeque::new(), last_batch: 0 }
    }

    /// Waits until the queue has a commit or all senders are dropped.
    pub(crate) async fn wait_for_commit(&mut self) {
        if self.waiting.is_empty()
            && let Some(first) = self.arrivals.recv().await
        {
            self.waiting.push_back(first);
        }
    }

    /// Returns the next batch, or `None` if the queue is empty and all senders are dropped.
    pub(crate) async fn next(&mut self) -> Option<Vec<PendingCommit>> {
        self.wait_for_commit().await;
        self.drain();
        // Callers that were acknowledged together soon send their next commits, so the queue waits
        // briefly for them. It does not wait for a single caller, which would gain nothing. It does
        // not wait if a full batch is in the queue: the callers prepare their next commits while
        // that batch is written.
        let (mut yields, mut idle) = (0, 0);
        while (self.waiting.len() > 1 || self.last_batch > 1)
            && yields < MAX_YIELDS
            && idle < MAX_IDLE_YIELDS
            && self.waiting.len() < FULL_BATCH
        {
            let before = self.waiting.len();
            tokio::task::yield_now().await;
            self.drain();
            idle = if self.waiting.len() == before { idle + 1 } else { 0 };
            yields += 1;
        }
        let batch = self.select();
        (!batch.is_empty()).then_some(batch)
    }

    /// Waits until more commits arrive. Never returns if all senders are dropped.
    pub(crate) async fn receive_more(&mut self) {
        match self.arrivals.recv().await {
            Some(pending) => self.waiting.push_back(pending),
            None => std::future::pending().await,
        }
        self.drain();
    }

    /// Number of waiting commits.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn drain(&mut self) {
        while let Ok(pending) = self.arrivals.try_recv() {
            self.waiting.push_back(pending);
        }
    }

    /// Removes and returns the commits that one batch can write. A commit waits if the batch is
    /// full, or if an earlier commit excludes its use of a resource.
    pub(crate) fn select(&mut self) -> Vec<PendingCommit> {
        let mut used: HashMap<Resource, Use> = HashMap::new();
        let (mut events, mut bytes) = (0, 0);
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        for pending in self.waiting.drain(..) {
            let uses = uses(&pending.intake);
            let is_free = uses.iter().all(|(resource, needed)| match used.get(resource) {
                None => true,
                Some(Use::Exclusive) => false,
                Some(guard @ Use::Guard(..)) => guard == needed,
            });
            let fits = batch.is_empty()
                || (events + pending.intake.events <= BATCH_EVENTS
                    && bytes + pending.intake.bytes <= BATCH_BYTES
                    && batch.len() < BATCH_EVENTS);
            if is_free && fits {
                events += pending.intake.events;
                bytes += pending.intake.bytes;
                used.extend(uses);
                batch.push(pending);
            } else {
                for (resource, needed) in uses {
                    // A waiting guard blocks later commits that change its resource, but not those
                    // with the same guard.
                    let blocked = used.entry(resource).or_insert(needed);
                    if *blocked != needed {
                        *blocked = Use::Exclusive;
                    }
                }
                later.push_back(pending);
            }
        }
        self.waiting = later;
        self.last_batch = batch.len();
        batch
    }
}

fn uses(intake: &Intake) -> Vec<(Resource, Use)> {
    let streams = intake.writes.iter().map(|write| {
        let is_guard = write.events.is_empty();
        let needed = if is_guard { Use::Guard(write.expected, 0) } else { Use::Exclusive };
        (Resource::Stream(write.stream.clone()), needed)
    });
    let keys = intake
        .key
        .iter()
        .map(|key| (Resource::Key(key.principal.clone(), key.key.clone()), Use::Exclusive));
    let consumers = intake.consumers.iter().map(|guard| {
        let consumer = Resource::Consumer(guard.name.clone(), guard.version, guard.shard);
        (consumer, Use::Guard(guard.expected, guard.owner_epoch))
    });
    streams.chain(keys).chain(consumers).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::actor::Actor;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{Commit, ConsumerGuard, Meta, NewEvent, Write};

    /// Commit that writes to a stream, as a reaction of one consumer at a position.
    fn reaction(stream: &str, expected: u64) -> PendingCommit {
        let event = NewEvent {
            event_type: "build.waiter_added".into(),
            event_version: "1".into(),
            payload: "{}".into(),
            customer: None,
        };
        let stream = StreamId::new("build", stream);
        let write = Write { stream, expected: 0, events: vec![event] };
        let mut commit = Commit::of(Meta::new(Actor::System, "c"), vec![write]);
        let (name, version, shard) = ("policies".into(), 1, 0);
        commit.consumers = vec![ConsumerGuard { name, version, shard, expected, owner_epoch: 1 }];
        let capacity = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let intake = Intake::of(commit, None).unwrap();
        PendingCommit { intake, response: oneshot::channel().0, _capacity: capacity }
    }

    /// Given reactions of one consumer: two of them write to the same stream, and one has another
    /// position. When batches are selected, only two kinds of commits wait: the second write to
    /// that stream, and the commits from the other position on.
    #[tokio::test]
    async fn a_waiting_commit_does_not_block_others_with_the_same_guard() {
        let (send, arrivals) = mpsc::unbounded_channel();
        let mut queue = Queue::new(arrivals);
        for (stream, position) in [("x", 7), ("x", 7), ("y", 7), ("z", 8), ("w", 7)] {
            send.send(reaction(stream, position)).ok().unwrap();
        }
        queue.wait_for_commit().await;
        queue.drain();
        let streams = |batch: Vec<PendingCommit>| -> Vec<String> {
            batch.iter().map(|one| one.intake.writes[0].stream.aggregate_id.clone()).collect()
        };
        assert_eq!(streams(queue.select()), ["x", "y"]);
        // A later commit does not overtake one that waits for another position.
        assert_eq!(streams(queue.select()), ["x"]);
        assert_eq!(streams(queue.select()), ["z"]);
        assert_eq!(streams(queue.select()), ["w"]);
    }
}
