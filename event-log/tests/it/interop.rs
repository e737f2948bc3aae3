//! Stock postgres-es reads the event table without any code of this project.
use crate::support;

use cqrs_es::{
    AggregateContext, DomainEvent, EventStore,
    persist::{PersistedEventRepository, PersistedEventStore},
    test::TestFramework,
};
use domain::decider::{Decider, Timestamp};
use event_log::{
    Commit,
    cqrs::{CqrsEvent, Now, Root},
};
use postgres_es::PostgresEventRepository;
use support::{
    counter::{Counter, CounterCommand, CounterEvent},
    database, meta, server,
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
    let facts = store.load_events("c").await.unwrap();
    assert_eq!(facts[0].payload, CqrsEvent(CounterEvent::Added { by: 2 }));
    let mut context = store.load_aggregate("c").await.unwrap();
    assert_eq!(context.aggregate().0, Counter { value: 10, closed: false });
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
    let fact = CqrsEvent(CounterEvent::Added { by: 1 });
    assert_eq!((fact.event_type(), fact.event_version()), ("counter.added".into(), "1".into()));
    assert_eq!(serde_json::to_string(&fact).unwrap(), r#"{"type":"added","by":1}"#);
}
