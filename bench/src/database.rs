//! A private Postgres as `stead up` makes it, that also counts statements.
use std::path::Path;

use api::postgres::Embedded;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, postgres::PgPoolOptions};

/// What the figures depend on.
const SETTINGS: [&str; 5] =
    ["server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers"];

pub struct Database {
    pub embedded: Embedded,
    /// Our own connection, which is not counted.
    root: PgPool,
    exact: bool,
}

impl Database {
    pub async fn start(directory: &Path) -> Database {
        let mut embedded = Embedded::start(directory).await.unwrap();
        let owner = PgPoolOptions::new().connect_with(embedded.owner()).await.unwrap();
        api::server::prepare(&owner, &Default::default()).await.unwrap();
        owner.close().await;
        let exact = counting(&embedded).await;
        if exact {
            embedded.stop().await.unwrap();
            embedded = Embedded::start(directory).await.unwrap();
        }
        let options = embedded.owner().username("postgres");
        let root = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        if exact {
            root.execute("create extension pg_stat_statements schema public").await.unwrap();
        }
        Database { embedded, root, exact }
    }

    /// What is counted.
    pub fn unit(&self) -> &'static str {
        if self.exact { "SQL statements" } else { "transactions" }
    }

    /// Statements of the server so far; transactions where Postgres has no pg_stat_statements.
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

    /// The statements since the last reset, most frequent first: what they are, and how often.
    pub async fn busiest(&self) -> Vec<(String, i64)> {
        if !self.exact {
            return Vec::new();
        }
        let ask = "select left(regexp_replace(query, '\\s+', ' ', 'g'), 100), calls \
                   from public.pg_stat_statements s join pg_roles r on r.oid = s.userid \
                   where r.rolname in ('stead_app', 'stead_owner') order by calls desc limit 8";
        sqlx::query_as(ask).fetch_all(&self.root).await.unwrap()
    }

    /// Count from zero.
    pub async fn reset(&self) {
        if self.exact {
            self.root.execute("select public.pg_stat_statements_reset()").await.unwrap();
        }
    }

    pub async fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        for name in SETTINGS {
            let show = format!("show {name}");
            let value = sqlx::query_scalar(&show).fetch_one(&self.root).await.unwrap();
            settings.push((name.to_string(), value));
        }
        settings
    }

    pub async fn stop(self) {
        self.root.close().await;
        self.embedded.stop().await.unwrap();
    }
}

/// Whether statements will be counted after a restart.
async fn counting(embedded: &Embedded) -> bool {
    let root = embedded.owner().username("postgres");
    let mut root = PgConnection::connect_with(&root).await.unwrap();
    let there =
        "select exists (select from pg_available_extensions where name = 'pg_stat_statements')";
    let there: bool = sqlx::query_scalar(there).fetch_one(&mut root).await.unwrap();
    if there {
        let preload = "alter system set shared_preload_libraries = 'pg_stat_statements'";
        root.execute(preload).await.unwrap();
    }
    root.close().await.unwrap();
    there
}
