//! A private Postgres with fsync and the schema of a server. Counts the statements of the server.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use event_log::{connect, testing::Cluster};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, postgres::PgConnectOptions};

/// Setting that loads the statement counter.
const PRELOAD: &str = "shared_preload_libraries=pg_stat_statements";

const QUERY_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Database {
    pub cluster: Cluster,
    /// Pool of the benchmark itself. With pg_stat_statements (`exact`), its statements are not
    /// counted.
    root: PgPool,
    /// Separate database for baseline queries to Postgres without Stead.
    anchor: PgPool,
    exact: bool,
}

impl Database {
    pub async fn start(directory: &Path) -> Database {
        let mut settings = measure::cluster_settings();
        let mut cluster = Cluster::start(directory, settings.clone()).await.unwrap();
        let exact = can_count(&cluster).await;
        if exact {
            cluster.stop().unwrap();
            settings.more.push(PRELOAD.into());
            cluster = Cluster::start(directory, settings).await.unwrap();
        }
        let mut postgres = PgConnection::connect(&cluster.url("postgres")).await.unwrap();
        for sql in [
            "create role stead_owner login",
            "create role stead_app login",
            "create database stead owner stead_owner",
            "create database anchor",
        ] {
            postgres.execute(sql).await.unwrap();
        }
        postgres.close().await.unwrap();
        let root = connect(&cluster.url("stead"), 1).await.unwrap();
        if exact {
            root.execute("create extension pg_stat_statements schema public").await.unwrap();
        }
        let anchor = PgPool::connect(&cluster.url("anchor")).await.unwrap();
        let database = Database { cluster, root, anchor, exact };
        let owner = PgPool::connect_with(database.owner()).await.unwrap();
        api::server::prepare(&owner).await.unwrap();
        owner.close().await;
        database
    }

    /// Connection options of a server.
    pub fn app(&self) -> PgConnectOptions {
        connect::options(&self.app_url()).unwrap()
    }

    /// Connection options of the owner of the tables.
    pub fn owner(&self) -> PgConnectOptions {
        connect::options(&self.url_of("stead_owner")).unwrap()
    }

    /// [`Database::app`] as a URL for a program.
    pub fn app_url(&self) -> String {
        self.url_of("stead_app")
    }

    fn url_of(&self, role: &str) -> String {
        self.cluster.url("stead").replacen("//stead@", &format!("//{role}@"), 1)
    }

    /// Pool for baseline queries without Stead: the same cluster, another database.
    pub fn anchor(&self) -> &PgPool {
        &self.anchor
    }

    /// Pool for queries of table contents; see [`Database::statements`] for the counted roles.
    pub fn root(&self) -> &PgPool {
        &self.root
    }

    /// Waits until a query returns this value.
    pub async fn until(&self, sql: &str, expected: i64) {
        let began = Instant::now();
        loop {
            let found: i64 = sqlx::query_scalar(sql).fetch_one(&self.root).await.unwrap();
            if found == expected {
                return;
            }
            assert!(began.elapsed() < QUERY_TIMEOUT, "timeout with {found} of {expected}: {sql}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Unit of the counts: SQL statements, or transactions without pg_stat_statements.
    pub fn unit(&self) -> &'static str {
        if self.exact { "SQL statements" } else { "transactions" }
    }

    /// Number of statements of the server so far, or of transactions if Postgres has no
    /// pg_stat_statements.
    pub async fn statements(&self) -> i64 {
        let count = if self.exact {
            "select coalesce(sum(calls), 0)::bigint from public.pg_stat_statements s \
             join pg_roles r on r.oid = s.userid where r.rolname in ('stead_app', 'stead_owner')"
        } else {
            "select xact_commit + xact_rollback from pg_stat_database \
             where datname = current_database()"
        };
        sqlx::query_scalar(count).fetch_one(&self.root).await.unwrap()
    }

    /// Statements of the server since the last reset with their counts: the eight most frequent
    /// ones. Empty without pg_stat_statements.
    pub async fn busiest(&self) -> Vec<(String, i64)> {
        if !self.exact {
            return Vec::new();
        }
        let sql = "select left(regexp_replace(query, '\\s+', ' ', 'g'), 100), calls \
                   from public.pg_stat_statements s join pg_roles r on r.oid = s.userid \
                   where r.rolname in ('stead_app', 'stead_owner') order by calls desc limit 8";
        sqlx::query_as(sql).fetch_all(&self.root).await.unwrap()
    }

    pub async fn reset(&self) {
        if self.exact {
            self.root.execute("select public.pg_stat_statements_reset()").await.unwrap();
        }
    }

    pub async fn settings(&self) -> Vec<(String, String)> {
        measure::settings(&self.root).await
    }

    pub async fn stop(self) {
        self.root.close().await;
        self.anchor.close().await;
    }
}

/// Stops Postgres even when a measurement fails.
impl Drop for Database {
    fn drop(&mut self) {
        let _ended = self.cluster.stop();
    }
}

async fn can_count(cluster: &Cluster) -> bool {
    let there =
        "select exists (select from pg_available_extensions where name = 'pg_stat_statements')";
    let mut postgres = PgConnection::connect(&cluster.url("postgres")).await.unwrap();
    let there = sqlx::query_scalar(there).fetch_one(&mut postgres).await.unwrap();
    postgres.close().await.unwrap();
    there
}
