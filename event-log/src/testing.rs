//! Tests on a real Postgres: one private cluster per checkout, shared by all test processes, and a
//! new database for each test.
//!
//! `TEST_DATABASE_URL` names another server, whose role may create databases. Otherwise the cluster
//! is in the temporary directory, with its own socket and without fsync. It keeps running after the
//! tests; [`stop_shared`] stops it.
mod binaries;
mod cluster;
mod database;
mod disk;
/// A proxy between the log and Postgres that can lose data.
pub mod proxy;

pub use binaries::Binaries;
pub use cluster::{Cluster, Settings, shared_directory, stop_shared};
pub use database::{Database, fresh_database, fresh_empty_database, fresh_in, in_partitions_of};
pub use disk::Disk;

use std::io;

/// Reasons why a test has no database.
#[derive(Debug, thiserror::Error)]
pub enum TestingError {
    /// A file operation failed, or a program could not be started.
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    /// Postgres is not installed.
    #[error(
        "no PostgreSQL binaries found: install PostgreSQL 15 or later, put its bin directory on PATH or \
         name it in STEAD_PG_BIN"
    )]
    NoPostgres,
    /// Postgres does not run as root, and no other user is available.
    #[error("cannot run PostgreSQL as root: create a user `postgres` or `nobody`")]
    NoUser,
    /// A program of Postgres failed.
    #[error("{program} failed: {output}")]
    Failed { program: String, output: String },
    /// A database operation failed.
    #[error("the database does not respond: {0}")]
    Database(#[from] sqlx::Error),
    /// The tables could not be created.
    #[error(transparent)]
    Migrate(#[from] crate::migrate::MigrateError),
}

fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> TestingError {
    let what = what.into();
    move |error| TestingError::Io { what, error }
}
