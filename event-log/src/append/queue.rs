//! What is waiting, and which of it can go together.
use std::collections::{HashMap, VecDeque};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::intake::{BATCH_BYTES, BATCH_EVENTS, Intake};
use crate::{AppendError, Appended, StreamId};

/// How often others get a turn to join a batch, at most, before it is sent.
const TURNS: u32 = 32;
/// How many turns in a row may bring nothing before it is sent.
const IDLE_TURNS: u32 = 2;

/// How many make a batch whose cost is theirs and no longer the round trip's.
pub(crate) const ENOUGH: usize = 32;

/// A commit and whoever waits for its answer.
pub(crate) struct Pending {
    pub intake: Intake,
    pub answer: oneshot::Sender<Result<Appended, AppendError>>,
    /// Its place in the queue, held until it is answered: what waits for a stream counts too.
    pub _place: OwnedSemaphorePermit,
}

impl Pending {
    /// Answer; a caller that has gone away does not hear it, and what was written stays.
    pub(crate) fn answer(self, answer: Result<Appended, AppendError>) {
        let _ = self.answer.send(answer);
    }
}

/// What is waiting, in order of arrival.
pub(crate) struct Queue {
    arrivals: mpsc::UnboundedReceiver<Pending>,
    waiting: VecDeque<Pending>,
    /// How many went together last time.
    crowd: usize,
}

/// What at most one commit of a batch may change, and many may depend on.
#[derive(PartialEq, Eq, Hash)]
enum Resource {
    Stream(StreamId),
    Key(String, String),
    Consumer(String, i32, i32),
}

/// How a batch uses a resource.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Use {
    /// It must be there, and stays: several may ask for the same. A consumer in one life of its owner.
    Guard(u64, u64),
    /// It changes, or somebody who came first waits for it.
    Taken,
}

impl Queue {
    pub(crate) fn new(arrivals: mpsc::UnboundedReceiver<Pending>) -> Queue {
        Queue { arrivals, waiting: VecDeque::new(), crowd: 0 }
    }

    /// Wait until there is something to write or nobody can ask any more.
    pub(crate) async fn arrival(&mut self) {
        if self.waiting.is_empty()
            && let Some(first) = self.arrivals.recv().await
        {
            self.waiting.push_back(first);
        }
    }

    /// The next batch. `None`: nobody can ask any more, and nothing waits.
    pub(crate) async fn next(&mut self) -> Option<Vec<Pending>> {
        self.arrival().await;
        self.drain();
        // A lone caller gains nothing by waiting for others. Where there were several, they were answered
        // together a moment ago and are about to ask again; unless so many wait already that the others had
        // better get ready while these are written.
        let (mut turns, mut idle) = (0, 0);
        while (self.waiting.len() > 1 || self.crowd > 1)
            && turns < TURNS
            && idle < IDLE_TURNS
            && self.waiting.len() < ENOUGH
        {
            let before = self.waiting.len();
            tokio::task::yield_now().await;
            self.drain();
            idle = if self.waiting.len() == before { idle + 1 } else { 0 };
            turns += 1;
        }
        let batch = self.select();
        (!batch.is_empty()).then_some(batch)
    }

    /// Wait until somebody more waits; for ever, if nobody can ask any more.
    pub(crate) async fn joined(&mut self) {
        match self.arrivals.recv().await {
            Some(pending) => self.waiting.push_back(pending),
            None => std::future::pending().await,
        }
        self.drain();
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn drain(&mut self) {
        while let Ok(pending) = self.arrivals.try_recv() {
            self.waiting.push_back(pending);
        }
    }

    /// Take out what can go together. Whoever asks for something that somebody before them changes waits.
    pub(crate) fn select(&mut self) -> Vec<Pending> {
        let mut used: HashMap<Resource, Use> = HashMap::new();
        let (mut events, mut bytes) = (0, 0);
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        for pending in self.waiting.drain(..) {
            let wanted = uses(&pending.intake);
            let free = wanted.iter().all(|(resource, wants)| match used.get(resource) {
                None => true,
                Some(Use::Taken) => false,
                Some(Use::Guard(..)) => used.get(resource) == Some(wants),
            });
            let fits = batch.is_empty()
                || (events + pending.intake.events <= BATCH_EVENTS
                    && bytes + pending.intake.bytes <= BATCH_BYTES
                    && batch.len() < BATCH_EVENTS);
            if free && fits {
                events += pending.intake.events;
                bytes += pending.intake.bytes;
                used.extend(wanted);
                batch.push(pending);
            } else {
                for (resource, wants) in wanted {
                    // Who waits for what only has to be there keeps out who changes it, and nobody else.
                    let waits = used.entry(resource).or_insert(wants);
                    if *waits != wants {
                        *waits = Use::Taken;
                    }
                }
                later.push_back(pending);
            }
        }
        self.waiting = later;
        self.crowd = batch.len();
        batch
    }
}

fn uses(intake: &Intake) -> Vec<(Resource, Use)> {
    let streams = intake.writes.iter().map(|write| {
        let wants =
            if write.events.is_empty() { Use::Guard(write.expected, 0) } else { Use::Taken };
        (Resource::Stream(write.stream.clone()), wants)
    });
    let key = intake
        .key
        .iter()
        .map(|key| (Resource::Key(key.principal.clone(), key.key.clone()), Use::Taken));
    let consumers = intake.consumers.iter().map(|of| {
        let consumer = Resource::Consumer(of.name.clone(), of.version, of.shard);
        (consumer, Use::Guard(of.expected, of.owner_epoch))
    });
    streams.chain(key).chain(consumers).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::actor::Actor;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{Commit, ConsumerGuard, Meta, NewEvent, Write};

    /// A commit that writes to this stream, and is a reaction of one consumer at this position.
    fn reaction(stream: &str, expected: u64) -> Pending {
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
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let intake = Intake::of(commit, None).unwrap();
        Pending { intake, answer: oneshot::channel().0, _place: place }
    }

    /// given reactions of one consumer of which two write to one stream, and one at another position, when a batch is made,
    /// then only the second of those waits, and the other one, with those behind it.
    #[tokio::test]
    async fn who_waits_for_a_stream_keeps_nobody_out_who_guards_the_same() {
        let (send, arrivals) = mpsc::unbounded_channel();
        let mut queue = Queue::new(arrivals);
        for (stream, position) in [("x", 7), ("x", 7), ("y", 7), ("z", 8), ("w", 7)] {
            send.send(reaction(stream, position)).ok().unwrap();
        }
        queue.arrival().await;
        queue.drain();
        let streams = |batch: Vec<Pending>| -> Vec<String> {
            batch.iter().map(|one| one.intake.writes[0].stream.aggregate_id.clone()).collect()
        };
        assert_eq!(streams(queue.select()), ["x", "y"]);
        // Nor does who comes later overtake whoever waits for another position.
        assert_eq!(streams(queue.select()), ["x"]);
        assert_eq!(streams(queue.select()), ["z"]);
        assert_eq!(streams(queue.select()), ["w"]);
    }
}
