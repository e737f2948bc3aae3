//! Tests of session directives, and of the count of long polls.
use domain::runner::RunnerEvent;

use super::*;
use crate::dispatch::session::Wake;

#[tokio::test(start_paused = true)]
async fn drained_runner_is_notified_and_gets_no_offers_until_it_resumes() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let waiting = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    let change = |sequence, event| {
        let now = dispatch.moment();
        dispatch.state().on_runner(runner(1), (sequence, 0), event, now, dispatch.timing());
    };
    change(2, RunnerEvent::Drained { by: Actor::System, reason: None });
    let Ok(Polled::Directives { directives: received, .. }) = waiting.await.unwrap() else {
        panic!()
    };
    assert!(matches!(received[0].directive, Directive::Drain { .. }));
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 1));
    let acknowledgement = Poll { ack: vec![received[0].id.clone()], ..poll_request(1, 2) };
    assert_eq!(poll(&dispatch, 1, &acknowledgement).await, Ok(Polled::Empty));
    change(3, RunnerEvent::Resumed { by: Actor::System, reason: None });
    let received = directives(poll(&dispatch, 1, &poll_request(1, 2)).await.unwrap());
    assert!(received.contains(&Directive::Resume));
    assert!(matches!(received[1], Directive::Offer { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_runner_is_refused_at_once() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let waiting = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    let (now, reason) = (dispatch.moment(), "stolen".into());
    dispatch.state().on_runner(
        runner(1),
        (2, 0),
        RunnerEvent::Revoked { by: Actor::System, reason },
        now,
        dispatch.timing(),
    );
    assert_eq!(waiting.await.unwrap(), Err(SessionError::Revoked));
}

#[tokio::test(start_paused = true)]
async fn the_newest_session_wins() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let waiting = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    connect(&dispatch, 1, 2, 2);
    assert_eq!(waiting.await.unwrap(), Err(SessionError::Superseded));
    assert_eq!(poll(&dispatch, 1, &poll_request(1, 2)).await, Err(SessionError::Superseded));
    assert_eq!(poll(&dispatch, 1, &poll_request(3, 2)).await, Err(SessionError::Unknown));
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 1));
    assert_eq!(offered(poll(&dispatch, 1, &poll_request(2, 2)).await.unwrap()), [job(7)]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_long_poll_and_spreads_the_reconnects() {
    let dispatch = dispatch();
    for n in 1..=1_000 {
        connect(&dispatch, n, 1, 1);
    }
    let waiting: Vec<_> =
        (1..=1_000).map(|n| spawn_poll(&dispatch, n, poll_request(1, 1))).collect();
    let_polls_wait().await;
    dispatch.stop();
    let mut delays = vec![];
    for poll in waiting {
        let Ok(Polled::Directives { directives, delay_ms, .. }) = poll.await.unwrap() else {
            panic!()
        };
        assert!(directives.is_empty());
        delays.push(delay_ms);
    }
    assert!(delays.iter().all(|delay| *delay < 5_000));
    assert!(delays.iter().max() > delays.iter().min());
}

#[tokio::test(start_paused = true)]
async fn disconnected_caller_does_not_count_as_a_long_poll() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let waiting = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    waiting.abort();
    let_polls_wait().await;
    let mut state = dispatch.state();
    let known = state.runners.get_mut(runner(1)).unwrap();
    let session = known.session.as_mut().unwrap();
    assert!(!session.has_long_poll());
    assert!(!session.wake(Wake::Directive), "the request has ended, so there is none to wake");
}

#[tokio::test(start_paused = true)]
async fn disconnected_execution_is_reattached_by_the_next_call() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    apply_event(&dispatch, 7, 1, queued(JobKind::Apply, 1));
    apply_event(&dispatch, 7, 2, claimed(1, 1));
    assert_eq!(dispatch.record_execution_contact(runner(1), job(7), execution(1)).reattach, []);
    apply_event(&dispatch, 7, 3, JobEvent::Disconnected { execution: execution(1) });
    let touched = dispatch.record_execution_contact(runner(1), job(7), execution(1));
    assert_eq!(touched.reattach, [(job(7), execution(1))]);
    assert_eq!(dispatch.record_execution_contact(runner(1), job(7), execution(2)).reattach, []);
}
