//! Database connections whose search path starts with the schema.
use std::str::FromStr;

use sqlx::{
    Executor as _, PgPool,
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

/// Statement that each connection with durable commits runs first: `synchronous_commit` must not be
/// off, also if a role or a database sets it. Replication settings, such as `remote_apply`, remain.
pub(crate) const DURABLE_COMMITS: &str = "select set_config('synchronous_commit', 'on', false) \
     where current_setting('synchronous_commit') = 'off'";

/// Returns the options of a pool whose commits are durable: data is acknowledged to a caller, or an
/// event references it.
pub fn pool() -> PgPoolOptions {
    PgPoolOptions::new().after_connect(|connection, _about| {
        Box::pin(async move { connection.execute(DURABLE_COMMITS).await.map(drop) })
    })
}

/// Opens a pool of at most this many connections. The [`crate::EventLog`] uses one more.
///
/// # Errors
/// If a database operation fails.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool, sqlx::Error> {
    pool().max_connections(connections).connect_with(options(url)?).await
}
