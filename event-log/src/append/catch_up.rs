//! What other servers wrote, and what follows from it for what this one keeps in memory.
use std::time::Instant;

use tracing::warn;

use super::{Appender, head};
use crate::{Forget, KeyRing, Stored};

/// The events from which on nobody reads what is a subject's; after the second not even what was folded before the
/// first is there to be read.
const SHREDDED: [&str; 2] = ["subject.shredded", "subject.erasure_completed"];

impl Appender {
    /// A connection, and a head that was read after whatever made it stale.
    pub(super) async fn ready(&mut self) -> Result<(), sqlx::Error> {
        if self.connection.is_none() || self.stale {
            self.pay();
        }
        if self.connection.is_none() {
            self.connection = Some(head::connect(&self.options, self.answer).await?);
            self.stale = true;
        }
        if self.stale {
            self.reload().await?;
        }
        Ok(())
    }

    /// Read the head again; what others wrote goes to the listeners and out of the views' caches.
    async fn reload(&mut self) -> Result<(), sqlx::Error> {
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        let read_at = Instant::now();
        let (turn, epoch, layout) = (self.head.turn, self.head.epoch, self.head.layout);
        let (head, keys) = (&mut self.head, &self.keys);
        let result = head::within(self.answer, async {
            let mut others = head.advance(connection).await?;
            if let head::Others::Wrote(events) = &mut others {
                forget_shredded(keys, events);
                if let Err(error) = keys.open(connection, events).await {
                    // The head has moved on: whoever listens reads what was missed.
                    warn!("Cannot open what other servers wrote: {error}");
                    others = head::Others::Unknown;
                }
            }
            Ok(others)
        })
        .await;
        let others = match result {
            Ok(others) => others,
            Err(error) => {
                self.connection = None;
                return Err(error);
            }
        };
        self.stale = false;
        if epoch != self.head.epoch {
            self.cache.clear();
            self.nearby.forget();
        }
        if (turn, epoch, layout) != (self.head.turn, self.head.epoch, self.head.layout) {
            // Perhaps a view was made again: its rows may be others though the log is the same.
            self.views.iter().for_each(|view| view.forget(Forget::All));
        }
        match others {
            head::Others::Nothing => self.outlet.publish(&self.head, &self.nearby, Vec::new()),
            head::Others::Unknown => {
                self.versions.forget();
                self.cache.clear();
                self.nearby.forget();
                self.keys.forget_all();
                self.views.iter().for_each(|view| view.forget(Forget::All));
                self.outlet.publish(&self.head, &self.nearby, Vec::new());
            }
            head::Others::Wrote(events) => {
                self.versions.learn(&events);
                self.obey(&events);
                let streams: Vec<_> = events.iter().map(|event| event.stream.clone()).collect();
                self.views.iter().for_each(|view| view.forget(Forget::Streams(&streams)));
                self.outlet.publish(&self.head, &self.nearby, events);
            }
        }
        self.outlet.publish_read(read_at);
        Ok(())
    }

    /// See whether another server wrote while we had nothing to write.
    pub(super) async fn look_around(&mut self) {
        if let Err(error) = self.ready().await {
            warn!("Cannot see what other servers wrote: {error}");
            return;
        }
        let Some(connection) = self.connection.as_mut() else { return };
        let read_at = Instant::now();
        match head::within(self.answer, head::position(connection)).await {
            Ok(position) if position == self.head.position => self.outlet.publish_read(read_at),
            Ok(_) => {
                self.stale = true;
                if let Err(error) = self.ready().await {
                    warn!("Cannot read what other servers wrote: {error}");
                }
            }
            Err(error) => {
                warn!("Cannot see what other servers wrote: {error}");
                self.connection = None;
            }
        }
    }
}

/// Forget the keys of who is shredded by one of these. Whether anybody is.
pub(super) fn forget_shredded(keys: &KeyRing, events: &[Stored]) -> bool {
    let mut shredded = false;
    for event in events.iter().filter(|event| SHREDDED.contains(&&*event.event_type)) {
        keys.forget(&event.stream.aggregate_id);
        shredded = true;
    }
    shredded
}
