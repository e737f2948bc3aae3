//! Loads the state of an aggregate from the cache, or from its snapshot and the later events.
use std::sync::Arc;

use domain::{decider::Decider, ids::InstallId};

use crate::{EventLog, LogError, StoredEvent, StreamId, Write, commit::NewEvent, snapshot};

/// Maximum number of events that are read at once.
const PAGE: u32 = 1_000;

/// State of an aggregate, with its version.
#[derive(Debug)]
pub struct Loaded<D> {
    pub stream: StreamId,
    /// The state, shared with the cache. [`Loaded::evolve`] copies it first.
    pub state: Arc<D>,
    /// Sequence of the last event in the state; 0 without events.
    pub version: u64,
    /// [`crate::cache::Cache::clear_count`] when the read began.
    era: u64,
    /// Position that this process knew when the read began.
    pub(crate) read_at: u64,
}

impl<D> Clone for Loaded<D> {
    fn clone(&self) -> Self {
        let (stream, state) = (self.stream.clone(), self.state.clone());
        Loaded { stream, state, version: self.version, era: self.era, read_at: self.read_at }
    }
}

impl<D: Decider> Loaded<D> {
    fn new(stream: StreamId, (era, read_at): (u64, u64)) -> Loaded<D> {
        Loaded { stream, state: Arc::new(D::default()), version: 0, era, read_at }
    }

    /// Returns a write of these events, guarded by the version of the state. Without events, the
    /// write is only a guard.
    ///
    /// # Errors
    /// If an event has no JSON form.
    pub fn write(&self, events: &[D::Event]) -> Result<Write, serde_json::Error> {
        let customer = self.customer_after(events);
        let new = events.iter().map(|event| Ok(NewEvent::of(event)?.with_customer(customer)));
        let new = new.collect::<Result<_, serde_json::Error>>()?;
        Ok(Write { stream: self.stream.clone(), expected: self.version, events: new })
    }

    /// Returns the customer of the aggregate. For a new aggregate, one of these events can set the
    /// customer.
    fn customer_after(&self, events: &[D::Event]) -> Option<InstallId> {
        let id = &self.stream.aggregate_id;
        self.state.customer(id).or_else(|| {
            let mut state = D::clone(&self.state);
            events.iter().cloned().for_each(|event| state.evolve(event));
            state.customer(id)
        })
    }

    /// Applies these events to the state.
    pub fn evolve(&mut self, events: impl IntoIterator<Item = D::Event>) {
        for event in events {
            // Copies the state at the first event only.
            Arc::make_mut(&mut self.state).evolve(event);
            self.version += 1;
        }
    }
}

impl EventLog {
    /// Returns the initial state of an aggregate with a new id, without a query. If the stream
    /// exists already, the append of a write from this state causes a conflict.
    pub fn load_new<D: Decider>(&self, aggregate_id: &str) -> Loaded<D> {
        Loaded::new(StreamId::of::<D>(aggregate_id), self.begin())
    }

    /// Clear count of the cache and position at the beginning of a read.
    fn begin(&self) -> (u64, u64) {
        let position = self.position();
        (self.shared.cache.clear_count(), position)
    }

    /// Returns the state of an aggregate as this process knows it. The state may lag behind the
    /// writes of another server. A decision on it must therefore be guarded by its version
    /// ([`Loaded::write`]), even if the decision changes nothing.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn load<D: Decider>(&self, aggregate_id: &str) -> Result<Loaded<D>, LogError> {
        let stream = StreamId::of::<D>(aggregate_id);
        let (era, read_at) = self.begin();
        match self.shared.cache.get::<D>(&stream) {
            Some((state, version)) => Ok(Loaded { stream, state, version, era, read_at }),
            None => self.load_current(stream).await,
        }
    }

    /// Returns the state of an aggregate as the database has it now: the cached state or the
    /// snapshot, with the later events.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn reload<D: Decider>(&self, aggregate_id: &str) -> Result<Loaded<D>, LogError> {
        self.load_current(StreamId::of::<D>(aggregate_id)).await
    }

    /// Caches a durable state. Call it after the append of the last events that the state includes.
    pub fn cache_state<D: Decider>(&self, loaded: &Loaded<D>) {
        let known = self.shared.cache.version(&loaded.stream);
        self.keep(loaded, known);
    }

    /// Returns the state of an aggregate as of a position.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn load_as_of<D: Decider>(
        &self,
        aggregate_id: &str,
        position: u64,
    ) -> Result<Loaded<D>, LogError> {
        let mut loaded = Loaded::new(StreamId::of::<D>(aggregate_id), self.begin());
        self.catch_up(&mut loaded, position).await?;
        Ok(loaded)
    }

    async fn load_current<D: Decider>(&self, stream: StreamId) -> Result<Loaded<D>, LogError> {
        let start = self.begin();
        let known = match self.shared.cache.get::<D>(&stream) {
            Some(known) => Some(known),
            // Most streams are too short for a snapshot and need only this query. For a longer
            // stream, it is an extra query.
            None => match self.read_below(&stream, snapshot::SNAPSHOT_INTERVAL).await? {
                Some(events) => {
                    let mut loaded = Loaded::new(stream, start);
                    apply_events(&mut loaded, &events)?;
                    if loaded.version > 0 {
                        self.keep(&loaded, 0);
                    }
                    return Ok(loaded);
                }
                None => snapshot::read::<D>(self.pool(), &stream).await?,
            },
        };
        let mut loaded = Loaded::new(stream, start);
        if let Some((state, version)) = known {
            (loaded.state, loaded.version) = (state, version);
        }
        let since = loaded.version;
        match self.catch_up(&mut loaded, u64::MAX).await {
            Err(LogError::Damaged { .. }) if since > 0 => {
                // The database may have been restored to an earlier state while this process ran.
                // The cached state or the snapshot then includes events that the database has lost.
                self.shared.cache.remove(&loaded.stream);
                loaded = Loaded::new(loaded.stream, start);
                self.catch_up(&mut loaded, u64::MAX).await?;
            }
            caught_up => caught_up?,
        }
        if loaded.version > 0 {
            self.keep(&loaded, since);
        }
        Ok(loaded)
    }

    /// Applies the later events up to a position, page by page, because a stream may have many
    /// events.
    async fn catch_up<D: Decider>(&self, loaded: &mut Loaded<D>, to: u64) -> Result<(), LogError> {
        loop {
            let events = self.read_page(&loaded.stream, (loaded.version, to), PAGE).await?;
            apply_events(loaded, &events)?;
            if events.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    fn keep<D: Decider>(&self, loaded: &Loaded<D>, since: u64) {
        let (stream, state) = (loaded.stream.clone(), loaded.state.clone());
        self.shared.cache.put(stream, state, (loaded.version, loaded.era));
        self.store_snapshot(loaded, since);
    }
}

fn apply_events<D: Decider>(
    loaded: &mut Loaded<D>,
    events: &[StoredEvent],
) -> Result<(), LogError> {
    for event in events {
        check_sequence(event, loaded.version)?;
        let domain_events = event.decode()?;
        let state = Arc::make_mut(&mut loaded.state);
        domain_events.into_iter().for_each(|domain_event| state.evolve(domain_event));
        loaded.version = event.sequence;
    }
    Ok(())
}

/// Checks that an event is the next one of its stream after a version.
pub(crate) fn check_sequence(event: &StoredEvent, version: u64) -> Result<(), LogError> {
    if event.sequence == version + 1 {
        return Ok(());
    }
    let what = format!("stream {} lacks the event before this one", event.stream);
    Err(LogError::Damaged { position: event.position, what })
}
