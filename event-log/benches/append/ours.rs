//! Stead, with every feature on.
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use domain::actor::Actor;
use event_log::{
    AppendError, Column, Commit, EventLog, IdempotencyKey, InlineProjection, Invalidate, Meta,
    NewEvent, Options, StoredEvent, StreamId, Write, testing::Database, verify::verify,
};
use futures::future::BoxFuture;
use measure::{Run, payload};
use sqlx::PgConnection;
use ulid::Ulid;

/// One of this many commands conflicts.
const CONFLICT: u64 = 20;
/// Number of streams that conflicting commands use.
const CONFLICT_STREAMS: u64 = 1_000;

pub struct SteadLog {
    log: EventLog,
    numbers: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

impl SteadLog {
    pub async fn open(database: &Database) -> SteadLog {
        let table = "create table rm_job (job text collate \"C\" primary key, status text not null, \
             runner text, position bigint not null) with (fillfactor = 70); \
             create index on rm_job (runner, position) where status = 'queued'";
        sqlx::raw_sql(table).execute(&database.pool).await.unwrap();
        let options = Options { inline_projections: vec![Arc::new(Jobs)], ..Options::default() };
        let log = database.log_with(options).await.unwrap();
        let first = (0..CONFLICT_STREAMS)
            .map(|number| log.append(commit(conflicting_id(number * CONFLICT), number)));
        futures::future::try_join_all(first).await.unwrap();
        SteadLog { log, numbers: Arc::default(), written: Arc::new(CONFLICT_STREAMS.into()) }
    }

    pub async fn run(&self, callers: usize, period: Duration) -> Run {
        let batches = self.batches().await;
        let start = Instant::now();
        let callers = (0..callers).map(|_| {
            let (log, numbers, written) =
                (self.log.clone(), self.numbers.clone(), self.written.clone());
            tokio::spawn(async move {
                let mut calls = Vec::new();
                while start.elapsed() < period {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let late = number.is_multiple_of(CONFLICT);
                    let id =
                        if late { conflicting_id(number) } else { format!("job_{}", Ulid::new()) };
                    let began = Instant::now();
                    match log.append(commit(id, number)).await {
                        Ok(_) => calls.push(began.elapsed()),
                        Err(AppendError::Conflict { .. }) if late => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                written.fetch_add(calls.len() as u64, Ordering::Relaxed);
                calls
            })
        });
        let mut calls = Vec::new();
        for caller in futures::future::join_all(callers).await {
            calls.extend(caller.unwrap());
        }
        let (events, elapsed) = (calls.len(), start.elapsed());
        let batches = self.batches().await - batches;
        eprintln!("  {:.1} events in a batch", events as f64 / batches as f64);
        Run { events, whole: elapsed, calls }
    }

    async fn batches(&self) -> i64 {
        let number = sqlx::query_scalar("select commit_no from log_head");
        number.fetch_one(self.log.pool()).await.unwrap()
    }

    /// Checks that every acknowledged event is stored, chained and in the projection. Returns the
    /// number of events verified per second.
    pub async fn check(&self, database: &Database) -> f64 {
        let written = self.written.load(Ordering::Relaxed);
        let began = Instant::now();
        let verified = verify(&database.pool, 0, |_| {}).await.unwrap();
        let took = began.elapsed().as_secs_f64();
        assert_eq!((verified.size, verified.root), (written, self.log.head().root));
        let rows: i64 = sqlx::query_scalar("select count(*) from rm_job")
            .fetch_one(&database.pool)
            .await
            .unwrap();
        assert_eq!(rows as u64, written);
        written as f64 / took
    }
}

fn conflicting_id(number: u64) -> String {
    format!("job_taken_{}", number / CONFLICT % CONFLICT_STREAMS)
}

fn commit(id: String, number: u64) -> Commit {
    let event = NewEvent {
        event_type: "job.queued".into(),
        event_version: "1".into(),
        payload: payload(number),
        customer: None,
    };
    let stream = StreamId::new("job", id);
    let command = format!("cmd_{}", Ulid::new());
    let meta = Meta::new(Actor::System, command.clone());
    let mut commit = Commit::of(meta, vec![Write { stream, expected: 0, events: vec![event] }]);
    let principal = "prn_01ARZ3NDEKTSV4RRFFQ69G5FAV".into();
    commit.key =
        Some(IdempotencyKey { principal, key: command, request_hash: [7; 32], response: None });
    commit
}

/// Inline projection of a job queue, with the rows that the dispatcher reads.
struct Jobs;

impl InlineProjection for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn statements(&self) -> Vec<String> {
        vec![
            "insert into rm_job select u.* from head, \
             unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as u(job, status, runner, position)"
                .into(),
            "update rm_job r set status = u.status, runner = u.runner, position = u.position from head, \
             unnest($5::text[], $6::text[], $7::text[], $8::bigint[]) as u(job, status, runner, position) \
             where r.job = u.job"
                .into(),
        ]
    }

    fn prepare<'a>(
        &'a self,
        _: &'a mut PgConnection,
        events: &'a [StoredEvent],
    ) -> BoxFuture<'a, Result<Vec<Column>, sqlx::Error>> {
        Box::pin(async move {
            // A row is new if its stream is new.
            let (new, known): (Vec<_>, Vec<_>) =
                events.iter().partition(|event| event.sequence == 1);
            let columns = |events: Vec<&StoredEvent>| {
                let ids = events.iter().map(|event| Some(event.stream.aggregate_id.clone()));
                let same = |text: &str| Column::Text(vec![Some(text.to_owned()); events.len()]);
                let positions = events.iter().map(|event| Some(event.position as i64));
                [
                    Column::Text(ids.collect()),
                    same("queued"),
                    same("rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
                    Column::Bigint(positions.collect()),
                ]
            };
            Ok(columns(new).into_iter().chain(columns(known)).collect())
        })
    }

    fn committed(&self, _: &[StoredEvent]) {}

    fn forget(&self, _: Invalidate<'_>) {}
}
