//! Acknowledgements. If the next batch is prepared, they wait until it is sent, so that the
//! database is not idle meanwhile.
use std::{sync::Arc, time::Instant};

use tokio::sync::{broadcast, watch};

use super::{
    head::{Head, PublishedHead},
    queue::PendingCommit,
};
use crate::{Appended, StoredEvent, tree_cache::TreeCache};

/// Channels by which the appender publishes the head and new events.
pub(crate) struct HeadPublisher {
    pub head: watch::Sender<PublishedHead>,
    pub positions: watch::Sender<u64>,
    pub tail: broadcast::Sender<Arc<[StoredEvent]>>,
    /// Start of the last read of the head whose result is published.
    pub read_at: watch::Sender<Instant>,
}

impl HeadPublisher {
    /// Publishes the head and the events that are new in it.
    pub(crate) fn publish(&self, head: &Head, tree: &TreeCache, events: Vec<StoredEvent>) {
        tree.grow(&events);
        self.head.send_replace(head.published());
        if !events.is_empty() {
            // An error means that there is no subscriber.
            let _ = self.tail.send(events.into());
        }
        self.positions.send_replace(head.position);
    }

    /// Records when the published head was read. Call it after [`HeadPublisher::publish`]: a reader
    /// of this time then sees that head or a later one.
    pub(crate) fn publish_read(&self, at: Instant) {
        self.read_at.send_if_modified(|last| {
            let is_newer = *last < at;
            *last = at.max(*last);
            is_newer
        });
    }
}

/// Durable events that are not published yet, with the acknowledgements of their commits.
#[derive(Default)]
pub(crate) struct PendingAcks {
    events: Vec<StoredEvent>,
    acks: Vec<(PendingCommit, Appended)>,
    /// Start of the statement that wrote the events: the head was current then.
    read_at: Option<Instant>,
}

impl PendingAcks {
    /// Adds a batch. The batch before it must have been acknowledged.
    pub(crate) fn add(
        &mut self,
        events: Vec<StoredEvent>,
        acks: impl Iterator<Item = (PendingCommit, Appended)>,
        read_at: Option<Instant>,
    ) {
        self.events = events;
        self.read_at = read_at;
        self.acks.extend(acks);
    }

    /// Publishes the events before it acknowledges their commits, so that a caller with an
    /// acknowledgement can read its events.
    pub(crate) fn send(&mut self, head: &Head, tree: &TreeCache, publisher: &HeadPublisher) {
        if !self.events.is_empty() {
            publisher.publish(head, tree, std::mem::take(&mut self.events));
        }
        if let Some(at) = self.read_at.take() {
            publisher.publish_read(at);
        }
        for (pending, appended) in self.acks.drain(..) {
            pending.respond(Ok(appended));
        }
    }
}
