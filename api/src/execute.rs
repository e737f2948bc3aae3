//! Runs use cases: loads aggregates, handles commands and appends their events, over any number of
//! streams in one commit.
//!
//! A use case sends commands to aggregates through a [`UnitOfWork`]. Their events are appended
//! together, guarded by the version of each stream. If a stream changed in the meantime, the commit
//! has no effect, and the use case runs again with the new state.
use std::{any::Any, collections::HashMap};

use domain::decider::{Decider, Timestamp};
use event_log::{
    AppendError, Commit, ConsumerGuard, EventLog, IdempotencyKey, Loaded, Meta, NewEvent,
    SessionGuard, StreamId, Write,
};
use futures::future::BoxFuture;

use crate::{
    clock::Clock,
    problem::{Code, Problem},
};

/// Maximum number of attempts at a use case whose streams change concurrently.
const MAX_ATTEMPTS: usize = 3;

/// Runs use cases on a log.
#[derive(Clone)]
pub struct Engine {
    log: EventLog,
    clock: Clock,
}

/// Context of a command, and the guards of its commit.
#[derive(Debug, Clone)]
pub struct Call {
    pub meta: Meta,
    /// Idempotency key of the command, if the caller sent one.
    pub key: Option<IdempotencyKey>,
    /// Consumer of the reaction. The commit fails if its position or owner has changed.
    pub consumer: Option<ConsumerGuard>,
    /// Runner sessions that this server must still own.
    pub sessions: Vec<SessionGuard>,
}

impl Call {
    /// Creates a call without an idempotency key and without guards.
    pub fn of(meta: Meta) -> Call {
        Call { meta, key: None, consumer: None, sessions: vec![] }
    }
}

/// Result of a use case.
#[derive(Debug, Clone)]
pub struct Done<T> {
    pub value: T,
    /// Last position that the result includes. A projection at that position shows the result.
    pub position: u64,
    /// Number of appended events.
    pub events: usize,
}

impl Engine {
    pub fn new(log: EventLog, clock: Clock) -> Engine {
        Engine { log, clock }
    }

    pub fn log(&self) -> &EventLog {
        &self.log
    }

    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Runs a use case. All its events are appended in one commit, or none.
    pub async fn transact<T, F>(&self, call: &Call, use_case: F) -> Result<Done<T>, Problem>
    where
        T: Send,
        F: for<'u> Fn(&'u mut UnitOfWork) -> BoxFuture<'u, Result<T, Problem>> + Send + Sync,
    {
        let (mut conflicts, mut fresh) = (0, false);
        while conflicts < MAX_ATTEMPTS {
            let mut unit = UnitOfWork::new(self.log.clone(), self.now(), fresh);
            let value = match use_case(&mut unit).await {
                // A rejection has no commit whose guards would detect an outdated cache. Fresh
                // state must therefore confirm the rejection. The confirmation does not count as a
                // conflict.
                Err(problem) if !fresh && problem.code.status() < 500 => {
                    fresh = true;
                    continue;
                }
                result => result?,
            };
            match unit.save(call).await {
                Ok((position, events)) => return Ok(Done { value, position, events }),
                Err(AppendError::Conflict { .. }) => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
            // The cache is outdated, so the next attempt reads the database.
            fresh = true;
        }
        let detail = "cannot commit: concurrent requests changed the same data; try again";
        Err(Problem::new(Code::Conflict, detail))
    }

    /// State of an aggregate for a response. Decisions must not use it, because the cache may be
    /// outdated.
    pub async fn load<D: Decider>(&self, id: impl ToString) -> Result<D, Problem> {
        let loaded = self.log.load::<D>(&id.to_string()).await?;
        Ok(D::clone(&loaded.state))
    }
}

/// Streams that one use case reads and writes.
pub struct UnitOfWork {
    log: EventLog,
    now: Timestamp,
    bypass_cache: bool,
    streams: HashMap<StreamId, Stream>,
    order: Vec<StreamId>,
}

struct Stream {
    state: Box<dyn AnyState>,
    expected: u64,
    events: Vec<NewEvent>,
}

