//! Connections that know where the tables are.
use std::str::FromStr;

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// The schema of one tenant's tables.
pub const SCHEMA: &str = "stead";

/// The connect options of a database URL, with our schema first.
///
/// # Errors
/// If the URL is none.
pub fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(PgConnectOptions::from_str(url)?
        .application_name("stead")
        .options([("search_path", SCHEMA)]))
}

/// A pool of at most that many connections. The [`crate::EventLog`] takes one of its own besides.
///
/// # Errors
/// If the database does not answer.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool, sqlx::Error> {
    PgPoolOptions::new().max_connections(connections).connect_with(options(url)?).await
}
