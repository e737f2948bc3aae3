//! Events of an older program are upcast when they are read, from the first event or after a
//! snapshot.
use crate::support;

use bincode::{Decode, Encode};
use domain::{
    decider::{Decider, Event, Timestamp},
    upcast::{Upcaster, VersionedPayload},
};
use event_log::{Commit, EventLog, NewEvent, StreamId, Write};
use serde::{Deserialize, Serialize};
use support::{count, database, meta, pause, server, server_without_polling};

/// A sum, in the current version.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
struct Sum {
    value: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SumEvent {
    Added { by: u64 },
}

impl Event for SumEvent {
    fn name(&self) -> &'static str {
        "sum.added"
    }
    fn version(&self) -> &'static str {
        "2"
    }
    const UPCASTERS: &'static [Upcaster] = &[
        // One old event added several numbers.
        Upcaster {
            event_type: "sum.added",
            version: "1",
            convert: |old| {
                let numbers = old["numbers"].as_array().ok_or("numbers is not a list")?;
                let added = |by| serde_json::json!({"type": "added", "by": by});
                let words =
                    |payload| VersionedPayload { event_type: "sum.added", version: "2", payload };
                Ok(numbers.iter().map(added).map(words).collect())
            },
        },
        // The upcaster drops this event.
        Upcaster { event_type: "sum.noted", version: "1", convert: |_| Ok(vec![]) },
    ];
}

impl Decider for Sum {
    const NAME: &'static str = "sum";
    type Command = ();
    type Event = SumEvent;
    type Error = std::convert::Infallible;

    fn decide(&self, (): (), _: Timestamp) -> Result<Vec<SumEvent>, Self::Error> {
        Ok(vec![])
    }
    fn evolve(&mut self, SumEvent::Added { by }: SumEvent) {
        self.value += by;
    }
}

fn event(event_type: &'static str, version: &'static str, payload: &str) -> NewEvent {
    NewEvent {
        event_type: event_type.into(),
        event_version: version.into(),
        payload: payload.into(),
        customer: None,
    }
}

async fn append(log: &EventLog, expected: u64, events: Vec<NewEvent>) {
    let stream = StreamId::new("sum", "s");
    log.append(Commit::of(meta(), vec![Write { stream, expected, events }])).await.unwrap();
}

#[tokio::test]
async fn upcast_event_counts_once_in_its_stream() {
    let database = database().await;
    let log = server(&database).await;
    let old = vec![
        event("sum.added", "1", r#"{"type":"added","numbers":[1,2,3]}"#),
        event("sum.noted", "1", r#"{"type":"noted","text":"hm"}"#),
        event("sum.added", "1", r#"{"type":"added","numbers":[]}"#),
        event("sum.added", "2", r#"{"type":"added","by":10}"#),
    ];
    append(&log, 0, old).await;
    for (position, value) in [(1, 6), (2, 6), (3, 6), (4, 16)] {
        let then = log.load_as_of::<Sum>("s", position).await.unwrap();
        assert_eq!((then.version, then.state.value), (position, value));
    }
    // Appends events until the stream gets a snapshot.
    let more = vec![event("sum.added", "1", r#"{"type":"added","numbers":[1,1]}"#); 200];
    append(&log, 4, more).await;
    let loaded = server_without_polling(&database).await.load::<Sum>("s").await.unwrap();
    assert_eq!((loaded.version, loaded.state.value), (204, 416));
    for _ in 0..200 {
        if count(&database, "select count(*) from log_snapshot where aggregate_type = 'sum'").await
            == 1
        {
            break;
        }
        pause(25).await;
    }
    append(&log, 204, vec![event("sum.added", "1", r#"{"type":"added","numbers":[4]}"#)]).await;
    let loaded = server_without_polling(&database).await.load::<Sum>("s").await.unwrap();
    assert_eq!((loaded.version, loaded.state.value), (205, 420));
    // A new event is appended after the last sequence.
    append(&log, loaded.version, vec![NewEvent::of(&SumEvent::Added { by: 1 }).unwrap()]).await;
}

#[tokio::test]
async fn error_of_an_unreadable_event_has_its_position_type_and_version() {
    let database = database().await;
    let log = server(&database).await;
    append(&log, 0, vec![event("sum.added", "2", r#"{"type":"added","by":1}"#)]).await;
    append(&log, 1, vec![event("sum.added", "3", r#"{"type":"added","by":1}"#)]).await;
    let error =
        server_without_polling(&database).await.load::<Sum>("s").await.unwrap_err().to_string();
    let expected = "cannot read the log at position 2: sum.added version 3: this program reads only \
                    version 2 of sum.added";
    assert_eq!(error, expected);
}
