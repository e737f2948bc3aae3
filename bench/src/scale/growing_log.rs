//! A log that grows with the events that a server would write, and is verified.
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use api::POLICIES_CONSUMER;
use event_log::{EventLog, Options, verify::verify};
use measure::History;
use projections::Projections;
use schemas::runner::Outcome;
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::table::Table;
use crate::{
    builds::Builds,
    database::Database,
    runner_pool::{JobResult, RunnerPool},
    server_process::ServerProcess,
};

const APPS: usize = 100;
/// Number of build runners, whose jobs are all finished.
const BUILDERS: usize = 8;
/// Timeout for projections, which process at least some thousand events per second.
const PROJECTION_TIMEOUT: Duration = Duration::from_secs(3_600);

pub struct GrowingLog {
    pool: PgPool,
    /// Pool of the owner of the tables. Verifying a projection creates tables.
    owner: PgPool,
    history: History,
}

impl GrowingLog {
    /// Creates the apps. All installs belong to one of them.
    pub async fn start(database: &Database, data: &Path, installs: u64) -> GrowingLog {
        let serving = ServerProcess::start(database, data, None).await;
        let client = serving.client();
        Builds::sync(&client, APPS).await;
        let mut runner_pool = RunnerPool::enrol(&client, &serving.runner, BUILDERS, 1).await;
        let failed = JobResult { outcome: Outcome::Failed, log: Arc::new([]) };
        runner_pool.work(APPS, &failed).await;
        let apps = client.wire().send(client.get("/v1/apps")).await.unwrap().ok().json();
        let app = apps["items"][0]["id"].as_str().unwrap();
        let pools = PgPoolOptions::new().max_connections(8);
        GrowingLog {
            pool: pools.clone().connect_with(database.app()).await.unwrap(),
            owner: pools.connect_with(database.owner()).await.unwrap(),
            history: History::of_installs(Some(app), installs),
        }
    }

    /// Opens the log as a server's appender does.
    pub async fn log(&self) -> EventLog {
        let options =
            Options { inline_projections: projections::inline_projections(), ..Options::default() };
        EventLog::open(self.pool.clone(), options).await.unwrap()
    }

    /// Source of the next events.
    pub fn history(&mut self) -> &mut History {
        &mut self.history
    }

    /// Grows the log to this number of events.
    pub async fn to(&mut self, events: u64, table: &mut Table) {
        eprintln!("to {events} events");
        let log = self.log().await;
        let views = Projections::start(&log).await.unwrap();
        let (began, before) = (Instant::now(), log.position());
        self.history.fill(&log, events).await;
        let position = log.position();
        table.column(position);
        let rate = |took: Duration| (position - before) as f64 / took.as_secs_f64();
        table.figure(
            "written by one caller, a thousand in a commit",
            "events/s",
            rate(began.elapsed()),
        );
        views.wait_for(position, PROJECTION_TIMEOUT).await.unwrap();
        table.figure("written, and in all projections", "events/s", rate(began.elapsed()));
        drop((views, log));
        self.skip_policies(position).await;
        self.check(position, table).await;
        sqlx::raw_sql("vacuum analyze").execute(&self.owner).await.unwrap();
        let size = "select pg_database_size(current_database())::float8";
        let size: f64 = sqlx::query_scalar(size).fetch_one(&self.pool).await.unwrap();
        table.figure("the database on the disk", "bytes/event", size / position as f64);
    }

    /// Moves the policies past the generated events, so that the policies do not react to these
    /// events.
    async fn skip_policies(&self, position: u64) {
        let (name, version, shard) = POLICIES_CONSUMER;
        let advance = "update log_consumer set position = $4, owner = null, lease_until = null \
                       where name = $1 and version = $2 and shard = $3";
        let advance = sqlx::query(advance).bind(name).bind(version).bind(shard);
        let done = advance.bind(position.cast_signed()).execute(&self.owner).await.unwrap();
        assert_eq!(done.rows_affected(), 1, "the consumer of the policies must exist");
    }

    async fn check(&self, position: u64, table: &mut Table) {
        let began = Instant::now();
        let verified = verify(&self.pool, 0, |_| {}).await.unwrap();
        assert_eq!(verified.size, position);
        let rate = |took: Duration| position as f64 / took.as_secs_f64();
        table.figure("log verified", "events/s", rate(began.elapsed()));
        let began = Instant::now();
        let mut connection = self.owner.acquire().await.unwrap();
        for view in projections::list(&mut connection).await.unwrap() {
            let verified = projections::verify(&self.owner, view.name, |_| {}).await.unwrap();
            assert_eq!(verified.differences, [], "{}", view.name);
        }
        table.figure("all projections verified", "events/s", rate(began.elapsed()));
    }
}
