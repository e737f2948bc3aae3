//! What is durable and not told yet: the next batch goes on its way first, so that the database need not wait
//! while we talk.
use std::time::Instant;

use tokio::sync::{broadcast, watch};

use super::{
    head::{Head, PublishedHead},
    queue::Pending,
};
use crate::{Appended, Stored, nearby::Nearby};

/// What the appender tells the rest of the program.
pub(crate) struct HeadPublisher {
    pub seen: watch::Sender<PublishedHead>,
    pub positions: watch::Sender<u64>,
    pub tail: broadcast::Sender<std::sync::Arc<[Stored]>>,
    /// Start of the last read of the head whose result is published.
    pub read_at: watch::Sender<Instant>,
}

impl HeadPublisher {
    /// Tell the program where the log is now.
    pub(crate) fn publish(&self, head: &Head, nearby: &Nearby, events: Vec<Stored>) {
        nearby.grow(&events);
        self.seen.send_replace(head.seen());
        if !events.is_empty() {
            // Nobody listening is fine.
            let _ = self.tail.send(events.into());
        }
        self.positions.send_replace(head.position);
    }

    /// Record when the published head was read. Call it after [`HeadPublisher::publish`]: a reader of this time sees that head.
    pub(crate) fn publish_read(&self, at: Instant) {
        self.read_at.send_if_modified(|last| {
            let is_newer = *last < at;
            *last = at.max(*last);
            is_newer
        });
    }
}

/// Events that are durable, and the answers of those who wrote them.
#[derive(Default)]
pub(crate) struct PendingAcks {
    events: Vec<Stored>,
    answers: Vec<(Pending, Appended)>,
    /// Start of the statement that wrote them: the head was current then.
    read_at: Option<Instant>,
}

impl PendingAcks {
    /// Owe it to these. What was owed before has been paid.
    pub(crate) fn add(
        &mut self,
        events: Vec<Stored>,
        answers: impl Iterator<Item = (Pending, Appended)>,
        read_at: Option<Instant>,
    ) {
        self.events = events;
        self.read_at = read_at;
        self.answers.extend(answers);
    }

    /// Publish, then answer: whoever has an answer finds the head there.
    pub(crate) fn pay(&mut self, head: &Head, nearby: &Nearby, outlet: &HeadPublisher) {
        if !self.events.is_empty() {
            outlet.publish(head, nearby, std::mem::take(&mut self.events));
        }
        if let Some(at) = self.read_at.take() {
            outlet.publish_read(at);
        }
        for (pending, appended) in self.answers.drain(..) {
            pending.answer(Ok(appended));
        }
    }
}
