//! Table of endpoints. The consumer changes their state in the order of the log.
use chrono::{DateTime, TimeDelta, Utc};
use domain::{
    ids::EndpointId,
    webhook::{Format, WebhookSettings},
};
use sqlx::{PgConnection, PgExecutor, PgPool, Row as _};

use super::CONSUMER;

/// Time after its replacement in which the former secret of a webhook still signs messages, so that
/// receivers can change to the new one.
const FORMER_SECRET: TimeDelta = TimeDelta::hours(24);

/// URL and signing secret of a webhook.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub id: EndpointId,
    pub url: String,
    pub secret: Vec<u8>,
}

/// Endpoint of an active webhook, with its valid secrets.
pub(crate) struct Sending {
    pub url: String,
    /// Current secret, then former ones.
    pub secrets: Vec<Vec<u8>>,
    pub format: Format,
}

/// Stores an endpoint before the event that activates it.
pub(crate) async fn put(
    pool: &PgPool,
    webhook: &str,
    endpoint: &Endpoint,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let insert = "insert into webhook_endpoint (id, webhook, url, secret, created_at) \
                  values ($1, $2, $3, $4, $5)";
    sqlx::query(insert)
        .bind(endpoint.id.to_string())
        .bind(webhook)
        .bind(&endpoint.url)
        .bind(&endpoint.secret)
        .bind(now)
        .execute(pool)
        .await
        .map(drop)
}

/// Creates the consumer of the log at a position, unless it exists.
pub(crate) async fn create_consumer(pool: &PgPool, position: u64) -> Result<(), sqlx::Error> {
    let (name, version, shard) = CONSUMER;
    let insert = "insert into log_consumer (name, version, shard, position, owner_epoch) \
                  values ($1, $2, $3, $4, 0) on conflict do nothing";
    let query = sqlx::query(insert).bind(name).bind(version).bind(shard);
    query.bind(position.cast_signed()).execute(pool).await.map(drop)
}

/// Deletes an endpoint that no event activated.
pub(crate) async fn discard(pool: &PgPool, id: EndpointId) -> Result<(), sqlx::Error> {
    let delete =
        "delete from webhook_endpoint where id = $1 and not active and replaced_at is null";
    sqlx::query(delete).bind(id.to_string()).execute(pool).await.map(drop)
}

/// Returns an endpoint.
pub(crate) async fn endpoint(
    pool: &PgPool,
    id: EndpointId,
) -> Result<Option<Endpoint>, sqlx::Error> {
    let select = "select url, secret from webhook_endpoint where id = $1";
    let row = sqlx::query(select).bind(id.to_string()).fetch_optional(pool).await?;
    row.map(|row| Ok(Endpoint { id, url: row.try_get(0)?, secret: row.try_get(1)? })).transpose()
}

/// Makes an endpoint the one of its webhook. The former one no longer sends.
pub(crate) async fn activate(
    connection: &mut PgConnection,
    webhook: &str,
    settings: &WebhookSettings,
    at: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let (id, topics) = (settings.endpoint.to_string(), &settings.topics);
    let topics: Vec<&str> = topics.iter().map(|topic| topic.name()).collect();
    let replace = "update webhook_endpoint set active = false, replaced_at = $3 \
                   where webhook = $1 and id <> $2 and active";
    sqlx::query(replace).bind(webhook).bind(&id).bind(at).execute(&mut *connection).await?;
    let activate = "update webhook_endpoint set active = true, replaced_at = null, topics = $2, \
                    format = $3 where id = $1";
    let query = sqlx::query(activate).bind(&id).bind(topics).bind(format_name(settings.format));
    query.execute(connection).await.map(drop)
}

/// Ends a deleted webhook: its endpoints and its deliveries are deleted.
pub(crate) async fn deactivate(
    connection: &mut PgConnection,
    webhook: &str,
) -> Result<(), sqlx::Error> {
    // An endpoint that was never active belongs to a new webhook of this name.
    let delete = "delete from webhook_endpoint where webhook = $1 \
                  and (active or replaced_at is not null)";
    sqlx::query(delete).bind(webhook).execute(&mut *connection).await?;
    let delete = "delete from webhook_delivery where webhook = $1";
    sqlx::query(delete).bind(webhook).execute(connection).await.map(drop)
}

/// Returns the webhooks that subscribe to a topic.
pub(crate) async fn subscribers(
    connection: &mut PgConnection,
    topic: &str,
) -> Result<Vec<String>, sqlx::Error> {
    let select = "select webhook from webhook_endpoint where active and $1 = any (topics)";
    sqlx::query_scalar(select).bind(topic).fetch_all(connection).await
}

/// Returns what an attempt needs. `None` if the webhook was deleted.
pub(crate) async fn sending(
    executor: impl PgExecutor<'_>,
    webhook: &str,
    now: DateTime<Utc>,
) -> Result<Option<Sending>, sqlx::Error> {
    let select = "select url, secret, format, active from webhook_endpoint where webhook = $1 \
                  and (active or replaced_at > $2) order by active desc, replaced_at desc";
    let rows =
        sqlx::query(select).bind(webhook).bind(now - FORMER_SECRET).fetch_all(executor).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    if !first.try_get::<bool, _>("active")? {
        return Ok(None);
    }
    let format = match first.try_get::<&str, _>("format")? {
        "slack" => Format::Slack,
        _ => Format::Standard,
    };
    let mut secrets: Vec<Vec<u8>> = vec![];
    for row in &rows {
        let secret: Vec<u8> = row.try_get("secret")?;
        if !secrets.contains(&secret) {
            secrets.push(secret);
        }
    }
    Ok(Some(Sending { url: first.try_get("url")?, secrets, format }))
}

/// Deletes endpoints whose secret no longer signs, and endpoints that no event activated.
pub(crate) async fn delete_replaced(pool: &PgPool, now: DateTime<Utc>) -> Result<u64, sqlx::Error> {
    let delete = "delete from webhook_endpoint where not active \
                  and coalesce(replaced_at, created_at) < $1";
    Ok(sqlx::query(delete).bind(now - FORMER_SECRET).execute(pool).await?.rows_affected())
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Standard => "standard",
        Format::Slack => "slack",
    }
}
