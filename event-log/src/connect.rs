//! Database connections whose search path starts with the schema.
use std::str::FromStr;

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// Schema of the tables.
pub const SCHEMA: &str = "stead";

/// Returns the connect options of a database URL, with the schema in the search path.
///
/// # Errors
/// If the URL is invalid.
pub fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(PgConnectOptions::from_str(url)?
        .application_name("stead")
        .options([("search_path", SCHEMA)]))
}

/// Opens a pool of at most this many connections. The [`crate::EventLog`] uses one more.
///
/// # Errors
/// If a database operation fails.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool, sqlx::Error> {
    PgPoolOptions::new().max_connections(connections).connect_with(options(url)?).await
}
