//! Database connections of a server, and its log.
use std::{sync::Arc, time::Duration};

use event_log::{EventLog, KeyRing, LogError, Source};
use projections::RebuildError;
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use tracing::info;

use super::{Options, loops};
use crate::clock::Clock;

/// Idle time after which a database connection is checked before use.
const MAX_UNTESTED_IDLE: Duration = Duration::from_secs(1);

/// Connects as the role that inserts and selects.
pub(super) async fn connect(options: &Options) -> Result<PgPool, sqlx::Error> {
    // Opens one connection without the pool, which would retry and then report only a timeout.
    options.database.connect().await?.close().await?;
    event_log::pool()
        .max_connections(options.connections)
        .acquire_timeout(Duration::from_secs(5))
        // A recently used connection is not checked before use, because that costs a round trip per
        // query.
        .test_before_acquire(false)
        .before_acquire(|connection, about| {
            Box::pin(async move {
                if about.idle_for > MAX_UNTESTED_IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_with(options.database.clone())
        .await
}

/// Opens the log. Rewraps the subject keys if an operator replaced the wrapping key.
pub(super) async fn open_log(
    options: &Options,
    pool: &PgPool,
    keys: KeyRing,
    clock: &Clock,
) -> Result<EventLog, LogError> {
    let log_clock = Arc::clone(clock);
    let log_options = event_log::Options {
        inline_projections: loops::views(),
        clock: event_log::Clock::of(move || log_clock()),
        archives: options.archives(),
        keys,
        ..Default::default()
    };
    let log = EventLog::open(pool.clone(), log_options).await?;
    let rewrapped = log.key_ring().rewrap(pool).await?;
    if rewrapped > 0 {
        info!(
            keys = rewrapped,
            "Rewrapped subject keys with the new key; the former key is unused"
        );
    }
    Ok(log)
}

/// Connects as the owner of the tables, if configured, and prepares the projections' tables.
pub(super) async fn prepare_projections(
    options: &Options,
    log: &EventLog,
) -> Result<Option<PgPool>, RebuildError> {
    let Some(owner) = options.owner.clone() else { return Ok(None) };
    let pool = event_log::pool().max_connections(4).connect_lazy_with(owner);
    let source = Source { pool: pool.clone(), ..Source::from(log) };
    projections::projector::prepare(source).await?;
    Ok(Some(pool))
}