/// State of an aggregate of any type.
trait AnyState: Any + Send + Sync {
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
    fn cache(&self, log: &EventLog);
}

impl<D: Decider> AnyState for Loaded<D> {
    fn any(&self) -> &dyn Any {
        self
    }
    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn cache(&self, log: &EventLog) {
        log.cache_state(self);
    }
}

impl UnitOfWork {
    fn new(log: EventLog, now: Timestamp, bypass_cache: bool) -> UnitOfWork {
        UnitOfWork { log, now, bypass_cache, streams: HashMap::new(), order: vec![] }
    }

    /// Time of the use case, which is constant throughout.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The log, for data outside of aggregates.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Loads an aggregate, including the events of this use case. The commit fails if its stream
    /// changes meanwhile.
    pub async fn load<D: Decider>(&mut self, id: impl ToString) -> Result<&D, Problem> {
        let stream = self.stream::<D>(id).await?;
        let loaded = stream.state.any().downcast_ref::<Loaded<D>>().ok_or_else(missing_stream)?;
        Ok(&loaded.state)
    }

    /// Handles a command. Its events are appended at the end of the use case. Returns the number of
    /// events; zero means that the command had no effect.
    pub async fn handle<D: Decider>(
        &mut self,
        id: impl ToString,
        command: D::Command,
    ) -> Result<usize, Problem>
    where
        Problem: From<D::Error>,
    {
        Ok(self.try_handle::<D>(id, command).await??)
    }

    /// Handles the first command of an aggregate with a new id, which requires no read.
    pub async fn create<D: Decider>(
        &mut self,
        id: impl ToString,
        command: D::Command,
    ) -> Result<usize, Problem>
    where
        Problem: From<D::Error>,
    {
        let id = id.to_string();
        let stream = StreamId::new(D::NAME, id.clone());
        if !self.streams.contains_key(&stream) {
            let missing = self.log.load_new::<D>(&id);
            self.insert(stream, missing);
        }
        self.handle::<D>(id, command).await
    }

    /// Handles a command like [`UnitOfWork::handle`], but returns a rejection to the use case.
    pub async fn try_handle<D: Decider>(
        &mut self,
        id: impl ToString,
        command: D::Command,
    ) -> Result<Result<usize, D::Error>, Problem> {
        let now = self.now;
        let stream = self.stream::<D>(id).await?;
        let loaded =
            stream.state.any_mut().downcast_mut::<Loaded<D>>().ok_or_else(missing_stream)?;
        let domain_events = match loaded.state.decide(command, now) {
            Ok(domain_events) => domain_events,
            Err(refused) => return Ok(Err(refused)),
        };
        let decided = domain_events.len();
        let new = domain_events.iter().map(NewEvent::of).collect::<Result<Vec<_>, _>>();
        loaded.evolve(domain_events);
        // Computed after the events are applied, because the first event may set the install.
        let customer = loaded.state.customer(&loaded.stream.aggregate_id);
        let new = new.map_err(Problem::internal)?.into_iter();
        stream.events.extend(new.map(|event| event.with_customer(customer)));
        Ok(Ok(decided))
    }

    async fn stream<D: Decider>(&mut self, id: impl ToString) -> Result<&mut Stream, Problem> {
        let key = StreamId::new(D::NAME, id.to_string());
        if !self.streams.contains_key(&key) {
            let loaded = match self.bypass_cache {
                true => self.log.reload::<D>(&key.aggregate_id).await?,
                false => self.log.load::<D>(&key.aggregate_id).await?,
            };
            self.insert(key.clone(), loaded);
        }
        self.streams.get_mut(&key).ok_or_else(missing_stream)
    }

    fn insert<D: Decider>(&mut self, key: StreamId, loaded: Loaded<D>) {
        let expected = loaded.version;
        let stream = Stream { state: Box::new(loaded), expected, events: vec![] };
        self.streams.insert(key.clone(), stream);
        self.order.push(key);
    }

