//! Tests run on real Postgres: one private cluster per checkout, shared by all test processes, and a fresh database
//! per test.
//!
//! `TEST_DATABASE_URL` names another server (its role may create databases). Otherwise the cluster lives in
//! the temporary directory, on a socket of its own, without fsync, and goes on running after the tests;
//! [`stop_shared`] stops it.
mod binaries;
mod cluster;
mod database;
mod disk;
/// What all benchmarks share.
pub mod measure;
/// A socket between the log and Postgres that can lose what passes through it.
pub mod proxy;

pub use binaries::Binaries;
pub use cluster::{Cluster, Settings, shared_directory, stop_shared};
pub use database::{Database, fresh_database, fresh_empty_database, fresh_in, in_partitions_of};
pub use disk::Disk;

use std::io;

/// Why there is no database for a test.
#[derive(Debug, thiserror::Error)]
pub enum TestingError {
    /// A file or a program.
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    /// Postgres is not installed.
    #[error(
        "no PostgreSQL binaries found: install PostgreSQL 15 or later, put its bin directory on PATH or \
         name it in STEAD_PG_BIN"
    )]
    NoPostgres,
    /// Postgres refuses to run as root, and there is nobody else to run it as.
    #[error("no user `postgres` or `nobody` to run PostgreSQL as instead of root")]
    NoUser,
    /// One of its programs failed.
    #[error("{program} failed: {output}")]
    Failed { program: String, output: String },
    /// The database does not answer.
    #[error("the database does not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The tables could not be made.
    #[error(transparent)]
    Migrate(#[from] crate::migrate::MigrateError),
}

fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> TestingError {
    let what = what.into();
    move |error| TestingError::Io { what, error }
}
