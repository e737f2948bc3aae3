//! Tests of long polls, offers and sessions, with paused time.
use std::{sync::Arc, time::Duration};

use domain::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, RunnerId, SessionId},
    job::{JobClass, JobEvent, JobKind, Origin, Work},
    runner::{Host, Identity, Runner, RunnerMode},
};
use schemas::runner::{Directive, Poll, Running};
use ulid::Ulid;

use super::{Dispatch, Polled, SessionError, Timing, job_table::JobEventRecord, session::Session};

mod offers;
mod sessions;

const LONG: Duration = Duration::from_secs(50);

fn id(number: u128) -> Ulid {
    Ulid(number)
}

fn runner(number: u128) -> RunnerId {
    RunnerId(id(number))
}

fn job(number: u128) -> JobId {
    JobId(id(number))
}

fn execution(number: u128) -> ExecutionId {
    ExecutionId(id(number))
}

fn dispatch() -> Dispatch {
    Dispatch::new("here", Timing::default(), Arc::new(|| Timestamp::UNIX_EPOCH))
}

/// State of an enrolled runner of an install, or of a build runner.
fn enrolled(install: Option<u128>) -> Runner {
    let identity = Identity {
        mode: if install.is_some() { RunnerMode::Install } else { RunnerMode::Build },
        install: install.map(|n| InstallId(id(n))),
        identity_key: "00".repeat(32),
        install_keys: None,
        version: "1.0.0".into(),
        host: Host { os: "linux".into(), arch: "x86_64".into(), hostname: None },
        enrolment: "tok_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
    };
    Runner { identity: Some(identity), ..Runner::default() }
}

/// Runner `n` of install `n` opens session `generation` with this number of slots.
fn connect(dispatch: &Dispatch, n: u128, generation: u64, slots: u32) {
    let capabilities = vec![JobKind::Plan, JobKind::Apply, JobKind::Action];
    open_session(dispatch, (n, enrolled(Some(n))), generation, slots, capabilities);
}

/// Build runner `n` opens its first session with one slot.
fn connect_build_runner(dispatch: &Dispatch, n: u128) {
    open_session(dispatch, (n, enrolled(None)), 1, 1, vec![JobKind::Build]);
}

fn open_session(
    dispatch: &Dispatch,
    (n, state_of_runner): (u128, Runner),
    generation: u64,
    slots: u32,
    capabilities: Vec<JobKind>,
) {
    let now = dispatch.moment().instant;
    let mut state = dispatch.state();
    state.runners.meet(runner(n), state_of_runner, 1, now);
    let session = SessionId(id(u128::from(generation)));
    let session = Session { capabilities, slots, ..Session::new(session, generation, 1) };
    state.open_session(runner(n), session, now);
}

fn poll_request(generation: u64, free_slots: u32) -> Poll {
    Poll {
        session_id: SessionId(id(u128::from(generation))),
        generation,
        free_slots,
        ack: vec![],
        running: vec![],
        pressure: None,
        disabled: None,
    }
}

async fn poll(dispatch: &Dispatch, n: u128, request: &Poll) -> Result<Polled, SessionError> {
    dispatch.apply_poll(runner(n), request)?;
    dispatch.long_poll(runner(n), request, LONG).await
}

fn apply_event(dispatch: &Dispatch, n: u128, sequence: u64, event: JobEvent) {
    let position = u64::try_from(n).unwrap() * 100 + sequence;
    let recorded_at = Timestamp::UNIX_EPOCH;
    let sequence = (sequence, 0);
    let domain_event =
        JobEventRecord { job: job(n), sequence, position, recorded_at, event, claim: None };
    let now = dispatch.moment();
    dispatch.state().on_job(domain_event, now, dispatch.timing());
}

fn queued(kind: JobKind, install: u128) -> JobEvent {
    let step = "stp_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let run = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    JobEvent::Queued(Work {
        kind,
        class: JobClass::Mutating,
        attempts: 1,
        manifest: format!("sha256:{:064x}", 1).parse().unwrap(),
        origin: Origin::Step { install: InstallId(id(install)), run, step },
        deadline_ms: 60_000,
        queue_ttl_ms: 60_000,
    })
}

fn queued_build() -> JobEvent {
    let JobEvent::Queued(work) = queued(JobKind::Build, 1) else { unreachable!() };
    let origin = Origin::Build {
        app: domain::ids::AppId(id(1)),
        component: domain::ids::ComponentId(id(1)),
        build: domain::ids::BuildId(id(1)),
    };
    JobEvent::Queued(Work { origin, class: JobClass::Pure, ..work })
}

fn succeeded(number: u128) -> JobEvent {
    let execution = execution(number);
    JobEvent::Succeeded {
        execution,
        seq: Some(1),
        exit_code: None,
        signed: None,
        not_ended: vec![],
    }
}

fn claimed(number: u128, by: u128) -> JobEvent {
    JobEvent::Claimed {
        execution: execution(number),
        runner: runner(by),
        session: SessionId(id(1)),
        claim_id: "c".into(),
        attempt: 1,
        deadline: Timestamp::UNIX_EPOCH + Duration::from_secs(60),
    }
}

fn directives(polled: Polled) -> Vec<Directive> {
    match polled {
        Polled::Directives { directives, .. } => {
            directives.into_iter().map(|sent| sent.directive).collect()
        }
        Polled::Empty => vec![],
    }
}

