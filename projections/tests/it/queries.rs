//! Queries of the projections, on histories that the aggregates allow.
use crate::support;

use std::time::Duration;

use chrono::TimeDelta;
use domain::{
    access::{Access, AccessCommand, IssuedToken, PrincipalKind, Role},
    app::{App, AppCommand},
    decider::Timestamp,
    digest::Digest,
    ids::{
        AppId, ExecutionId, InstallId, JobId, PrincipalId, RunId, RunnerId, SessionId, StepId,
        TokenId,
    },
    job::{
        ExecutionResult, FinalizedLog, Job, JobClass, JobCommand, JobKind, LossReason, Origin,
        Report, Work,
    },
};
use event_log::EventLog;
use projections::{
    Projections,
    views::{
        apps,
        job_queue::{self, Target},
        jobs::{self, JobState},
        timers, tokens,
    },
};
use support::{database, handle, open, ulid};

const INSTALL: InstallId = InstallId(ulid::Ulid(1));
const JOB: JobId = JobId(ulid::Ulid(2));
const A: ExecutionId = ExecutionId(ulid::Ulid(3));
const LONG: Duration = Duration::from_secs(30);

fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

fn work() -> Work {
    Work {
        kind: JobKind::Plan,
        class: JobClass::Pure,
        attempts: 2,
        manifest: digest(1),
        origin: Origin::Step { install: INSTALL, run: RunId(ulid(4)), step: StepId(ulid(5)) },
        deadline_ms: 60_000,
        queue_ttl_ms: 10_000,
    }
}

fn claim(execution: ExecutionId) -> JobCommand {
    let (runner, session) = (RunnerId(ulid(6)), SessionId(ulid(7)));
    JobCommand::Claim { execution, runner, session, claim_id: execution.to_string() }
}

fn report(seq: u64, report: Report) -> JobCommand {
    JobCommand::Report { execution: A, seq, report, signed: None }
}

/// Current time of the log's clock.
fn now(log: &EventLog) -> Timestamp {
    log.clock().now()
}

#[tokio::test]
async fn a_job_stays_in_the_queue_of_its_install_until_a_runner_claims_it() {
    let database = database().await;
    let log = open(&database).await;
    let pool = &database.pool;
    let (now, own, other) = (now(&log), Target::Install(INSTALL), Target::Build);
    handle::<Job>(&log, JOB, now, JobCommand::Queue(work())).await;
    let waiting = job_queue::waiting(pool, own, 10).await.unwrap();
    assert_eq!(waiting.iter().map(|row| (row.job, row.attempt)).collect::<Vec<_>>(), [(JOB, 1)]);
    assert_eq!(job_queue::waiting(pool, other, 10).await.unwrap(), []);

    handle::<Job>(&log, JOB, now, claim(A)).await;
    assert_eq!(job_queue::waiting(pool, own, 10).await.unwrap(), []);
    assert_eq!(job_queue::all_held(pool).await.unwrap()[0].execution, Some(A));

    let lost = JobCommand::DeclareLost { execution: A, loss_reason: LossReason::NeverSpawned };
    handle::<Job>(&log, JOB, now, lost).await;
    let again = job_queue::all_waiting(pool).await.unwrap();
    assert_eq!((again[0].attempt, again[0].position, again[0].execution), (2, 3, None));

    handle::<Job>(&log, JOB, now, JobCommand::Expire { attempt: 2 }).await;
    assert_eq!(job_queue::job(pool, JOB).await.unwrap(), None);
}

