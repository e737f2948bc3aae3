//! Inline projections: the append statement writes their rows.
use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use event_log::{Column, InlineProjection, Invalidate, LogError, StoredEvent, StreamId};
use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{
    Projection,
    event::decode,
    fold::{fold, keyed, unknown},
    table::{columns, load, remove, upsert},
};

/// Maximum number of streams whose rows are cached.
const MAX_CACHED_STREAMS: usize = 10_000;

/// A projection in the form that the log's appender uses.
pub struct InlineProjector<P: Projection> {
    rows: Mutex<Cache<P>>,
    of: PhantomData<P>,
}

struct Cache<P: Projection> {
    /// Committed rows by stream, including keys that have no row.
    durable: HashMap<StreamId, HashMap<String, Option<P::Row>>>,
    /// Changed rows of the last prepared batch.
    prepared: Vec<(StreamId, String, Option<P::Row>)>,
}

impl<P: Projection> InlineProjector<P> {
    /// Creates the inline projection with an empty cache.
    #[expect(clippy::new_ret_no_self, reason = "the log takes inline projections as trait objects")]
    pub fn new() -> Arc<dyn InlineProjection> {
        let cache = Cache { durable: HashMap::new(), prepared: vec![] };
        Arc::new(InlineProjector::<P> { rows: Mutex::new(cache), of: PhantomData })
    }

    fn cache(&self) -> MutexGuard<'_, Cache<P>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn prepared(
        &self,
        connection: &mut PgConnection,
        events: &[StoredEvent],
    ) -> Result<Vec<Column>, LogError> {
        let relevant =
            events.iter().filter(|event| P::AGGREGATES.contains(&&*event.stream.aggregate_type));
        let mut recorded = vec![];
        let mut stream_of = HashMap::new();
        for stored in relevant {
            stream_of.insert(stored.position, &stored.stream);
            recorded.extend(decode(stored)?);
        }
        let keyed = keyed::<P>(&recorded);
        let (mut streams, mut known) = (HashMap::new(), HashMap::new());
        {
            let cache = self.cache();
            for (key, event) in &keyed {
                let Some(&stream) = stream_of.get(&event.position) else { continue };
                if let Some(row) = cache.durable.get(stream).and_then(|rows| rows.get(key)) {
                    known.entry(key.clone()).or_insert_with(|| row.clone());
                }
                streams.entry(key.clone()).or_insert_with(|| stream.clone());
            }
        }
        let missing = unknown(&keyed, |key| known.contains_key(key));
        if !missing.is_empty() {
            let stored_rows = load::<P>(connection, &P::table(), &missing).await?;
            known.extend(stored_rows.into_iter().map(|(key, row)| (key, Some(row))));
        }
        let rows = fold::<P>(keyed, |key| known.remove(key).flatten());
        let arrays = columns::<P>(&rows)?;
        self.cache().prepared = rows
            .into_iter()
            .filter_map(|(key, row)| streams.remove(&key).map(|stream| (stream, key, row)))
            .collect();
        Ok(arrays)
    }
}

impl<P: Projection> InlineProjection for InlineProjector<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn statements(&self) -> Vec<String> {
        let table = P::table();
        let keys = P::COLUMNS.len() + 3;
        vec![upsert::<P>(&table, "head, "), remove(&table, "head, ", keys)]
    }

    fn prepare<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        events: &'a [StoredEvent],
    ) -> BoxFuture<'a, Result<Vec<Column>, sqlx::Error>> {
        Box::pin(async move {
            self.prepared(connection, events).await.map_err(|error| match error {
                LogError::Database(error) => error,
                error @ (LogError::NoLog
                | LogError::Encoding(_)
                | LogError::Format(_)
                | LogError::Damaged { .. }
                | LogError::Archived { .. }
                | LogError::WrappingKey(_)
                | LogError::Proof(_)) => sqlx::Error::Encode(error.into()),
            })
        })
    }

    fn committed(&self, _events: &[StoredEvent]) {
        let mut cache = self.cache();
        if cache.durable.len() > MAX_CACHED_STREAMS {
            cache.durable.clear();
        }
        for (stream, key, row) in std::mem::take(&mut cache.prepared) {
            cache.durable.entry(stream).or_default().insert(key, row);
        }
    }

    fn forget(&self, what: Invalidate<'_>) {
        let mut cache = self.cache();
        match what {
            Invalidate::All => cache.durable.clear(),
            Invalidate::Streams(streams) => {
                for stream in streams {
                    cache.durable.remove(stream);
                }
            }
        }
    }
}
