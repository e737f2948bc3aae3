//! The state of an aggregate, from memory or from its events.
use std::sync::Arc;

use domain::decider::Decider;

use crate::{EventLog, LogError, Stored, StreamId, Write, commit::NewEvent};

/// An aggregate's state, and how many events it is made of.
#[derive(Debug)]
pub struct Loaded<D> {
    /// Whose state.
    pub stream: StreamId,
    /// The state, shared with the cache; evolving it takes a copy.
    pub state: Arc<D>,
    /// The sequence of the last event in it; 0: there is none.
    pub version: u64,
}

impl<D> Clone for Loaded<D> {
    fn clone(&self) -> Self {
        let (stream, state) = (self.stream.clone(), self.state.clone());
        Loaded { stream, state, version: self.version }
    }
}

impl<D: Decider> Loaded<D> {
    /// A write of these events onto this state; none: a guard that the state is current.
    ///
    /// # Errors
    /// If an event has no JSON.
    pub fn write(&self, events: &[D::Event]) -> Result<Write, serde_json::Error> {
        let new = events.iter().map(NewEvent::of).collect::<Result<_, _>>()?;
        Ok(Write { stream: self.stream.clone(), expected: self.version, events: new })
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
    /// The state of an aggregate as this process knows it, which may be behind another server's writes: a
    /// decision on it must be guarded by its version ([`Loaded::write`]), also one that changes nothing.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn load<D: Decider>(&self, aggregate_id: &str) -> Result<Loaded<D>, LogError> {
        let stream = StreamId::of::<D>(aggregate_id);
        match self.shared.cache.get::<D>(&stream) {
            Some((state, version)) => Ok(Loaded { stream, state, version }),
            None => self.load_current(stream).await,
        }
    }

    /// The state of an aggregate as the database has it now: what is known, and the events after it.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn reload<D: Decider>(&self, aggregate_id: &str) -> Result<Loaded<D>, LogError> {
        self.load_current(StreamId::of::<D>(aggregate_id)).await
    }

    /// Keep a state that is known to be durable: after an append, with the events it wrote.
    pub fn remember<D: Decider>(&self, loaded: &Loaded<D>) {
        let (stream, state) = (loaded.stream.clone(), loaded.state.clone());
        self.shared.cache.put(stream, state, loaded.version);
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
        let stream = StreamId::of::<D>(aggregate_id);
        let events = self.read_stream(&stream, 0).await?;
        let mut loaded = Loaded { stream, state: Arc::new(D::default()), version: 0 };
        loaded.evolve(decoded::<D>(events.iter().take_while(|one| one.position <= position))?);
        Ok(loaded)
    }

    async fn load_current<D: Decider>(&self, stream: StreamId) -> Result<Loaded<D>, LogError> {
        let (state, version) =
            self.shared.cache.get::<D>(&stream).unwrap_or_else(|| (Arc::new(D::default()), 0));
        let events = self.read_stream(&stream, version).await?;
        if events.first().is_some_and(|first| first.sequence != version + 1) {
            // The log was restored to an earlier state beneath us.
            self.shared.cache.remove(&stream);
            let position = events[0].position;
            return Err(LogError::Damaged { position, what: format!("{stream} has a gap") });
        }
        let mut loaded = Loaded { stream, state, version };
        loaded.evolve(decoded::<D>(events.iter())?);
        if loaded.version > 0 {
            self.remember(&loaded);
        }
        Ok(loaded)
    }
}

fn decoded<'a, D: Decider>(
    events: impl Iterator<Item = &'a Stored>,
) -> Result<Vec<D::Event>, LogError> {
    events.map(Stored::decode).collect()
}
