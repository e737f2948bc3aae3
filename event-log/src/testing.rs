//! Tests on a real Postgres: one private cluster per checkout, shared by all test processes, and a
//! new database for each test.
//!
//! `TEST_DATABASE_URL` names another server. Its role must be allowed to create databases.
//! Otherwise the cluster is in the temporary directory, with its own socket and without fsync. It
//! keeps running after the tests; [`stop_shared`] stops it.
mod cluster;
mod database;
mod disk;
/// A proxy between the log and Postgres that can lose data.
pub mod proxy;

pub use cluster::{Cluster, settings, shared_directory, stop_shared};
pub use database::{Database, fresh_database, fresh_empty_database, fresh_in, in_partitions_of};
pub use disk::Disk;
pub use postgres_supervisor::{Binaries, Settings};

use std::io;

/// Reasons why a test has no database.
#[derive(Debug, thiserror::Error)]
pub enum TestingError {
    /// A file operation failed.
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    /// There is no Postgres, or it cannot be started or stopped.
    #[error(transparent)]
    Postgres(#[from] postgres_supervisor::Error),
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