    async fn save(mut self, call: &Call) -> Result<(u64, usize), AppendError> {
        let mut writes = vec![];
        let mut states = vec![];
        for stream in self.order {
            if let Some(Stream { state, expected, events }) = self.streams.remove(&stream) {
                writes.push(Write { stream, expected, events });
                states.push(state);
            }
        }
        let events = writes.iter().map(|write| write.events.len()).sum();
        if writes.is_empty() && call.consumer.is_none() {
            return Ok((self.log.position(), 0));
        }
        let commit = Commit {
            writes,
            meta: call.meta.clone(),
            key: call.key.clone(),
            consumers: call.consumer.iter().cloned().collect(),
            sessions: call.sessions.clone(),
        };
        let appended = self.log.append(commit).await?;
        states.iter().for_each(|state| state.cache(&self.log));
        Ok((appended.last, events))
    }
}

/// Error that cannot occur, because the map contains each stream with the type of its key.
fn missing_stream() -> Problem {
    Problem::internal("cannot commit the unit of work: it has lost a loaded stream")
}

#[cfg(test)]
mod tests {
    use domain::{
        actor::Actor,
        name::{Name, NameCommand},
    };

    use super::*;

    async fn handle_name(engine: &Engine, command: NameCommand) -> Result<usize, Problem> {
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let done = engine.transact(&call, move |unit| {
            let command = command.clone();
            Box::pin(async move { unit.handle::<Name>("install/acme", command).await })
        });
        Ok(done.await?.value)
    }

    #[tokio::test]
    async fn rejection_is_confirmed_with_fresh_state() {
        let database = event_log::testing::fresh_database().await.unwrap();
        let clock = crate::clock::system_clock();
        let one = Engine::new(database.log().await.unwrap(), clock.clone());
        let two = Engine::new(database.log().await.unwrap(), clock);
        let take = |by: &str| NameCommand::Take { owner: by.into() };
        assert_eq!(handle_name(&one, take("a")).await, Ok(1));
        assert!(handle_name(&one, take("b")).await.is_err());
        // The first engine's cache does not contain the release by the second.
        assert_eq!(handle_name(&two, NameCommand::Release { owner: "a".into() }).await, Ok(1));
        assert_eq!(handle_name(&one, take("b")).await, Ok(1));
    }

    #[tokio::test]
    async fn creating_an_existing_aggregate_is_a_conflict() {
        let database = event_log::testing::fresh_database().await.unwrap();
        let one = Engine::new(database.log().await.unwrap(), crate::clock::system_clock());
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let begin = async |id: &'static str| {
            let begun = one.transact(&call, move |unit| {
                let take = NameCommand::Take { owner: "a".into() };
                Box::pin(async move { unit.create::<Name>(id, take).await })
            });
            begun.await.map(|done| done.value).map_err(|problem| problem.code)
        };
        assert_eq!(begin("install/acme").await, Ok(1));
        assert_eq!(begin("install/acme").await, Err(Code::Conflict));
        assert_eq!(begin("install/other").await, Ok(1));
    }

    #[tokio::test]
    async fn rejection_by_cached_state_is_not_an_attempt() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let database = event_log::testing::fresh_database().await.unwrap();
        let clock = crate::clock::system_clock();
        let one = Engine::new(database.log().await.unwrap(), clock.clone());
        let two = Engine::new(database.log().await.unwrap(), clock);
        let tries = AtomicUsize::new(0);
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let done = one.transact(&call, |unit| {
            let (two, nth) = (two.clone(), tries.fetch_add(1, SeqCst));
            Box::pin(async move {
                if nth == 0 {
                    return Err(Problem::new(Code::Rejected, "rejected by the cached state"));
                }
                let is_free = unit.load::<Name>("install/acme").await?.owner.is_none();
                let change = |by: &str| match is_free {
                    true => NameCommand::Take { owner: by.into() },
                    false => NameCommand::Release { owner: by.into() },
                };
                // Two attempts conflict.
                if nth < MAX_ATTEMPTS {
                    handle_name(&two, change("x")).await?;
                }
                unit.handle::<Name>("install/acme", change("x")).await
            })
        });
        assert_eq!(done.await.unwrap().value, 1);
        assert_eq!(tries.into_inner(), 4);
    }
}