#[tokio::test]
async fn logs_of_ended_executions_are_open_until_they_are_finalized() {
    let database = database().await;
    let log = open(&database).await;
    let now = now(&log);
    let open_logs = async || timers::jobs_with_open_logs(&database.pool).await.unwrap();
    handle::<Job>(&log, JOB, now, JobCommand::Queue(work())).await;
    handle::<Job>(&log, JOB, now, claim(A)).await;
    assert_eq!(open_logs().await, []);

    let by = domain::actor::Actor::System;
    let cancel = JobCommand::RequestCancel { by, reason: "x".into(), force: true };
    handle::<Job>(&log, JOB, now, cancel).await;
    let result = ExecutionResult::Cancelled { forced: false, not_ended: vec![] };
    handle::<Job>(&log, JOB, now, report(1, Report::Finished(result))).await;
    assert_eq!(open_logs().await, [JOB]);
    assert_eq!(timers::due(&database.pool, Timestamp::MAX_UTC, 10).await.unwrap(), []);
    let finalized = FinalizedLog {
        execution: A,
        length_bytes: 0,
        sha256: digest(0),
        omitted_bytes: 0,
        complete: true,
    };
    handle::<Job>(&log, JOB, now, JobCommand::FinalizeLog(finalized)).await;
    assert_eq!(open_logs().await, []);
}

#[tokio::test]
async fn a_job_lists_all_its_executions() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let (now, b) = (now(&log), ExecutionId(ulid(9)));
    handle::<Job>(&log, JOB, now, JobCommand::Queue(work())).await;
    handle::<Job>(&log, JOB, now, claim(A)).await;
    handle::<Job>(&log, JOB, now, report(1, Report::Started { isolation: None })).await;
    handle::<Job>(&log, JOB, now, report(2, Report::Phase { phase: "init".into() })).await;
    let reason = LossReason::ExecutionNotInJournal;
    handle::<Job>(&log, JOB, now, JobCommand::DeclareLost { execution: A, loss_reason: reason })
        .await;
    handle::<Job>(&log, JOB, now, claim(b)).await;
    views.wait_for(log.position(), LONG).await.unwrap();

    let row = jobs::job(&database.pool, JOB).await.unwrap().unwrap();
    assert_eq!((row.state, row.install()), (JobState::Claimed, Some(INSTALL)));
    let lost = &row.attempts[0];
    assert_eq!((lost.execution, lost.loss_reason, lost.attempt), (A, Some(reason), 1));
    assert_eq!(lost.phases[0].0, "init");
    assert!(lost.ended_at.is_some() && lost.started_at.is_some());
    assert_eq!(row.held().map(|held| (held.execution, held.claimed_position)), Some((b, 6)));

    let filter = jobs::Filter { install: Some(INSTALL), ..jobs::Filter::default() };
    let page = jobs::page(&database.pool, &filter, None, 10).await.unwrap();
    assert_eq!(page.first(), Some(&row));
    assert_eq!(jobs::page(&database.pool, &filter, Some(JOB), 10).await.unwrap(), []);
    assert_eq!(jobs::held_by(&database.pool, &[RunnerId(ulid(6))]).await.unwrap(), [row]);
}

#[tokio::test]
async fn a_token_is_found_by_its_secret_and_invalid_after_its_revocation() {
    let database = database().await;
    let log = open(&database).await;
    let (now, ann, token) = (now(&log), PrincipalId(ulid(1)), TokenId(ulid(2)));
    let (kind, name_ref) = (PrincipalKind::Person, None);
    handle::<Access>(&log, ann, now, AccessCommand::AddPrincipal { kind, name_ref }).await;
    handle::<Access>(&log, ann, now, AccessCommand::GrantRole { role: Role::Approver }).await;
    let expires_at = Some(now + TimeDelta::hours(1));
    let issued = IssuedToken { token, sha256: digest(7), expires_at };
    handle::<Access>(&log, ann, now, AccessCommand::IssueToken(issued)).await;

    let mut connection = database.pool.acquire().await.unwrap();
    let found = tokens::by_secret(&mut connection, &digest(7)).await.unwrap();
    let (row, principal) = found.unwrap();
    assert_eq!(
        (row.token, row.principal, principal.roles.contains(&Role::Approver)),
        (token, ann, true)
    );
    assert!(row.is_valid(now) && !row.is_valid(now + TimeDelta::hours(1)));
    assert_eq!(tokens::by_secret(&mut connection, &digest(8)).await.unwrap(), None);

    handle::<Access>(&log, ann, now, AccessCommand::RevokeToken { token }).await;
    let (row, _) = tokens::by_secret(&mut connection, &digest(7)).await.unwrap().unwrap();
    assert!(!row.is_valid(now));
}

