//! Applies events to rows, for rebuilds, as-of queries and the projector.
use std::collections::HashMap;

use event_log::LogError;
use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{
    Class, Projection, RecordedEvent,
    table::{Rows, load, write},
};

/// Maximum number of rows that are cached between pages.
const MAX_CACHED_ROWS: usize = 10_000;

/// A [`Projection`] without its row type, usable as a trait object.
pub(crate) trait DynProjection: Send + Sync {
    fn name(&self) -> &'static str;
    fn version(&self) -> i32;
    fn class(&self) -> Class;
    fn table(&self) -> String;
    fn aggregates(&self) -> &'static [&'static str];
    fn columns(&self) -> Vec<&'static str>;
    fn writer(&self) -> Box<dyn RowWriter>;
}

/// Writes the rows of a projection and caches the rows that it wrote last.
pub(crate) trait RowWriter: Send + Sync {
    /// Applies events to the rows of a table. The events must follow all events that were applied
    /// before.
    fn project<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
        table: &'a str,
        events: &'a [&'a RecordedEvent],
    ) -> BoxFuture<'a, Result<(), LogError>>;

    /// Clears the cache. Call it if another process may have written rows, or if a transaction was
    /// rolled back.
    fn forget(&mut self);
}

pub(crate) struct Erased<P>(pub std::marker::PhantomData<P>);

impl<P: Projection> DynProjection for Erased<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }
    fn version(&self) -> i32 {
        P::VERSION
    }
    fn class(&self) -> Class {
        P::CLASS
    }
    fn table(&self) -> String {
        P::table()
    }
    fn aggregates(&self) -> &'static [&'static str] {
        P::AGGREGATES
    }
    fn columns(&self) -> Vec<&'static str> {
        P::COLUMNS.iter().map(|(name, _)| *name).collect()
    }
    fn writer(&self) -> Box<dyn RowWriter> {
        Box::new(RowCache::<P> { rows: HashMap::new() })
    }
}

struct RowCache<P: Projection> {
    rows: HashMap<String, Option<P::Row>>,
}

impl<P: Projection> RowWriter for RowCache<P> {
    fn project<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
        table: &'a str,
        events: &'a [&'a RecordedEvent],
    ) -> BoxFuture<'a, Result<(), LogError>> {
        Box::pin(async move {
            if self.rows.len() > MAX_CACHED_ROWS {
                self.rows.clear();
            }
            let keyed = keyed::<P>(events.iter().copied());
            let unknown = unknown(&keyed, |key| self.rows.contains_key(key));
            if !unknown.is_empty() {
                let stored = load::<P>(connection, table, &unknown).await?;
                self.rows.extend(stored.into_iter().map(|(key, row)| (key, Some(row))));
            }
            // The rows are moved out of the cache. After an error, the caller must clear the cache.
            let changed = fold::<P>(keyed, |key| self.rows.remove(key).flatten());
            write::<P>(connection, table, &changed).await?;
            self.rows.extend(changed);
            Ok(())
        })
    }

    fn forget(&mut self) {
        self.rows.clear();
    }
}

/// The key of a row, with an event that may change it.
pub(crate) type Keyed<'a> = (String, &'a RecordedEvent);

/// Pairs each event with the keys of the rows that it may change.
pub(crate) fn keyed<'a, P: Projection>(
    events: impl IntoIterator<Item = &'a RecordedEvent>,
) -> Vec<Keyed<'a>> {
    let keys = |event: &'a RecordedEvent| P::keys(event).into_iter().map(move |key| (key, event));
    events.into_iter().flat_map(keys).collect()
}

/// Returns the keys of the rows to load: those that are not known. A stream's first event finds no
/// row, so its key is left out.
pub(crate) fn unknown(keyed: &[Keyed<'_>], known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut seen: HashMap<&str, bool> = HashMap::new();
    for (key, event) in keyed {
        seen.entry(key).or_insert(event.sequence > 1);
    }
    let read = seen.into_iter().filter(|(key, read)| *read && !known(key));
    read.map(|(key, _)| key.to_owned()).collect()
}

/// Applies the events and returns the changed rows.
pub(crate) fn fold<P: Projection>(
    keyed: Vec<Keyed<'_>>,
    mut before: impl FnMut(&str) -> Option<P::Row>,
) -> Rows<P> {
    let mut rows: HashMap<String, Option<P::Row>> = HashMap::new();
    for (key, event) in keyed {
        if let Some(row) = rows.get_mut(&key) {
            *row = P::apply(&key, row.take(), event);
        } else {
            let row = P::apply(&key, before(&key), event);
            rows.insert(key, row);
        }
    }
    // Ordered by key, so that every statement locks the rows in the same order.
    rows.into_iter().collect()
}
