//! Gauges of the whole installation, read from the projections at each scrape.
use sqlx::Row as _;

use crate::{state::App, usecases::steps::complete::APPROVAL_TTL};

/// Items that wait for a user.
pub(super) struct Open {
    /// Number of plans that wait for an approval.
    pub approvals: u64,
    /// Seconds since the oldest of these approvals was requested, or 0 if no plan waits.
    pub oldest_seconds: f64,
    /// Number of runners that are disconnected, were not stopped and are not revoked.
    pub disconnected: u64,
}

pub(super) async fn read(app: &App) -> Result<Open, sqlx::Error> {
    let sql = "select count(*), coalesce(extract(epoch from $1 - min((timer.value->>'at')::timestamptz))::float8, 0), \
        (select count(*) from projection_runners where data->'state'->>'disconnected_since' is not null \
           and not (data->'state'->>'revoked')::boolean \
           and not coalesce((data->'state'->>'stopped')::boolean, false)) \
        from projection_timers, json_each(data->'timers') as timer \
        where due_at is not null and timer.value->'timer'->>'type' = 'approval_expiry'";
    // An approval expires a fixed time after its request.
    let row = sqlx::query(sql).bind(app.now() + APPROVAL_TTL).fetch_one(&app.pool).await?;
    let (approvals, oldest, disconnected): (i64, f64, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok(Open {
        approvals: approvals.cast_unsigned(),
        oldest_seconds: oldest.max(0.0),
        disconnected: disconnected.cast_unsigned(),
    })
}
