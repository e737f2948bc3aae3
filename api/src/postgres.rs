//! Private Postgres of one data directory, for installations without an external database.
//!
//! ```text
//! DATA/            0711, locked by a file that names its process
//!   postgres/      the cluster, owned by an unprivileged user (Postgres refuses to run as root)
//!   postgres.log   its log; above 64 MiB a start renames it to postgres.log.old
//!   run/           0700, its socket; no TCP port is open
//!   restoring/     only while a restore fills the directory: no server starts in it
//! ```
//!
//! A start finds the binaries and creates the cluster once. It adopts a Postgres that a killed
//! server left running, or stops an unresponsive Postgres. Then it waits until Postgres accepts
//! connections.
mod account;
mod binaries;
mod cluster;
mod lock;
mod postmaster;
mod tools;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::postgres::PgConnectOptions;

use self::{
    account::Account,
    binaries::Binaries,
    cluster::{Cluster, PendingSync},
    postmaster::Postmaster,
};
pub use self::{
    binaries::BIN_ENV,
    lock::{DataLock, LockError, RESTORING},
    tools::{Access, Tools},
};

/// Connection parameter that selects the schema of the server's tables.
const SEARCH_PATH: [(&str, &str); 1] = [("search_path", event_log::connect::SCHEMA)];

/// Private Postgres that runs for this process.
pub struct Embedded {
    cluster: Cluster,
    postmaster: Postmaster,
    sync: Option<PendingSync>,
}

/// Reasons why there is no private Postgres, each with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(
        "cannot start Postgres: no binaries in {BIN_ENV}, PATH and {looked}; run apt-get install postgresql, or set DATABASE_URL to an existing database"
    )]
    NotInstalled { looked: String },
    #[error(
        "cannot read the version of {binary}: unexpected output: {said}; set {BIN_ENV} to a directory with Postgres binaries"
    )]
    NoVersion { binary: String, said: String },
    #[error("cannot use {binary}: it is Postgres {found}; install version 14 or newer")]
    TooOld { binary: String, found: u32 },
    #[error(
        "cannot start Postgres: {data} was created by Postgres {made_by}, and {binary} is Postgres {found}; set {BIN_ENV} to the directory of the Postgres {made_by} binaries"
    )]
    OtherVersion { data: String, made_by: u32, binary: String, found: u32 },
    /// Root may not run Postgres, and the other user cannot enter the directory.
    #[error(
        "cannot start Postgres: {blocked} cannot be entered by user {user}, which must run Postgres because root may not; run chmod o+x {blocked}, or choose another directory with --data"
    )]
    Unreachable { blocked: String, user: String },
    #[error("cannot run Postgres as root: there is no user postgres or nobody; create one of them")]
    NoAccount,
    /// The owner of the directory would create the cluster, and `initdb` requires a user with a
    /// name.
    #[error(
        "cannot run Postgres as the owner of {data}: user id {uid} has no name on this machine; change the owner with chown"
    )]
    Nameless { data: String, uid: u32 },
    #[error("cannot create the database cluster: {said}")]
    Initdb { said: String },
    #[error("cannot start Postgres: the process ended; last lines of {log}: {tail}")]
    Ended { log: String, tail: String },
    #[error("cannot start Postgres: it did not accept connections within {seconds} s; see {log}")]
    Slow { seconds: u64, log: String },
    #[error(
        "cannot stop Postgres: process {pid} ignores the stop signals; kill the process and start again"
    )]
    Stuck { pid: i32 },
    /// A database operation failed, for example the creation of the roles.
    #[error("cannot set up Postgres: {0}")]
    Setup(#[from] sqlx::Error),
    #[error(
        "cannot find {program} of Postgres {major} in {BIN_ENV}, PATH and {looked}; run apt-get install postgresql-client-{major}, or set {BIN_ENV} to its directory"
    )]
    NoTool { program: &'static str, major: u32, looked: &'static str },
    #[error("invalid database URL: {0}")]
    Url(String),
    #[error("{program} failed: {said}")]
    Tool { program: &'static str, said: String },
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
        account.can_enter(data)?;
        let binaries = Binaries::find().await?;
        let cluster = Cluster::open(data, binaries, account).await?;
        let sync = cluster.sync()?;
        let postmaster = running(&cluster).await?;
        cluster.set_up().await?;
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
        let cluster = Cluster::open(data, Binaries::find().await?, Account::of(data)?).await?;
        Ok(cluster.connect_as(cluster::OWNER).options(SEARCH_PATH))
    }

    /// Returns true if the data directory contains a cluster.
    pub fn is_in(data: &Path) -> bool {
        part(data, "postgres").join("PG_VERSION").exists()
    }

    /// Waits until a new cluster is on the disk. The server acknowledges no request before.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError`].
    pub async fn durable(&mut self) -> Result<(), EmbeddedError> {
        match self.sync.take() {
            Some(sync) => sync.done().await,
            None => Ok(()),
        }
    }

    /// Restarts Postgres after a crash. It recovers all committed transactions.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.postmaster = running(&self.cluster).await?;
        Ok(())
    }

    /// Connection options of the server, whose role may insert and select events but not change
    /// them.
    pub fn app(&self) -> PgConnectOptions {
        self.cluster.connect_as(cluster::APP).options(SEARCH_PATH)
    }

    /// Connection options for migrations and rebuilds.
    pub fn owner(&self) -> PgConnectOptions {
        self.cluster.connect_as(cluster::OWNER).options(SEARCH_PATH)
    }

    /// Connection URLs of the server's role and of the owner's role.
    pub fn urls(&self) -> (String, String) {
        (self.cluster.url(cluster::APP), self.cluster.url(cluster::OWNER))
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
    /// [`EmbeddedError::Stuck`].
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        let synced = self.durable().await;
        self.postmaster.stop(Duration::from_secs(30)).await.and(synced)
    }
}

/// Adopts a running Postgres, or starts a new one.
async fn running(cluster: &Cluster) -> Result<Postmaster, EmbeddedError> {
    match Postmaster::left_behind(cluster).await? {
        Some(running) => Ok(running),
        None => Postmaster::start(cluster).await,
    }
}

/// Path of a part of the data directory.
fn part(data: &Path, name: &str) -> PathBuf {
    data.join(name)
}

#[cfg(test)]
mod tests;
