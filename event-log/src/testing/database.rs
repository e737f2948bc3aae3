//! A new database for each test, copied from a template with all migrations.
use std::{env, time::Duration};

use sqlx::{Connection, Executor, PgConnection, PgPool, Row};
use ulid::Ulid;

use super::{Cluster, TestingError, cluster::lock, settings, shared_directory};
use crate::{
    Clock, EventLog, LogError, Options, connect,
    migrate::{MIGRATIONS, found, tables},
    partitions,
};

/// Time for which a test's database is kept for inspection.
const KEPT: Duration = Duration::from_secs(10 * 60);
/// Number of old databases that are removed for each new one.
const SWEPT: u32 = 3;
const CONNECTIONS: u32 = 8;

/// Database of a test.
#[derive(Debug, Clone)]
pub struct Database {
    /// URL for programs that connect on their own.
    pub url: String,
    /// Connections to the database.
    pub pool: PgPool,
}

impl Database {
    /// Opens the log of this database.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn log(&self) -> Result<EventLog, LogError> {
        self.log_with(Options::default()).await
    }

    /// Opens the log of this database with these options.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn log_with(&self, options: Options) -> Result<EventLog, LogError> {
        EventLog::open(self.pool.clone(), options).await
    }
}

/// Creates a database with all tables and an empty log.
///
/// # Errors
/// [`TestingError`].
pub async fn fresh_database() -> Result<Database, TestingError> {
    let server = Server::find().await?;
    let database = server.copy_of_template().await?;
    found(&database.pool).await?;
    Ok(database)
}

/// Creates an empty database, for tests of migrations.
///
/// # Errors
/// [`TestingError`].
pub async fn fresh_empty_database() -> Result<Database, TestingError> {
    Server::find().await?.create("template0").await
}

/// Creates a database with all tables and an empty log in a cluster that is not the shared
/// one.
///
/// # Errors
/// [`TestingError`].
pub async fn fresh_in(cluster: &Cluster) -> Result<Database, TestingError> {
    let server = Server { admin: cluster.url("postgres"), cluster: Some(cluster.clone()) };
    let database = server.create("template0").await?;
    crate::migrate(&database.pool).await?;
    Ok(database)
}

/// Divides the log of a database into smaller partitions, for tests of closed partitions. All
/// events of the log must fit into one partition.
///
/// # Errors
/// A database operation failed.
pub async fn in_partitions_of(pool: &PgPool, size: u64) -> Result<(), sqlx::Error> {
    let finer = format!(
        "alter table log_event detach partition log_event_1; \
         drop table log_event_{}; \
         alter table log_event attach partition log_event_1 for values from (1) to ({})",
        partitions::SIZE + 1,
        size + 1
    );
    pool.execute(&*finer).await?;
    partitions::create_missing(pool, size, 8).await?;
    Ok(())
}

struct Server {
    admin: String,
    /// Cluster of the server; `None` for the server of `TEST_DATABASE_URL`.
    cluster: Option<Cluster>,
}

impl Server {
    async fn find() -> Result<Server, TestingError> {
        if let Ok(admin) = env::var("TEST_DATABASE_URL") {
            return Ok(Server { admin, cluster: None });
        }
        let cluster = Cluster::start(&shared_directory(), settings(false, &[])).await?;
        Ok(Server { admin: cluster.url("postgres"), cluster: Some(cluster) })
    }

    async fn copy_of_template(&self) -> Result<Database, TestingError> {
        let mut all = partitions::SIZE.to_be_bytes().to_vec();
        for (name, sql) in MIGRATIONS {
            all.extend_from_slice(name.as_bytes());
            all.extend_from_slice(sql.as_bytes());
        }
        let template = format!("stead_template_{}", hex::encode(&proof::sha256(&all)[..6]));
        let lock = match &self.cluster {
            Some(cluster) => Some(lock(&cluster.data).await?),
            None => None,
        };
        let mut admin = PgConnection::connect(&self.admin).await?;
        let there = sqlx::query("select 1 from pg_database where datname = $1").bind(&template);
        if there.fetch_optional(&mut admin).await?.is_none() {
            // Renamed when it is complete, so that no test copies an incomplete template.
            let making = format!("{template}_new");
            admin.execute(&*format!("drop database if exists {making} with (force)")).await?;
            admin.execute(&*format!("create database {making} template template0")).await?;
            let pool = connect(&self.url(&making), 1).await?;
            tables(&pool).await?;
            partitions::create_missing(&pool, partitions::SIZE, partitions::AHEAD).await?;
            pool.close().await;
            // On the server, a connection can outlive its end on the client, and prevents the rename.
            sqlx::query(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1",
            )
            .bind(&making)
            .execute(&mut admin)
            .await?;
            admin.execute(&*format!("alter database {making} rename to {template}")).await?;
        }
        sweep(&mut admin).await?;
        admin.close().await?;
        drop(lock);
        self.create(&template).await
    }

    async fn create(&self, template: &str) -> Result<Database, TestingError> {
        let name = format!("t_{}", Ulid::new()).to_lowercase();
        let mut admin = PgConnection::connect(&self.admin).await?;
        admin.execute(&*format!("create database {name} template {template}")).await?;
        admin.close().await?;
        let url = self.url(&name);
        Ok(Database { pool: connect(&url, CONNECTIONS).await?, url })
    }

    /// URL of the administrator with another database.
    fn url(&self, database: &str) -> String {
        let (before, query) = match self.admin.split_once('?') {
            Some((before, query)) => (before, format!("?{query}")),
            None => (&*self.admin, String::new()),
        };
        let server = before.rsplit_once('/').map_or(before, |(server, _)| server);
        format!("{server}/{database}{query}")
    }
}

/// Removes some databases of earlier tests: more than this test creates, but few enough not to
/// delay it.
async fn sweep(admin: &mut PgConnection) -> Result<(), TestingError> {
    let rows =
        sqlx::query("select datname from pg_database where datname like 't\\_%' order by datname")
            .fetch_all(&mut *admin)
            .await?;
    let now = Clock::system().now().timestamp_millis().cast_unsigned();
    let mut swept = 0;
    for row in &rows {
        if swept == SWEPT {
            break;
        }
        let name: String = row.try_get(0)?;
        let created = name.strip_prefix("t_").and_then(|id| Ulid::from_string(id).ok());
        let max_age = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
        if created.is_some_and(|created| created.timestamp_ms() + max_age < now) {
            admin.execute(&*format!("drop database if exists {name} with (force)")).await?;
            swept += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_task_makes_two_databases_at_once() {
        let (one, two) = tokio::join!(fresh_database(), fresh_database());
        assert_ne!(one.unwrap().url, two.unwrap().url);
    }
}
