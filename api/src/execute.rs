//! The only writer: load, tell, save, over as many streams as the use case needs, in one commit.
//!
//! A use case tells aggregates through a [`Unit`]. What they decided is appended at once with the
//! versions that the decisions were made on; if any of them moved in the meantime, nothing was
//! written and the whole use case is done again from what is true now.
use std::{any::Any, collections::HashMap};

use domain::decider::{Decider, Timestamp};
use event_log::{
    AppendError, CommandKey, Commit, ConsumerGuard, EventLog, Loaded, Meta, NewEvent, SessionGuard,
    StreamId, Write,
};
use futures::future::BoxFuture;

use crate::{
    problem::{Code, Problem},
    state::Clock,
};

/// How often a use case is done again because something that it read has moved.
const TRIES: usize = 3;

/// Where commands go in.
#[derive(Clone)]
pub struct Engine {
    log: EventLog,
    clock: Clock,
}

/// Who commands, and what rides in the same commit.
#[derive(Debug, Clone)]
pub struct Call {
    /// What the log says beside each event.
    pub meta: Meta,
    /// Makes a repeated command harmless.
    pub key: Option<CommandKey>,
    /// The consumer whose reaction it is, which must still be where and whose it was.
    pub consumer: Option<ConsumerGuard>,
    /// Runners' sessions that must still be this server's.
    pub sessions: Vec<SessionGuard>,
}

impl Call {
    /// A command of this actor, as part of nothing else.
    pub fn of(meta: Meta) -> Call {
        Call { meta, key: None, consumer: None, sessions: vec![] }
    }
}

/// What a use case came to.
#[derive(Debug, Clone)]
pub struct Done<T> {
    /// What it answers.
    pub answer: T,
    /// The last position that the answer knows of; a view that has it shows the result.
    pub position: u64,
    /// How many events it appended.
    pub events: usize,
}

impl Engine {
    /// The engine of this log.
    pub fn new(log: EventLog, clock: Clock) -> Engine {
        Engine { log, clock }
    }

    /// The log that it appends to.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Do a use case: everything it tells is appended in one commit, or nothing is.
    pub async fn transact<T, F>(&self, call: &Call, use_case: F) -> Result<Done<T>, Problem>
    where
        T: Send,
        F: for<'u> Fn(&'u mut Unit) -> BoxFuture<'u, Result<T, Problem>> + Send + Sync,
    {
        let (mut conflicts, mut fresh) = (0, false);
        while conflicts < TRIES {
            let mut unit = Unit::new(self.log.clone(), self.now(), fresh);
            let answer = match use_case(&mut unit).await {
                // No guard stops a refusal: it must not come from what was true a moment ago. That
                // is no conflict with anybody, so it costs none of the tries.
                Err(problem) if !fresh && problem.code.status() < 500 => {
                    fresh = true;
                    continue;
                }
                answered => answered?,
            };
            match unit.save(call).await {
                Ok((position, events)) => return Ok(Done { answer, position, events }),
                Err(AppendError::Conflict { .. }) => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
            // What was known is not good enough a second time: ask the database.
            fresh = true;
        }
        let detail = "others kept changing the same thing at the same moment; try again";
        Err(Problem::new(Code::Conflict, detail))
    }

    /// The state of an aggregate as it is now, for an answer, never for a decision.
    pub async fn load<D: Decider>(&self, id: impl ToString) -> Result<D, Problem> {
        let loaded = self.log.load::<D>(&id.to_string()).await?;
        Ok(D::clone(&loaded.state))
    }
}

/// The streams that one use case read and wrote.
pub struct Unit {
    log: EventLog,
    now: Timestamp,
    fresh: bool,
    streams: HashMap<StreamId, Stream>,
    order: Vec<StreamId>,
}

struct Stream {
    state: Box<dyn Held>,
    expected: u64,
    events: Vec<NewEvent>,
}

/// The state of an aggregate of whichever type.
trait Held: Any + Send + Sync {
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
    fn remember(&self, log: &EventLog);
}

impl<D: Decider> Held for Loaded<D> {
    fn any(&self) -> &dyn Any {
        self
    }
    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn remember(&self, log: &EventLog) {
        log.remember(self);
    }
}

impl Unit {
    fn new(log: EventLog, now: Timestamp, fresh: bool) -> Unit {
        Unit { log, now, fresh, streams: HashMap::new(), order: vec![] }
    }

    /// What time it is, the same throughout a use case.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The log, for what is not an aggregate.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// The state of an aggregate with everything that this use case has told it. Reading it guards
    /// it: the commit fails if its stream has moved.
    pub async fn load<D: Decider>(&mut self, id: impl ToString) -> Result<&D, Problem> {
        let stream = self.stream::<D>(id).await?;
        let loaded = stream.state.any().downcast_ref::<Loaded<D>>().ok_or_else(missing)?;
        Ok(&loaded.state)
    }

    /// Ask an aggregate; what it decides is appended when the use case is done. Answers with how
    /// many facts it decided: none means that it is already so.
    pub async fn tell<D: Decider>(
        &mut self,
        id: impl ToString,
        command: D::Command,
    ) -> Result<usize, Problem>
    where
        Problem: From<D::Error>,
    {
        Ok(self.ask::<D>(id, command).await??)
    }

