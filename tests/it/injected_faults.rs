//! Tests that the oracle of the nemesis tests detects each injected fault, and reports nothing
//! without one. The test of the timeout's fault is in `api`.
use std::time::{Duration, Instant};

use domain::actor::Actor;
use event_log::{
    AppendError, Appended, Commit, EventLog, Meta, NewEvent, Options, StreamId, Write,
    fault_injection::{Fault, has, inject},
    testing::{
        Database, fresh_database,
        proxy::{Fault as ProxyFault, Proxy},
    },
};
use projections::Projections;
use tests::oracle::{self, CallerWrite, WriteResult};
use tokio::sync::Mutex;
use ulid::Ulid;

/// Lock, because a fault affects the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Checks that the oracle reports nothing for this load, and reports a finding with the text `what`
/// once the fault is active.
async fn assert_found<F: Future<Output = (Database, Vec<CallerWrite>)>>(
    fault: Fault,
    load: fn() -> F,
    what: &str,
) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (database, writes) = load().await;
    assert_eq!(oracle::check_all(&database.pool, &writes).await, [] as [String; 0]);
    // The fault stays active while the oracle runs: verification by the program itself cannot
    // detect a wrong hash function.
    let _fault = inject(fault);
    let (database, writes) = load().await;
    let findings = oracle::check_all(&database.pool, &writes).await;
    assert!(findings.iter().any(|finding| finding.contains(what)), "{fault:?}: {findings:?}");
}

/// Opens the log as one server that does not poll for writes of other servers.
async fn server(url: &str) -> EventLog {
    let options = Options {
        poll_interval: None,
        query_timeout: Duration::from_secs(2),
        inline_projections: projections::inline_projections(),
        ..Options::default()
    };
    EventLog::open(event_log::connect(url, 2).await.unwrap(), options).await.unwrap()
}

fn stream(number: u128) -> StreamId {
    StreamId::new("job", format!("job_{}", Ulid(number)))
}

/// Returns a commit that queues a job in a stream at the expected version.
fn queued(number: u128, expected: u64) -> Commit {
    const EXAMPLE: &str = include_str!("../../schemas/events/job.queued/1.example.json");
    let payload = EXAMPLE.lines().map(str::trim_start).collect();
    let event = NewEvent {
        event_type: "job.queued".into(),
        event_version: "1".into(),
        payload,
        customer: None,
    };
    let write = Write { stream: stream(number), expected, events: vec![event] };
    Commit::of(Meta::new(Actor::System, "cmd"), vec![write])
}

async fn queue(log: &EventLog, number: u128, expected: u64) -> CallerWrite {
    let result = match log.append(queued(number, expected)).await {
        Ok(Appended { last, .. }) => {
            WriteResult::Written { event: "job.queued".into(), position: last }
        }
        Err(AppendError::Conflict { .. }) => WriteResult::Refused,
        Err(other) => panic!("{other}"),
    };
    CallerWrite { stream: stream(number).to_string(), result }
}

/// Runs two servers whose callers write the same streams.
async fn two_servers() -> (Database, Vec<CallerWrite>) {
    let database = fresh_database().await.unwrap();
    let (one, two) = (server(&database.url).await, server(&database.url).await);
    let calls = (1..40).flat_map(|number| [queue(&one, number, 0), queue(&two, number, 0)]);
    let writes = futures::future::join_all(calls).await;
    (database, writes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_before_the_commit_is_found() {
    assert_found(Fault::RespondBeforeCommit, two_servers, "acknowledged").await;
}

/// Runs a server whose connections to the database lose their results.
async fn lost_answers() -> (Database, Vec<CallerWrite>) {
    let database = fresh_database().await.unwrap();
    let proxy = Proxy::before(&database.url);
    let log = server(&proxy.url(&database.url)).await;
    let mut writes = vec![];
    for number in 1..6 {
        // The connection prepares the statement before its result is lost.
        writes.push(queue(&log, number * 2, 0).await);
        proxy.arm(ProxyFault::ReplyLost);
        writes.push(queue(&log, number * 2 + 1, 0).await);
    }
    (database, writes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_of_an_uncertain_commit_is_found() {
    assert_found(Fault::RetryInDoubt, lost_answers, "never acknowledged").await;
}

/// Runs a server that appends at a version of a stream that does not exist.
async fn absent_streams() -> (Database, Vec<CallerWrite>) {
    let database = fresh_database().await.unwrap();
    let log = server(&database.url).await;
    let mut writes = vec![queue(&log, 1, 0).await];
    writes.push(queue(&log, 2, 5).await);
    writes.push(queue(&log, 3, 0).await);
    (database, writes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_ignores_absent_streams_is_found() {
    assert_found(Fault::GuardWithoutAbsent, absent_streams, "does not verify").await;
}

/// Swaps projections while two servers write them.
async fn swaps() -> (Database, Vec<CallerWrite>) {
    let database = fresh_database().await.unwrap();
    // Sets a short deadlock timeout, because a swap releases its locks soon and Postgres must
    // detect a deadlock before then.
    let set_timeout = "do $$ begin execute format('alter database %I set deadlock_timeout = ''5ms''', \
                current_database()); end $$";
    sqlx::raw_sql(set_timeout).execute(&database.pool).await.unwrap();
    let (one, two) = (server(&database.url).await, server(&database.url).await);
    let _views = Projections::start(&one).await.unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let write = async |log: &EventLog, from: u128| {
        let mut writes = vec![];
        for number in from.. {
            writes.push(queue(log, number, 0).await);
            if stop.load(std::sync::atomic::Ordering::SeqCst) {
                break;
            }
        }
        writes
    };
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    let deadlocks =
        async || sqlx::query_scalar::<_, i64>(deadlocks).fetch_one(&database.pool).await.unwrap();
    let swap = async {
        let (is_injected, began) = (has(Fault::HeadBeforeTables), Instant::now());
        let mut swaps = 0;
        // An append begins between the two locks of a swap only by chance, so swaps repeat until a
        // deadlock.
        while swaps < 10
            || (is_injected && deadlocks().await == 0 && began.elapsed() < Duration::from_secs(30))
        {
            projections::rebuild(&database.pool, "job_queue", |_| {}).await.unwrap();
            swaps += 1;
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let (mut writes, more, ()) = tokio::join!(write(&one, 1), write(&two, 1_000_000), swap);
    writes.extend(more);
    (database, writes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_that_locks_the_head_first_is_found() {
    assert_found(Fault::HeadBeforeTables, swaps, "deadlocks").await;
}

/// Writes events one by one, and waits each time until the projections have processed the event.
async fn a_view_that_follows() -> (Database, Vec<CallerWrite>) {
    let database = fresh_database().await.unwrap();
    let log = server(&database.url).await;
    let views = Projections::start(&log).await.unwrap();
    let mut writes = vec![];
    for number in 1..6 {
        writes.push(queue(&log, number, 0).await);
        views.wait_for(log.position(), Duration::from_secs(10)).await.unwrap();
    }
    (database, writes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_ahead_by_one_is_found() {
    assert_found(Fault::ConsumerOffByOne, a_view_that_follows, "jobs: ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_without_its_prefix_is_found() {
    assert_found(Fault::UnprefixedLeaf, two_servers, "RFC 6962").await;
}
