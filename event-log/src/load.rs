//! The state of an aggregate: from memory, or from its snapshot and the events after it.
use std::sync::Arc;

use domain::{decider::Decider, ids::InstallId};

use crate::{EventLog, LogError, Stored, StreamId, Write, commit::NewEvent, snapshot};

/// How many events are read at once.
const PAGE: u32 = 1_000;

/// An aggregate's state, and how many events it is made of.
#[derive(Debug)]
pub struct Loaded<D> {
    /// Whose state.
    pub stream: StreamId,
    /// The state, shared with the cache; evolving it takes a copy.
    pub state: Arc<D>,
    /// The sequence of the last event in it; 0: there is none.
    pub version: u64,
    /// When it was begun to be read: [`crate::cache::Cache::era`].
    era: u64,
    /// Position that this process knew when it read the state.
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

    /// A write of these events onto this state; none: a guard that the state is current.
    ///
    /// # Errors
    /// If an event has no JSON.
    pub fn write(&self, events: &[D::Event]) -> Result<Write, serde_json::Error> {
        let customer = self.customer_after(events);
        let new = events.iter().map(|event| Ok(NewEvent::of(event)?.about(customer)));
        let new = new.collect::<Result<_, serde_json::Error>>()?;
        Ok(Write { stream: self.stream.clone(), expected: self.version, events: new })
    }

    /// Whose install it is about: the first event may be the one that says so.
    fn customer_after(&self, events: &[D::Event]) -> Option<InstallId> {
        let id = &self.stream.aggregate_id;
        self.state.customer(id).or_else(|| {
            let mut state = D::clone(&self.state);
            events.iter().cloned().for_each(|event| state.evolve(event));
            state.customer(id)
        })
    }

    /// The state after these events.
    pub fn evolve(&mut self, events: impl IntoIterator<Item = D::Event>) {
        for event in events {
            // Copies only the first time, and not at all if there are none.
            Arc::make_mut(&mut self.state).evolve(event);
            self.version += 1;
        }
    }
}

impl EventLog {
    /// The state of an aggregate whose id was made a moment ago: nothing, without asking anybody. Like every
    /// other state it is guarded by its version, so a stream that is there after all is a conflict.
    pub fn unborn<D: Decider>(&self, aggregate_id: &str) -> Loaded<D> {
        Loaded::new(StreamId::of::<D>(aggregate_id), self.begin())
    }

    /// Era and position at the beginning of a read.
    fn begin(&self) -> (u64, u64) {
        let position = self.position();
        (self.shared.cache.era(), position)
    }

    /// The state of an aggregate as this process knows it, which may be behind another server's writes: a
    /// decision on it must be guarded by its version ([`Loaded::write`]), also one that changes nothing.
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

    /// The state of an aggregate as the database has it now: what is known or was kept, and
    /// the events after it.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn reload<D: Decider>(&self, aggregate_id: &str) -> Result<Loaded<D>, LogError> {
        self.load_current(StreamId::of::<D>(aggregate_id)).await
    }

    /// Keep a state that is known to be durable: after an append, with the events it wrote.
    pub fn remember<D: Decider>(&self, loaded: &Loaded<D>) {
        let known = self.shared.cache.version(&loaded.stream);
        self.keep(loaded, known);
    }

    /// The state of an aggregate as it was after a position.
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
        let begun = self.begin();
        let known = match self.shared.cache.get::<D>(&stream) {
            Some(known) => Some(known),
            // Nearly every stream is so short that it was never kept. A longer one costs a question more.
            None => match self.read_below(&stream, snapshot::EVERY).await? {
                Some(events) => {
                    let mut loaded = Loaded::new(stream, begun);
                    take_in(&mut loaded, &events)?;
                    if loaded.version > 0 {
                        self.keep(&loaded, 0);
                    }
                    return Ok(loaded);
                }
                None => snapshot::read::<D>(self.pool(), &stream).await?,
            },
        };
        let mut loaded = Loaded::new(stream, begun);
        if let Some((state, version)) = known {
            (loaded.state, loaded.version) = (state, version);
        }
        let since = loaded.version;
        match self.catch_up(&mut loaded, u64::MAX).await {
            Err(LogError::Damaged { .. }) if since > 0 => {
                // The log was restored to an earlier state beneath us: what we knew is of a lost history.
                self.shared.cache.remove(&loaded.stream);
                loaded = Loaded::new(loaded.stream, begun);
                self.catch_up(&mut loaded, u64::MAX).await?;
            }
            caught_up => caught_up?,
        }
        if loaded.version > 0 {
            self.keep(&loaded, since);
        }
        Ok(loaded)
    }

    /// Take in what follows, up to a position, page by page: a stream may be years long.
    async fn catch_up<D: Decider>(&self, loaded: &mut Loaded<D>, to: u64) -> Result<(), LogError> {
        loop {
            let events = self.read_page(&loaded.stream, (loaded.version, to), PAGE).await?;
            take_in(loaded, &events)?;
            if events.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    fn keep<D: Decider>(&self, loaded: &Loaded<D>, since: u64) {
        let (stream, state) = (loaded.stream.clone(), loaded.state.clone());
        self.shared.cache.put(stream, state, (loaded.version, loaded.era));
        self.keep_snapshot(loaded, since);
    }
}

fn take_in<D: Decider>(loaded: &mut Loaded<D>, events: &[Stored]) -> Result<(), LogError> {
    for event in events {
        if event.sequence != loaded.version + 1 {
            let what = format!("{} has a gap", loaded.stream);
            return Err(LogError::Damaged { position: event.position, what });
        }
        let facts = event.decode()?;
        let state = Arc::make_mut(&mut loaded.state);
        facts.into_iter().for_each(|fact| state.evolve(fact));
        loaded.version = event.sequence;
    }
    Ok(())
}
