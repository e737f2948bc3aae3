//! Catch-up with the writes of other servers, and the invalidation of caches that follows from
//! them.
use std::time::Instant;

use tracing::warn;

use super::{
    Appender,
    head::{self, ForeignWrites, no_connection},
};
use crate::{Invalidate, KeyRing, StoredEvent};

/// Events after which a subject's data cannot be decrypted. The server records
/// `subject.erasure_completed` after it has erased its copies of the data.
const SHREDDED: [&str; 2] = ["subject.shredded", "subject.erasure_completed"];

impl Appender {
    /// Ensures a connection and a head that is not outdated.
    pub(super) async fn ensure_head(&mut self) -> Result<(), sqlx::Error> {
        if self.connection.is_none() || self.is_outdated {
            self.acknowledge();
        }
        if self.connection.is_none() {
            self.connection = Some(head::connect(&self.options, self.response_timeout).await?);
            self.is_outdated = true;
        }
        if self.is_outdated {
            self.refresh_head().await?;
        }
        Ok(())
    }

    /// Reads the head again, invalidates caches and publishes the events of other servers.
    async fn refresh_head(&mut self) -> Result<(), sqlx::Error> {
        let read_at = Instant::now();
        let (fence, epoch, format) = (self.head.fence, self.head.epoch, self.head.format);
        let writes = match self.foreign_writes().await {
            Ok(writes) => writes,
            Err(error) => {
                self.connection = None;
                return Err(error);
            }
        };
        self.is_outdated = false;
        if epoch != self.head.epoch {
            self.cache.clear();
            self.tree.forget();
        }
        if (fence, epoch, format) != (self.head.fence, self.head.epoch, self.head.format) {
            // A rebuild may have replaced the rows of a projection although the log is the same.
            self.invalidate_projections(Invalidate::All);
        }
        let events = match writes {
            ForeignWrites::None => Vec::new(),
            ForeignWrites::Unknown => {
                self.versions.clear();
                self.cache.clear();
                self.tree.forget();
                self.keys.forget_all();
                self.invalidate_projections(Invalidate::All);
                Vec::new()
            }
            ForeignWrites::Events(events) => {
                self.versions.record_events(&events);
                self.apply_shredding(&events);
                // A reader that waits for a position must not get a state from before it.
                for event in &events {
                    self.cache.remove_older(&event.stream, event.sequence);
                }
                let streams: Vec<_> = events.iter().map(|event| event.stream.clone()).collect();
                self.invalidate_projections(Invalidate::Streams(&streams));
                events
            }
        };
        self.publisher.publish(&self.head, &self.tree, events);
        self.publisher.publish_read(read_at);
        Ok(())
    }

    /// Reads the head again, and returns the writes of other servers with their events decrypted.
    async fn foreign_writes(&mut self) -> Result<ForeignWrites, sqlx::Error> {
        let Some(connection) = self.connection.as_mut() else { return Err(no_connection()) };
        let (head, keys) = (&mut self.head, &self.keys);
        head::with_timeout(self.response_timeout, async {
            let mut writes = head.refresh(connection).await?;
            if let ForeignWrites::Events(events) = &mut writes {
                forget_shredded_keys(keys, events);
                if let Err(error) = keys.open(connection, events).await {
                    // The head is now ahead of the published head. Subscribers notice the gap and
                    // read the missing events.
                    warn!(error = %error, "Cannot decrypt events of other servers");
                    writes = ForeignWrites::Unknown;
                }
            }
            Ok(writes)
        })
        .await
    }

    /// Reads the writes of other servers, if there are any.
    pub(super) async fn poll_head(&mut self) {
        if let Err(error) = self.try_poll_head().await {
            warn!(error = %error, "Cannot read the writes of other servers");
        }
    }

    async fn try_poll_head(&mut self) -> Result<(), sqlx::Error> {
        self.ensure_head().await?;
        let Some(connection) = self.connection.as_mut() else { return Err(no_connection()) };
        let read_at = Instant::now();
        match head::with_timeout(self.response_timeout, head::position(connection)).await {
            Ok(position) if position == self.head.position => self.publisher.publish_read(read_at),
            Ok(_) => {
                self.is_outdated = true;
                self.ensure_head().await?;
            }
            Err(error) => {
                self.connection = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// If these events shred keys, marks the keys as shredded and clears the cached states and
    /// rows, which may contain the protected data.
    pub(super) fn apply_shredding(&self, events: &[StoredEvent]) {
        if forget_shredded_keys(&self.keys, events) {
            self.cache.clear();
            self.invalidate_projections(Invalidate::All);
        }
    }

    fn invalidate_projections(&self, rows: Invalidate<'_>) {
        self.projections.iter().for_each(|projection| projection.forget(rows));
    }
}

/// Marks the keys of subjects that these events shred. Returns true if there is at least one such
/// event.
fn forget_shredded_keys(keys: &KeyRing, events: &[StoredEvent]) -> bool {
    let mut shredded = false;
    for event in events.iter().filter(|event| SHREDDED.contains(&&*event.event_type)) {
        keys.mark_shredded(&event.stream.aggregate_id);
        shredded = true;
    }
    shredded
}
