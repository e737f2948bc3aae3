//! Private Postgres of one data directory, for installations without an external database.
//!
//! [`postgres_supervisor`] runs the cluster. This module adds the roles and the database, and two
//! files of the data directory, which has the mode 0711:
//!
//! ```text
//! DATA/lock          locked by the server, and names its process
//! DATA/restoring/    only while a restore fills the directory: no server starts in it
//! ```
mod lock;
mod tools;

use std::{io, path::Path, time::Duration};

use postgres_supervisor::{Account, Cluster, PendingSync, Postmaster, Settings};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

pub use self::{
    lock::{DataLock, LockError, RESTORING},
    tools::{Access, Tools},
};

/// Connection parameter that selects the schema of the server's tables.
const SEARCH_PATH: [(&str, &str); 1] = [("search_path", event_log::connect::SCHEMA)];
/// Superuser of the cluster, which only creates the roles and the database.
const SUPERUSER: &str = "postgres";
/// Owner of the tables, for migrations and rebuilds.
const OWNER: &str = "stead_owner";
/// Role of the server, with limited privileges.
const APP: &str = "stead_app";
/// Name of the database.
const DATABASE: &str = "stead";

/// Private Postgres that runs for this process.
pub struct Embedded {
    cluster: Cluster,
    postmaster: Postmaster,
    sync: Option<PendingSync>,
}

/// Errors of the private Postgres and of its tools.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(transparent)]
    Supervisor(#[from] postgres_supervisor::Error),
    #[error("cannot set up Postgres: {0}")]
    Setup(#[from] sqlx::Error),
    #[error("invalid database URL: {0}")]
    Url(String),
    #[error("{program} failed: {output}")]
    Tool { program: &'static str, output: String },
    #[error(
        "cannot find the database: {data} has no private Postgres; set DATABASE_OWNER_URL to the database of this server"
    )]
    NoCluster { data: String },
    #[error(transparent)]
    Log(#[from] event_log::LogError),
    #[error("cannot use {what}: {reason}")]
    Io { what: String, reason: io::Error },
}

/// Returns a function that adds the affected file or process to an I/O error.
fn about(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> EmbeddedError {
    let what = what.to_string();
    move |reason| EmbeddedError::Io { what, reason }
}

impl Embedded {
    /// Starts the Postgres of a data directory, also after a crash. The caller holds the
    /// directory's [`DataLock`].
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn start(data: &Path) -> Result<Embedded, EmbeddedError> {
        Embedded::start_as(data, Account::choose()?).await
    }

    /// Starts the Postgres of a data directory that may belong to another user. Files that root
    /// creates there get the owner of the directory.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn start_for_owner(data: &Path) -> Result<Embedded, EmbeddedError> {
        Embedded::start_as(data, Account::of(data)?).await
    }

    async fn start_as(data: &Path, account: Account) -> Result<Embedded, EmbeddedError> {
        let cluster = Cluster::open(data, account, settings()).await?;
        let sync = cluster.sync()?;
        let postmaster = Postmaster::run(&cluster).await?;
        set_up(&cluster).await?;
        Ok(Embedded { cluster, postmaster, sync })
    }

    /// Connection options of the tables' owner for the Postgres that a server runs in a data
    /// directory.
    ///
    /// # Errors
    /// [`EmbeddedError::NoCluster`] if the directory has none.
    pub async fn running(data: &Path) -> Result<PgConnectOptions, EmbeddedError> {
        if !Embedded::is_in(data) {
            return Err(EmbeddedError::NoCluster { data: data.display().to_string() });
        }
        let cluster = Cluster::open(data, Account::of(data)?, settings()).await?;
        Ok(cluster.connect_as(OWNER, DATABASE).options(SEARCH_PATH))
    }

    /// Returns true if the data directory contains a cluster.
    pub fn is_in(data: &Path) -> bool {
        Cluster::is_in(data)
    }

    /// Waits until a new cluster is on the disk. The server must not acknowledge a request before
    /// that.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError`].
    pub async fn durable(&mut self) -> Result<(), EmbeddedError> {
        match self.sync.take() {
            Some(sync) => Ok(sync.done().await?),
            None => Ok(()),
        }
    }

    /// Restarts Postgres after a crash. Postgres recovers all committed transactions.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.postmaster = Postmaster::run(&self.cluster).await?;
        Ok(())
    }

    /// Connection options of the server, whose role may insert and select events but not change
    /// them.
    pub fn app(&self) -> PgConnectOptions {
        self.cluster.connect_as(APP, DATABASE).options(SEARCH_PATH)
    }

    /// Connection options for migrations and rebuilds.
    pub fn owner(&self) -> PgConnectOptions {
        self.cluster.connect_as(OWNER, DATABASE).options(SEARCH_PATH)
    }

    /// Connection URLs of the server's role and of the owner's role.
    pub fn urls(&self) -> (String, String) {
        (self.cluster.url(APP, DATABASE), self.cluster.url(OWNER, DATABASE))
    }

    pub fn pid(&self) -> i32 {
        self.postmaster.pid()
    }

    /// Waits until Postgres ends unexpectedly.
    pub async fn ended(&mut self) {
        self.postmaster.ended().await;
    }

    /// Stops Postgres. Open transactions are rolled back, and committed transactions are on the
    /// disk.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Supervisor`].
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        let synced = self.durable().await;
        self.postmaster.stop(Duration::from_secs(30)).await?;
        synced
    }
}

fn settings() -> Settings {
    // A conflicting append logs one line. Its statement of many kilobytes would add no information.
    let more = ["max_connections=64", "log_min_error_statement=panic"];
    Settings { superuser: SUPERUSER, port: None, more: more.map(String::from).to_vec() }
}

/// Creates the roles and the database, unless they exist.
async fn set_up(cluster: &Cluster) -> Result<(), sqlx::Error> {
    let mut root = PgConnection::connect_with(&cluster.connect_as(SUPERUSER, "postgres")).await?;
    let has = "select exists (select from pg_roles where rolname = $1)";
    for role in [OWNER, APP] {
        if !sqlx::query_scalar::<_, bool>(has).bind(role).fetch_one(&mut root).await? {
            sqlx::query(&format!("create role {role} login")).execute(&mut root).await?;
        }
    }
    let has = "select exists (select from pg_database where datname = $1)";
    if !sqlx::query_scalar::<_, bool>(has).bind(DATABASE).fetch_one(&mut root).await? {
        let make = format!("create database {DATABASE} owner {OWNER}");
        sqlx::query(&make).execute(&mut root).await?;
    }
    root.close().await
}

#[cfg(test)]
mod tests;