fn offered(polled: Polled) -> Vec<JobId> {
    let of = |directive| {
        if let Directive::Offer { job, .. } = directive { Some(job) } else { None }
    };
    directives(polled).into_iter().filter_map(of).collect()
}

/// Lets the spawned polls start waiting.
async fn let_polls_wait() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

fn spawn_poll(
    dispatch: &Dispatch,
    n: u128,
    request: Poll,
) -> tokio::task::JoinHandle<Result<Polled, SessionError>> {
    let dispatch = dispatch.clone();
    tokio::spawn(async move { poll(&dispatch, n, &request).await })
}

#[tokio::test(start_paused = true)]
async fn long_poll_returns_an_offer_immediately() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let waiting = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    let before = tokio::time::Instant::now();
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 1));
    assert_eq!(offered(waiting.await.unwrap().unwrap()), [job(7)]);
    assert_eq!(tokio::time::Instant::now(), before);
}

#[tokio::test(start_paused = true)]
async fn long_poll_without_directives_returns_after_the_wait() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let before = tokio::time::Instant::now();
    assert_eq!(poll(&dispatch, 1, &poll_request(1, 2)).await, Ok(Polled::Empty));
    assert_eq!(before.elapsed(), LONG);
}

#[tokio::test(start_paused = true)]
async fn long_poll_with_running_work_lasts_a_third_of_the_lease() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let running = Running { job: job(7), execution: execution(1), phase: None, log_len: 0 };
    let before = tokio::time::Instant::now();
    let busy = Poll { running: vec![running], ..poll_request(1, 1) };
    assert_eq!(poll(&dispatch, 1, &busy).await, Ok(Polled::Empty));
    assert_eq!(before.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn second_poll_of_a_session_releases_the_first() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let first = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    let second = spawn_poll(&dispatch, 1, poll_request(1, 2));
    let_polls_wait().await;
    assert_eq!(first.await.unwrap(), Ok(Polled::Empty));
    apply_event(&dispatch, 7, 1, queued(JobKind::Plan, 1));
    assert_eq!(offered(second.await.unwrap().unwrap()), [job(7)]);
}

#[tokio::test(start_paused = true)]
async fn events_decoded_from_one_stored_event_are_applied_once() {
    let dispatch = dispatch();
    apply_event(&dispatch, 1, 1, queued(JobKind::Plan, 1));
    let take = |part, event| {
        let (sequence, recorded_at) = ((2, part), Timestamp::UNIX_EPOCH);
        let domain_event = JobEventRecord {
            job: job(1),
            sequence,
            position: 102,
            recorded_at,
            event,
            claim: None,
        };
        let now = dispatch.moment();
        dispatch.state().on_job(domain_event, now, dispatch.timing());
        dispatch.state().jobs.get(job(1)).map(|tracked| tracked.sequence)
    };
    let lost = || JobEvent::Disconnected { execution: execution(7) };
    assert_eq!(take(0, claimed(7, 1)), Some((2, 0)));
    assert_eq!(take(1, lost()), Some((2, 1)));
    // The same event from another source is ignored.
    assert_eq!(take(0, claimed(8, 2)), Some((2, 1)));
    let held = dispatch.state().jobs.get(job(1)).and_then(|of| of.execution().map(|held| held.id));
    assert_eq!(held, Some(execution(7)));
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_the_long_poll_and_every_response() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    apply_event(&dispatch, 7, 1, queued(JobKind::Apply, 1));
    apply_event(&dispatch, 7, 2, claimed(1, 1));
    let waiting = spawn_poll(&dispatch, 1, poll_request(1, 1));
    let_polls_wait().await;
    let by: Actor = "prn_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let (reason, force) = ("wrong version".to_string(), false);
    apply_event(&dispatch, 7, 3, JobEvent::CancelRequested { by, reason: reason.clone(), force });
    let received = directives(waiting.await.unwrap().unwrap());
    let (job, execution, grace_s) = (job(7), execution(1), 300);
    assert_eq!(received, [Directive::Cancel { job, execution, reason, grace_s, force }]);
    assert!(dispatch.pending_cancel(job, execution).is_some());
}

#[tokio::test(start_paused = true)]
async fn runner_sends_logs_often_while_there_are_readers() {
    let dispatch = dispatch();
    connect(&dispatch, 1, 1, 2);
    let job = job(7);
    // Two readers follow the log before a runner claims the job.
    dispatch.set_log_reader(job, true);
    dispatch.set_log_reader(job, true);
    apply_event(&dispatch, 7, 1, queued(JobKind::Apply, 1));
    apply_event(&dispatch, 7, 2, claimed(1, 1));
    let is_requested =
        |directives: Vec<Directive>| directives.contains(&Directive::Tail { job, on: false });
    let first = poll(&dispatch, 1, &poll_request(1, 1)).await.unwrap();
    assert_eq!(directives(first.clone()), [Directive::Tail { job, on: true }]);
    let Polled::Directives { directives: sent, .. } = first else { panic!() };
    dispatch.set_log_reader(job, false);
    let acknowledgement = Poll { ack: vec![sent[0].id.clone()], ..poll_request(1, 1) };
    assert_eq!(poll(&dispatch, 1, &acknowledgement).await, Ok(Polled::Empty), "one reader remains");
    dispatch.set_log_reader(job, false);
    assert!(is_requested(directives(poll(&dispatch, 1, &poll_request(1, 1)).await.unwrap())));
}