    /// Tell an aggregate whose id this use case has just made: there is nothing to load.
    pub async fn begin<D: Decider>(
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
            let unborn = self.log.unborn::<D>(&id);
            self.hold(stream, unborn);
        }
        self.tell::<D>(id, command).await
    }

    /// Like [`Unit::tell`], where a refusal is not the end of the use case.
    pub async fn ask<D: Decider>(
        &mut self,
        id: impl ToString,
        command: D::Command,
    ) -> Result<Result<usize, D::Error>, Problem> {
        let now = self.now;
        let stream = self.stream::<D>(id).await?;
        let loaded = stream.state.any_mut().downcast_mut::<Loaded<D>>().ok_or_else(missing)?;
        let facts = match loaded.state.decide(command, now) {
            Ok(facts) => facts,
            Err(refused) => return Ok(Err(refused)),
        };
        let decided = facts.len();
        let new = facts.iter().map(NewEvent::of).collect::<Result<Vec<_>, _>>();
        loaded.evolve(facts);
        // After them: the first fact may be the one that says whose install it is.
        let customer = loaded.state.customer(&loaded.stream.aggregate_id);
        let new = new.map_err(Problem::internal)?.into_iter();
        stream.events.extend(new.map(|event| event.about(customer)));
        Ok(Ok(decided))
    }

    async fn stream<D: Decider>(&mut self, id: impl ToString) -> Result<&mut Stream, Problem> {
        let key = StreamId::new(D::NAME, id.to_string());
        if !self.streams.contains_key(&key) {
            let loaded = match self.fresh {
                true => self.log.reload::<D>(&key.aggregate_id).await?,
                false => self.log.load::<D>(&key.aggregate_id).await?,
            };
            self.hold(key.clone(), loaded);
        }
        self.streams.get_mut(&key).ok_or_else(missing)
    }

    fn hold<D: Decider>(&mut self, key: StreamId, loaded: Loaded<D>) {
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
        states.iter().for_each(|state| state.remember(&self.log));
        Ok((appended.last, events))
    }
}

/// The map holds what was just put in, of the type that the key names.
fn missing() -> Problem {
    Problem::internal("a unit of work lost one of its streams")
}

#[cfg(test)]
mod tests {
    use domain::{
        actor::Actor,
        name::{Name, NameCommand},
    };

    use super::*;

    async fn tell(engine: &Engine, command: NameCommand) -> Result<usize, Problem> {
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let done = engine.transact(&call, move |unit| {
            let command = command.clone();
            Box::pin(async move { unit.tell::<Name>("install/acme", command).await })
        });
        Ok(done.await?.answer)
    }

    #[tokio::test]
    async fn a_refusal_is_from_what_is_true_now_and_not_from_memory() {
        let database = event_log::testing::fresh_database().await.unwrap();
        let clock = crate::state::system_clock();
        let one = Engine::new(database.log().await.unwrap(), clock.clone());
        let two = Engine::new(database.log().await.unwrap(), clock);
        let take = |by: &str| NameCommand::Take { owner: by.into() };
        assert_eq!(tell(&one, take("a")).await, Ok(1));
        assert!(tell(&one, take("b")).await.is_err());
        // The first one does not know that the name was given back elsewhere.
        assert_eq!(tell(&two, NameCommand::Release { owner: "a".into() }).await, Ok(1));
        assert_eq!(tell(&one, take("b")).await, Ok(1));
    }

    #[tokio::test]
    async fn what_was_begun_as_new_and_is_there_already_is_a_conflict() {
        let database = event_log::testing::fresh_database().await.unwrap();
        let one = Engine::new(database.log().await.unwrap(), crate::state::system_clock());
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let begin = async |id: &'static str| {
            let begun = one.transact(&call, move |unit| {
                let take = NameCommand::Take { owner: "a".into() };
                Box::pin(async move { unit.begin::<Name>(id, take).await })
            });
            begun.await.map(|done| done.answer).map_err(|problem| problem.code)
        };
        assert_eq!(begin("install/acme").await, Ok(1));
        assert_eq!(begin("install/acme").await, Err(Code::Conflict));
        assert_eq!(begin("install/other").await, Ok(1));
    }

    #[tokio::test]
    async fn a_refusal_from_memory_costs_none_of_the_tries() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let database = event_log::testing::fresh_database().await.unwrap();
        let clock = crate::state::system_clock();
        let one = Engine::new(database.log().await.unwrap(), clock.clone());
        let two = Engine::new(database.log().await.unwrap(), clock);
        let tries = AtomicUsize::new(0);
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let done = one.transact(&call, |unit| {
            let (two, nth) = (two.clone(), tries.fetch_add(1, SeqCst));
            Box::pin(async move {
                if nth == 0 {
                    return Err(Problem::new(Code::Rejected, "as far as memory knows"));
                }
                let is_free = unit.load::<Name>("install/acme").await?.owner.is_none();
                let change = |by: &str| match is_free {
                    true => NameCommand::Take { owner: by.into() },
                    false => NameCommand::Release { owner: by.into() },
                };
                // Twice somebody else is faster.
                if nth < TRIES {
                    tell(&two, change("x")).await?;
                }
                unit.tell::<Name>("install/acme", change("x")).await
            })
        });
        assert_eq!(done.await.unwrap().answer, 1);
        assert_eq!(tries.into_inner(), 4);
    }
}
