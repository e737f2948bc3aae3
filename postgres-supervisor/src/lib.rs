//! Supervisor of a private Postgres: finds the binaries, creates the cluster, and starts, adopts
//! and stops its Postgres.
//!
//! ```text
//! DATA/                 created by the caller, who also ensures that it has one supervisor at a time
//!   postgres/           the cluster, owned by an unprivileged user (Postgres refuses to run as root)
//!   postgres.new/       the cluster while `initdb` runs
//!   postgres.unsynced   only while files of `initdb` may not be on the disk
//!   postgres.log        its log; above 64 MiB a start renames it to postgres.log.old
//!   run/                0700, its socket
//! ```
//!
//! Postgres is a child process in its own process group, so it survives its supervisor. The next
//! start adopts it, or stops one that is unresponsive.
mod account;
mod binaries;
mod cluster;
mod postmaster;

use std::io;

pub use account::{Account, give};
pub use binaries::{BIN_ENV, Binaries};
pub use cluster::{Cluster, PendingSync, Settings};
pub use postmaster::Postmaster;

/// Failures to start, use or stop a private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres is not installed.
    #[error(
        "cannot start Postgres: no binaries in {looked}; run apt-get install postgresql, or set DATABASE_URL to an existing database"
    )]
    NotInstalled { looked: String },
    /// The version of a binary cannot be determined.
    #[error(
        "cannot read the version of {binary}: unexpected output: {output}; set {BIN_ENV} to a directory with Postgres binaries"
    )]
    NoVersion { binary: String, output: String },
    /// The installed Postgres is older than the oldest supported version.
    #[error("cannot use {binary}: it is Postgres {found}; install version 14 or newer")]
    TooOld { binary: String, found: u32 },
    /// Another major version created the cluster.
    #[error(
        "cannot start Postgres: Postgres {made_by} created {data}, but {binary} is Postgres {found}; set {BIN_ENV} to the directory of the Postgres {made_by} binaries"
    )]
    OtherVersion { data: String, made_by: u32, binary: String, found: u32 },
    /// There are no client programs of the requested major version.
    #[error(
        "cannot find {program} of Postgres {major} in {looked}; run apt-get install postgresql-client-{major}, or set {BIN_ENV} to its directory"
    )]
    NoClient { program: &'static str, major: u32, looked: String },
    /// Root may not run Postgres, and the unprivileged user cannot enter a parent of the data
    /// directory.
    #[error(
        "cannot start Postgres: user {user}, who runs Postgres because root may not, cannot enter {blocked}; run chmod o+x {blocked}, or choose another directory with --data"
    )]
    Unreachable { blocked: String, user: String },
    /// There is no unprivileged user to run Postgres.
    #[error("cannot run Postgres as root: there is no user postgres or nobody; create one of them")]
    NoAccount,
    /// The owner of the directory would create the cluster, and `initdb` requires a user with a
    /// name.
    #[error(
        "cannot run Postgres as the owner of {data}: user id {uid} has no name on this machine; change the owner with chown"
    )]
    Nameless { data: String, uid: u32 },
    /// `initdb` failed.
    #[error("cannot create the database cluster: {output}")]
    Initdb { output: String },
    /// Postgres ended before it accepted a connection.
    #[error("cannot start Postgres: the process ended; last lines of {log}: {tail}")]
    Ended { log: String, tail: String },
    /// Postgres did not accept connections within the timeout.
    #[error("cannot start Postgres: it did not accept connections within {seconds} s; see {log}")]
    Slow { seconds: u64, log: String },
    /// Postgres did not stop when its supervisor requested it.
    #[error(
        "cannot stop Postgres: process {pid} ignores the stop signals; kill the process and start again"
    )]
    Stuck { pid: i32 },
    /// An operation on a file or process failed.
    #[error("cannot use {what}: {reason}")]
    Io { what: String, reason: io::Error },
}

/// Returns a function that adds the affected file or process to an I/O error.
fn about(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Error {
    let what = what.to_string();
    move |reason| Error::Io { what, reason }
}