#[tokio::test]
async fn an_app_is_found_by_its_name_with_its_last_version() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let (now, app) = (now(&log), AppId(ulid(1)));
    handle::<App>(&log, app, now, AppCommand::Create { name: "shop".into() }).await;
    let publish = AppCommand::Publish { bundle: digest(1), components: vec![], plugins: vec![] };
    let published = handle::<App>(&log, app, now, publish).await;

    views.wait_for(published.last, LONG).await.unwrap();
    let row = apps::by_name(&database.pool, "shop").await.unwrap().unwrap();
    assert_eq!((row.app, row.version, row.position), (app, 1, published.last));
}

/// Returns the number of rows that a query reads from a table, after enough repetitions for
/// Postgres to use a generic plan.
///
/// Postgres may also count earlier reads of this connection that it has not reported to its
/// statistics yet. The function subtracts them.
async fn reads<T, F>(database: &event_log::testing::Database, table: &str, query: F) -> (usize, i64)
where
    F: AsyncFn(&mut sqlx::PgConnection) -> Vec<T>,
{
    let mut transaction = database.pool.begin().await.unwrap();
    let (mut returned, times) = (0, 8);
    let before = counted_reads(&mut transaction, table).await;
    for _ in 0..times {
        returned = query(&mut transaction).await.len();
    }
    (returned, (counted_reads(&mut transaction, table).await - before) / times)
}

async fn counted_reads(connection: &mut sqlx::PgConnection, table: &str) -> i64 {
    let sql = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) \
               from pg_stat_xact_user_tables where schemaname = 'stead' and relname = $1";
    sqlx::query_scalar(sql).bind(table).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn a_list_reads_few_more_rows_than_it_returns() {
    let database = database().await;
    let log = open(&database).await;
    let pool = &database.pool;
    handle::<Job>(&log, JOB, now(&log), JobCommand::Queue(work())).await;
    handle::<Job>(&log, JOB, now(&log), claim(A)).await;
    let views = Projections::start(&log).await.unwrap();
    views.wait_for(log.position(), LONG).await.unwrap();
    // One row in a thousand belongs to another install and state. A tenth of the rows are open,
    // spread over many runners.
    sqlx::raw_sql(
        "insert into projection_jobs (key, data, kind, state, finished, install, run, build, runner) \
         select 'job_' || lpad((n + 100)::text, 26, '0'), data, kind, \
                case when n % 1000 = 0 then 'lost' else 'succeeded' end, n % 10 <> 7, \
                case when n % 1000 = 0 then 'ins_rare' else 'ins_common' end, \
                case when n % 1000 = 0 then 'run_rare' else 'run_common' end, \
                case when n % 1000 = 0 then 'bld_rare' else 'bld_common' end, \
                'rnr_' || n % 900 \
         from projection_jobs, generate_series(1, 20000) n where key like 'job_0%'; \
         analyze projection_jobs;",
    )
    .execute(pool)
    .await
    .unwrap();
    let install: InstallId = INSTALL;
    let filters = [
        jobs::Filter::default(),
        jobs::Filter { state: Some("lost".into()), ..Default::default() },
        jobs::Filter { install: Some(install), ..Default::default() },
    ];
    for filter in filters {
        let (returned, read) = reads(&database, "projection_jobs", async |connection| {
            jobs::page(connection, &filter, None, 11).await.unwrap()
        })
        .await;
        assert!(returned > 0 && read <= 12, "{filter:?}: {returned} returned, {read} read");
    }
    let runner = RunnerId(ulid(6));
    let (returned, read) = reads(&database, "projection_jobs", async |connection| {
        jobs::held_by(connection, &[runner]).await.unwrap()
    })
    .await;
    assert!(returned == 1 && read <= 2, "held: {returned} returned, {read} read");
}
