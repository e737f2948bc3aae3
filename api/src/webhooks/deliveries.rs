//! Table of deliveries.
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

/// Time after which another attempt may begin although the result of the last one is unknown: the
/// server failed during the attempt.
const LEASE: TimeDelta = TimeDelta::seconds(60);
/// Concurrent attempts of one webhook, so that a slow endpoint does not delay the others.
const PER_WEBHOOK: i64 = 4;
/// Time after which a delivery is deleted.
const KEPT: TimeDelta = TimeDelta::days(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// Waits for its first or next attempt.
    Pending,
    Delivered,
    /// The last attempt failed. A user can replay it.
    Failed,
}

impl DeliveryState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
        }
    }
}

/// Delivery of one event to one webhook.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub position: u64,
    pub topic: String,
    pub state: String,
    pub attempts: u32,
    /// Earliest time of the next attempt of a pending delivery.
    pub due_at: DateTime<Utc>,
    /// HTTP status of the last attempt. `None` without a response.
    pub status: Option<u16>,
    /// Reason of the last failure.
    pub error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub delivered_at: Option<DateTime<Utc>>,
}

/// Delivery whose attempt begins now.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub webhook: String,
    pub position: u64,
    /// Number of this attempt, from 1.
    pub attempt: u32,
}

/// Result of an attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub state: DeliveryState,
    pub status: Option<u16>,
    pub error: Option<String>,
    /// Wait before the next attempt of a pending delivery.
    pub wait: Duration,
}

/// Deliveries to select.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Deliveries in this state.
    pub state: Option<DeliveryState>,
    /// Deliveries of events from this position.
    pub from: Option<u64>,
    /// Deliveries of events up to this position.
    pub to: Option<u64>,
}

/// Inserts a delivery. Repeating it changes nothing.
pub(crate) async fn enqueue(
    connection: &mut PgConnection,
    webhook: &str,
    (position, topic): (u64, &str),
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let insert = "insert into webhook_delivery (webhook, position, topic, state, due_at, created_at) \
                  values ($1, $2, $3, 'pending', $4, $4) on conflict do nothing";
    let query = sqlx::query(insert).bind(webhook).bind(position.cast_signed()).bind(topic);
    query.bind(now).execute(connection).await.map(drop)
}

/// Begins attempts of due deliveries, oldest first. Another server begins none of them meanwhile.
pub(crate) async fn claim_due(
    pool: &PgPool,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Due>, sqlx::Error> {
    // The outer condition is evaluated again after a wait for a row that another server changed.
    let claim = "update webhook_delivery d set due_at = $2, attempts = d.attempts + 1 \
                 from (select webhook, position from \
                   (select webhook, position, due_at, row_number() over \
                     (partition by webhook order by due_at, position) as n \
                    from webhook_delivery where state = 'pending' and due_at <= $1) due \
                   where n <= $3 order by due_at, position limit $4) chosen \
                 where d.webhook = chosen.webhook and d.position = chosen.position \
                   and d.state = 'pending' and d.due_at <= $1 \
                 returning d.webhook, d.position, d.attempts";
    let query = sqlx::query(claim).bind(now).bind(now + LEASE).bind(PER_WEBHOOK).bind(limit);
    let rows = query.fetch_all(pool).await?;
    let due = |row: PgRow| {
        Ok(Due {
            webhook: row.try_get(0)?,
            position: row.try_get::<i64, _>(1)?.cast_unsigned(),
            attempt: row.try_get::<i32, _>(2)?.cast_unsigned(),
        })
    };
    rows.into_iter().map(due).collect()
}

/// Records the result of an attempt. A later attempt's result is kept.
pub(crate) async fn finish(
    pool: &PgPool,
    due: &Due,
    attempt: &Attempt,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let delivered = (attempt.state == DeliveryState::Delivered).then_some(now);
    let next = now + TimeDelta::from_std(attempt.wait).unwrap_or(LEASE);
    let update = "update webhook_delivery set state = $4, status = $5, error = $6, due_at = $7, \
                  delivered_at = $8 where webhook = $1 and position = $2 and attempts = $3";
    sqlx::query(update)
        .bind(&due.webhook)
        .bind(due.position.cast_signed())
        .bind(due.attempt.cast_signed())
        .bind(attempt.state.name())
        .bind(attempt.status.map(i32::from))
        .bind(&attempt.error)
        .bind(next)
        .bind(delivered)
        .execute(pool)
        .await
        .map(drop)
}

/// Returns the earliest time at which a delivery is due.
pub(crate) async fn next_due(pool: &PgPool) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let select = "select min(due_at) from webhook_delivery where state = 'pending'";
    sqlx::query_scalar(select).fetch_one(pool).await
}

/// Returns deliveries of a webhook before a position, newest first.
pub(crate) async fn page(
    pool: &PgPool,
    webhook: &str,
    state: Option<DeliveryState>,
    (before, limit): (Option<u64>, u32),
) -> Result<Vec<Delivery>, sqlx::Error> {
    let select = "select position, topic, state, attempts, due_at, status, error, created_at, \
                    delivered_at from webhook_delivery where webhook = $1 \
                  and ($2::text is null or state = $2) and ($3::bigint is null or position < $3) \
                  order by position desc limit $4";
    let query = sqlx::query(select).bind(webhook).bind(state.map(DeliveryState::name));
    let rows = query.bind(before.map(u64::cast_signed)).bind(i64::from(limit));
    let delivery = |row: PgRow| {
        Ok(Delivery {
            position: row.try_get::<i64, _>(0)?.cast_unsigned(),
            topic: row.try_get(1)?,
            state: row.try_get(2)?,
            attempts: row.try_get::<i32, _>(3)?.cast_unsigned(),
            due_at: row.try_get(4)?,
            status: row.try_get::<Option<i32>, _>(5)?.and_then(|status| status.try_into().ok()),
            error: row.try_get(6)?,
            created_at: row.try_get(7)?,
            delivered_at: row.try_get(8)?,
        })
    };
    rows.fetch_all(pool).await?.into_iter().map(delivery).collect()
}

/// Sends deliveries again, also delivered ones, and pending ones without a further wait. Returns their
/// number.
pub(crate) async fn replay(
    pool: &PgPool,
    webhook: &str,
    filter: &Filter,
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let update = "update webhook_delivery set state = 'pending', attempts = 0, due_at = $5, \
                    status = null, error = null, delivered_at = null \
                  where webhook = $1 and ($2::text is null or state = $2) \
                  and ($3::bigint is null or position >= $3) and ($4::bigint is null or position <= $4)";
    let query = sqlx::query(update).bind(webhook).bind(filter.state.map(DeliveryState::name));
    let query = query.bind(filter.from.map(u64::cast_signed)).bind(filter.to.map(u64::cast_signed));
    Ok(query.bind(now).execute(pool).await?.rows_affected())
}

/// Deletes old deliveries.
pub(crate) async fn delete_old(pool: &PgPool, now: DateTime<Utc>) -> Result<u64, sqlx::Error> {
    let delete = "delete from webhook_delivery where created_at < $1 and state <> 'pending'";
    Ok(sqlx::query(delete).bind(now - KEPT).execute(pool).await?.rows_affected())
}
