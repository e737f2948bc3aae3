//! Tests that a job is offered to a runner with a free slot until it is claimed.
use super::*;
use crate::dispatch::{
    job_table::Target,
    offers::{Offer, Offers},
};

#[tokio::test(start_paused = true)]
async fn offer_is_resent_until_acknowledged_and_renewed_when_it_expires() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 1));
    let Ok(Polled::Directives { directives: first, .. }) =
        poll(&dispatch, 1, &poll_request(1, 2)).await
    else {
        panic!("no offer")
    };
    let Ok(Polled::Directives { directives: resent, .. }) =
        poll(&dispatch, 1, &poll_request(1, 2)).await
    else {
        panic!("no offer")
    };
    assert_eq!(first, resent, "it was not acknowledged");
    let acknowledgement = Poll { ack: vec![first[0].id.clone()], ..poll_request(1, 2) };
    let waiting = spawn_poll(&dispatch, 1, acknowledgement);
    let_polls_wait().await;
    assert!(!waiting.is_finished());
    tokio::time::advance(Duration::from_secs(16)).await;
    dispatch.state().on_tick(dispatch.moment(), dispatch.timing());
    let next = waiting.await.unwrap().unwrap();
    assert_eq!(offered(next), [job(7)]);
}

#[tokio::test(start_paused = true)]
async fn claimed_job_is_not_offered_again() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 1));
    assert_eq!(offered(poll(&dispatch, 1, &poll_request(1, 2)).await.unwrap()), [job(7)]);
    apply_event(&dispatch, 7, 2, claimed(1, 1));
    assert_eq!(poll(&dispatch, 1, &poll_request(1, 1)).await, Ok(Polled::Empty));
    assert!(dispatch.holds_execution(runner(1), execution(1)));
}

#[tokio::test(start_paused = true)]
async fn offers_do_not_exceed_the_free_slots() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 3);
    for n in 7..12 {
        apply_event(&dispatch, n, 1, queued(JobKind::Plan, 1));
    }
    // The third slot is reserved for actions.
    assert_eq!(offered(poll(&dispatch, 1, &poll_request(1, 3)).await.unwrap()), [job(7), job(8)]);
    apply_event(&dispatch, 12, 1, queued(JobKind::Action, 1));
    assert!(offered(poll(&dispatch, 1, &poll_request(1, 3)).await.unwrap()).contains(&job(12)));
}

/// Returns the jobs that build runner `n` is offered. The runner has one slot.
async fn builds(dispatch: &Dispatch, n: u128) -> Vec<JobId> {
    offered(poll(dispatch, n, &poll_request(1, 1)).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn large_fleet_gets_each_job_once_in_queue_order() {
    const FLEET: u128 = 200;
    let dispatch = dispatch();
    for n in 1..=FLEET {
        connect_build_runner(&dispatch, n);
    }
    let waiting: Vec<_> =
        (1..=FLEET).map(|n| spawn_poll(&dispatch, n, poll_request(1, 1))).collect();
    let_polls_wait().await;
    for n in 1_000..1_000 + FLEET + 10 {
        apply_event(&dispatch, n, 1, queued_build());
    }
    let mut seen = Vec::new();
    for poll in waiting {
        let jobs = offered(poll.await.unwrap().unwrap());
        assert_eq!(jobs.len(), 1, "each runner has one slot");
        seen.extend(jobs);
    }
    seen.sort();
    assert_eq!(seen, (1_000..1_000 + FLEET).map(job).collect::<Vec<_>>());

    // A runner with a free slot gets the oldest job. No other runner has a free slot.
    let had = builds(&dispatch, 7).await[0].0.0;
    apply_event(&dispatch, had, 2, claimed(7, 7));
    apply_event(&dispatch, had, 3, succeeded(7));
    assert_eq!(builds(&dispatch, 7).await, [job(1_000 + FLEET)]);
    dispatch.state().on_tick(dispatch.moment(), dispatch.timing());
    assert_eq!(dispatch.state().jobs.waiting(Target::Build, JobKind::Build), 9);
}

#[tokio::test(start_paused = true)]
async fn job_of_another_install_is_not_offered() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 2));
    assert_eq!(poll(&dispatch, 1, &poll_request(1, 2)).await, Ok(Polled::Empty));
}

#[tokio::test(start_paused = true)]
async fn offer_counts_match_the_offers() {
    let (mut offers, now) = (Offers::default(), tokio::time::Instant::now());
    let until = now + Duration::from_secs(15);
    let of = |by, kind| Offer { runner: runner(by), kind, until };
    offers.add(job(1), of(1, JobKind::Plan));
    offers.add(job(2), of(1, JobKind::Action));
    offers.add(job(1), of(2, JobKind::Plan));
    assert_eq!((offers.load(runner(1)), offers.load(runner(2))), ((1, 0), (0, 1)));
    assert_eq!(offers.withdraw(runner(1)), [job(2)]);
    assert_eq!(offers.expired(until).len(), 1);
    assert_eq!((offers.load(runner(1)), offers.load(runner(2))), ((0, 0), (0, 0)));
}
