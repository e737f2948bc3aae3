//! Isolation of a reaction that fails.
use std::sync::Arc;

use domain::ids::{InstallId, RunnerId};
use event_log::{Commit, NewEvent, StreamId, Write, consumer::ConsumerLease};
use serde_json::json;
use ulid::Ulid;

use super::*;
use crate::{clock::system_clock, reactions::policies::CONSUMER, server::testing::Started};

tokio::task_local! {
    /// Set in a task whose clock panics.
    static BROKEN: ();
}

#[tokio::test]
async fn panicking_reaction_is_an_internal_error_and_stops_no_other() {
    let clock = Arc::new(|| {
        assert!(BROKEN.try_with(|()| ()).is_err(), "injected clock failure");
        system_clock()()
    });
    let started = Started::by(clock).await;
    let app = started.app();
    // given an event with a reaction
    let stream = StreamId::new("install", InstallId(Ulid::new()).to_string());
    let payload =
        json!({"type": "stack_outputs_reported", "runner": RunnerId(Ulid::new()), "outputs": {}});
    let domain_event = NewEvent {
        event_type: "install.stack_outputs_reported".into(),
        event_version: "1".into(),
        payload: payload.to_string(),
        customer: None,
    };
    let meta = Meta::new(Actor::System, "cmd");
    let write = Write { stream, expected: 0, events: vec![domain_event] };
    let at = app.log().append(Commit::of(meta, vec![write])).await.unwrap().last;
    let event = app.log().read(at - 1, 1).await.unwrap().remove(0);
    let (name, version, shard) = CONSUMER;
    let held = ConsumerLease { name: name.into(), version, shard, position: at, owner_epoch: 1 };
    let place = PolicyConsumer::of(held);
    // when its reaction panics
    let panicked = BROKEN.scope((), react_to(app, &place, &event)).await.unwrap_err();
    // then the event becomes a dead letter and is retried like after any other internal error
    assert_eq!(classify(panicked.code), FailureClass::Internal);
    react_to(app, &place, &event).await.unwrap();
    started.server.stop().await;
}
