//! A private Postgres, for whoever brought none: found on the machine, owned by one data directory.
//!
//! ```text
//! DATA/            0711, held by a lock that names its holder
//!   postgres/      the cluster, owned by an ordinary user (Postgres refuses to run as root)
//!   postgres.log   what it says; above 64 MiB a start puts it aside as postgres.log.old
//!   run/           0700, its socket; nothing listens on a port
//!   restoring/     only while a restore fills the directory: nothing starts in it
//! ```
//!
//! A start finds the binaries, makes the cluster once, adopts a postgres that a killed server left behind
//! (or stops one that does not answer), and waits until it takes connections. A stop ends it cleanly.
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
    cluster::{Cluster, Sync},
    postmaster::Postmaster,
};
pub use self::{
    binaries::BIN_ENV,
    lock::{DataLock, LockError, RESTORING},
    tools::{Access, Tools},
};

/// Where our tables are.
const SEARCH_PATH: [(&str, &str); 1] = [("search_path", event_log::connect::SCHEMA)];

/// A postgres that runs for this process.
pub struct Embedded {
    cluster: Cluster,
    postmaster: Postmaster,
    sync: Option<Sync>,
}

/// Why there is no private Postgres. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The machine has none.
    #[error(
        "no Postgres found (looked at {BIN_ENV}, PATH and {looked}): apt-get install postgresql, or \
         set DATABASE_URL to use one that runs elsewhere"
    )]
    NotInstalled { looked: String },
    /// A binary does not say what it is.
    #[error("{binary} did not tell its version: {said}")]
    NoVersion { binary: String, said: String },
    /// Too old to be asked.
    #[error("{binary} is Postgres {found}; 14 or newer is needed")]
    TooOld { binary: String, found: u32 },
    /// The cluster was made by another major version.
    #[error(
        "{data} was made by Postgres {made_by}, and {binary} is Postgres {found}: set {BIN_ENV} to the \
         directory of the Postgres {made_by} binaries"
    )]
    OtherVersion { data: String, made_by: u32, binary: String, found: u32 },
    /// Root may not run it, and nobody else may see the directory.
    #[error(
        "{blocked} cannot be entered by the user {user}, who must run Postgres because root may not: \
         chmod o+x {blocked}, or choose another directory with --data"
    )]
    Unreachable { blocked: String, user: String },
    /// There is no ordinary user to run it.
    #[error("there is neither a user postgres nor a user nobody to run Postgres, and root may not")]
    NoAccount,
    /// The directory's owner would have to make the cluster, and `initdb` takes no user without a name.
    #[error(
        "{data} belongs to the user id {uid}, which has no name on this machine, and Postgres would have to run as \
         it: give the directory to a user of this machine (chown)"
    )]
    Nameless { data: String, uid: u32 },
    /// `initdb` said no.
    #[error("the database cluster could not be made: {said}")]
    Initdb { said: String },
    /// It ended before it took a connection.
    #[error("Postgres ended while starting; the end of {log}: {tail}")]
    Ended { log: String, tail: String },
    /// It runs and does not answer.
    #[error("Postgres did not take connections within {seconds} s; see {log}")]
    Slow { seconds: u64, log: String },
    /// It does not end.
    #[error(
        "process {pid}, the Postgres of this data directory, does not end: kill it and start again"
    )]
    Stuck { pid: i32 },
    /// It runs and refuses what we ask.
    #[error("Postgres refused to be set up: {0}")]
    Setup(#[from] sqlx::Error),
    /// There are no programs for a server of that version.
    #[error(
        "{program} of Postgres {major} is not on this machine (looked at {BIN_ENV}, PATH and {looked}): \
         apt-get install postgresql-client-{major}, or set {BIN_ENV} to the directory that has it"
    )]
    NoTool { program: &'static str, major: u32, looked: &'static str },
    /// A URL that is none.
    #[error("the database URL cannot be read: {0}")]
    Url(String),
    /// One of Postgres's programs said no.
    #[error("{program} failed: {said}")]
    Tool { program: &'static str, said: String },
    /// There is no cluster here, or nobody runs it.
    #[error(
        "{data} has no private Postgres: set DATABASE_OWNER_URL to the database of this server"
    )]
    NoCluster { data: String },
    /// The log has a format that this program does not read.
    #[error(transparent)]
    Log(#[from] event_log::LogError),
    /// A file or a process could not be dealt with.
    #[error("{what}: {reason}")]
    Io { what: String, reason: io::Error },
}

/// An I/O error with what it was about.
fn about(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> EmbeddedError {
    let what = what.to_string();
    move |reason| EmbeddedError::Io { what, reason }
}

impl Embedded {
    /// Start the Postgres of a data directory, whatever state the last server left it in. The caller
    /// holds the directory's [`DataLock`].
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn start(data: &Path) -> Result<Embedded, EmbeddedError> {
        Embedded::start_as(data, Account::choose()?).await
    }

    /// The same for a directory that may be another user's: what root starts and makes in it is theirs, so that they
    /// can go on with it.
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

    /// How the owner of the tables reaches the Postgres of a data directory that a server runs.
    ///
    /// # Errors
    /// [`EmbeddedError::NoCluster`] when the directory has none.
    pub async fn running(data: &Path) -> Result<PgConnectOptions, EmbeddedError> {
        if !Embedded::is_in(data) {
            return Err(EmbeddedError::NoCluster { data: data.display().to_string() });
        }
        let cluster = Cluster::open(data, Binaries::find().await?, Account::of(data)?).await?;
        Ok(cluster.connect_as(cluster::OWNER).options(SEARCH_PATH))
    }

    /// Whether a data directory has a cluster of its own.
    pub fn is_in(data: &Path) -> bool {
        part(data, "postgres").join("PG_VERSION").exists()
    }

    /// Wait until a cluster that was just made is on the disk. Nothing is acknowledged before.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn durable(&mut self) -> Result<(), EmbeddedError> {
        match self.sync.take() {
            Some(sync) => sync.done().await,
            None => Ok(()),
        }
    }

    /// Start it again after it ended by itself; it recovers what was committed.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.postmaster = running(&self.cluster).await?;
        Ok(())
    }

    /// How the server connects: may insert and select events, never change them.
    pub fn app(&self) -> PgConnectOptions {
        self.cluster.connect_as(cluster::APP).options(SEARCH_PATH)
    }

    /// How migrations and rebuilds connect.
    pub fn owner(&self) -> PgConnectOptions {
        self.cluster.connect_as(cluster::OWNER).options(SEARCH_PATH)
    }

    /// The same two as a person would write them, app first.
    pub fn urls(&self) -> (String, String) {
        (self.cluster.url(cluster::APP), self.cluster.url(cluster::OWNER))
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> i32 {
        self.postmaster.pid()
    }

    /// Comes back when Postgres has ended though nobody asked it to.
    pub async fn ended(&mut self) {
        self.postmaster.ended().await;
    }

    /// End it: open transactions are rolled back, what is committed is on disk.
    ///
    /// # Errors
    /// [`EmbeddedError::Stuck`].
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        let synced = self.durable().await;
        self.postmaster.stop(Duration::from_secs(30)).await.and(synced)
    }
}

/// The one that runs already, else a new one.
async fn running(cluster: &Cluster) -> Result<Postmaster, EmbeddedError> {
    match Postmaster::left_behind(cluster).await? {
        Some(running) => Ok(running),
        None => Postmaster::start(cluster).await,
    }
}

/// Where the pieces are inside a data directory.
fn part(data: &Path, name: &str) -> PathBuf {
    data.join(name)
}

#[cfg(test)]
mod tests;
