//! `cqrs-es` on the log: aggregates of its users, and stock postgres-es on the event table.
#[path = "../../examples/cqrs_es.rs"]
mod example;

use std::collections::HashMap;

use crate::support;

use cqrs_es::{
    Aggregate, AggregateContext, AggregateError, CqrsFramework, DomainEvent, EventStore,
    event_sink::EventSink,
    persist::{PersistedEventRepository, PersistedEventStore},
    test::TestFramework,
};
use domain::{
    actor::Actor,
    decider::{Decider, Timestamp},
};
use event_log::{
    Commit,
    cqrs::{CqrsEvent, Now, Root},
};
use postgres_es::PostgresEventRepository;
use serde::{Deserialize, Serialize};
use support::{
    counter::{Counter, CounterCommand, CounterEvent},
    database, meta, server, verified_events,
};

#[tokio::test]
async fn stock_postgres_es_reads_the_table() {
    let database = database().await;
    let log = server(&database).await;
    for by in [2, 3, 5] {
        let mut counter = log.load::<Counter>("c").await.unwrap();
        let events = counter.state.decide(CounterCommand::Add(by), log.clock().now()).unwrap();
        let write = counter.write(&events).unwrap();
        log.append(Commit::of(meta(), vec![write])).await.unwrap();
        counter.evolve(events);
        log.cache_state(&counter);
    }
    let stock = || {
        let repository = PostgresEventRepository::new(database.pool.clone());
        repository.with_tables("log_event", "log_snapshot")
    };
    let events = stock().get_events::<Root<Counter>>("c").await.unwrap();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(events[2].event_type, "counter.added");
    assert_eq!(events[2].event_version, "1");
    assert_eq!(events[2].payload, serde_json::json!({ "type": "added", "by": 5 }));
    assert_eq!(events[2].metadata["actor"], "system");

    let store = PersistedEventStore::<_, Root<Counter>>::new_event_store(stock());
    let decoded = store.load_events("c").await.unwrap();
    assert_eq!(decoded[0].payload, CqrsEvent(CounterEvent::Added { by: 2 }));
    let mut context = store.load_aggregate("c").await.unwrap();
    assert_eq!(context.aggregate().0, Counter { value: 10, closed: false });
    let event = CqrsEvent(CounterEvent::Added { by: 1 });
    assert!(store.commit(vec![event], context, HashMap::new()).await.is_err());
    assert_eq!(verified_events(&database).await.0.size, 3);
}

#[test]
fn cqrs_framework_gets_the_decided_events() {
    TestFramework::<Root<Counter>>::with(Now(|| Timestamp::UNIX_EPOCH))
        .given(vec![CqrsEvent(CounterEvent::Added { by: 1 })])
        .when(CounterCommand::Close)
        .then_expect_events(vec![CqrsEvent(CounterEvent::Closed)]);
}

#[test]
fn event_is_stored_with_its_name_in_the_domain() {
    let event = CqrsEvent(CounterEvent::Added { by: 1 });
    assert_eq!((event.event_type(), event.event_version()), ("counter.added".into(), "1".into()));
    assert_eq!(serde_json::to_string(&event).unwrap(), r#"{"type":"added","by":1}"#);
}

#[test]
fn the_example_of_cqrs_es_runs() {
    example::main().unwrap();
}

/// An aggregate whose commands are its events.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note(usize);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Noted {
    #[serde(skip)]
    version: &'static str,
    #[serde(flatten)]
    members: HashMap<String, bool>,
}

fn noted(version: &'static str, member: &str) -> Noted {
    Noted { version, members: HashMap::from([(member.into(), true)]) }
}

impl DomainEvent for Noted {
    fn event_type(&self) -> String {
        "note.noted".into()
    }
    fn event_version(&self) -> String {
        self.version.into()
    }
}

impl Aggregate for Note {
    const TYPE: &'static str = "note";
    type Command = Vec<Noted>;
    type Event = Noted;
    type Error = std::fmt::Error;
    type Services = ();

    async fn handle(
        &mut self,
        events: Vec<Noted>,
        (): &(),
        sink: &EventSink<Note>,
    ) -> Result<(), std::fmt::Error> {
        for event in events {
            sink.write(event, self).await;
        }
        Ok(())
    }

    fn apply(&mut self, _: Noted) {
        self.0 += 1;
    }
}

#[tokio::test]
async fn of_two_concurrent_commits_one_conflicts() {
    let database = database().await;
    let (one, other) = (server(&database).await, server(&database).await);
    let first = EventStore::<Note>::load_aggregate(&one, "n").await.unwrap();
    let second = EventStore::<Note>::load_aggregate(&other, "n").await.unwrap();
    let events = vec![noted("1", "a"), noted("1", "b")];
    let written = EventStore::<Note>::commit(&one, events, first, HashMap::new()).await.unwrap();
    assert_eq!(written.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2]);
    let late = vec![noted("1", "c")];
    let conflict = EventStore::<Note>::commit(&other, late, second, HashMap::new()).await;
    assert!(matches!(conflict, Err(AggregateError::AggregateConflict)), "{conflict:?}");

    let read = EventStore::<Note>::load_events(&other, "n").await.unwrap();
    assert_eq!(read.len(), 2);
    for (read, written) in read.iter().zip(&written) {
        assert_eq!(read.sequence, written.sequence);
        assert_eq!(read.payload.members, written.payload.members);
        assert_eq!(read.metadata, written.metadata);
    }
    let third = EventStore::<Note>::load_aggregate(&other, "n").await.unwrap();
    assert_eq!((third.aggregate.0, third.current_sequence), (2, 2));
}

#[tokio::test]
async fn the_log_rejects_what_it_could_not_read() {
    let database = database().await;
    let log = server(&database).await;
    let notes = CqrsFramework::<Note, _>::new(log, Vec::new(), ());
    let by = |name: &str, value: &str| HashMap::from([(name.to_owned(), value.to_owned())]);
    for (event, metadata, message) in [
        (noted("1.0", "a"), by("actor", "system"), "an event's version is not a number"),
        (noted("1", "encrypted"), by("actor", "system"), "the reserved member `encrypted`"),
        (noted("1", "a"), by("actor", "ann"), "invalid metadata: invalid actor \"ann\""),
        (noted("1", "a"), by("ip", "::1"), "invalid metadata: unknown field `ip`"),
    ] {
        let commit = notes.execute_with_metadata("n", vec![event], metadata).await;
        let error = commit.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    // A command without events appends nothing.
    notes.execute("n", Vec::new()).await.unwrap();
    assert!(verified_events(&database).await.1.is_empty());

    let metadata = by("correlation_id", "c-1");
    notes.execute_with_metadata("n", vec![noted("1", "a")], metadata).await.unwrap();
    let (_, events) = verified_events(&database).await;
    let meta = events[0].meta().unwrap();
    assert_eq!((meta.actor, meta.correlation_id), (Actor::System, Some("c-1".into())));
}
