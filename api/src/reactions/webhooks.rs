//! Sends messages about events to webhooks.
//!
//! A consumer of the log inserts one delivery for each webhook and event, in the transaction that
//! advances its position. Each server then attempts due deliveries, which it claims by a time. So a
//! server that fails at any point loses no message. A message whose result was lost is sent again
//! with the same id.
mod message;

use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::{
    recorded::{DomainEvent, RecordedEvent},
    run::Run,
    webhook::{Notice, Topic, WebhookEvent},
};
use event_log::consumer::{self, ConsumerLease};
use futures::{StreamExt as _, stream};
use sqlx::PgConnection;
use tokio::time::Instant;

use crate::{
    ids,
    metrics::WebhookLabels,
    problem::Problem,
    state::App,
    webhooks::{self, Attempt, CONSUMER, DeliveryState, Due, Outcome},
};

/// Duration of the consumer lease.
const LEASE: Duration = Duration::from_secs(15);
/// Longest pause between two passes. Another server may have inserted deliveries meanwhile.
const TICK: Duration = Duration::from_secs(10);
/// Pause between two passes while the log grows, so that a pass reads many events.
const BATCH: Duration = Duration::from_millis(200);
/// Interval of the deletion of old rows.
const CLEANUP: Duration = Duration::from_secs(60 * 60);
const PAGE: u32 = 500;
/// Concurrent attempts of this server.
const CONCURRENT: usize = 16;
/// Attempts in one pass.
const ATTEMPTS: i64 = 64;
/// Longest stored reason of a failure in characters.
const MAX_ERROR: usize = 300;

/// Sends messages until the server stops.
pub(crate) async fn run(app: App) {
    let owner = format!("{}/{}", app.config.server, ids::new_ulid());
    let mut cleaned: Option<Instant> = None;
    let mut positions = app.log().positions();
    loop {
        let used = match pass(&app, &owner, &mut cleaned).await {
            Ok(wait) => wait,
            Err(problem) => {
                tracing::warn!(error = %problem.detail, "Cannot process the deliveries of webhooks, trying again");
                None
            }
        };
        let changed = async {
            // Without webhooks, growth of the log wakes nothing.
            match used.is_some() && positions.changed().await.is_ok() {
                true => tokio::time::sleep(BATCH).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = app.webhook_wakeup.notified() => {}
            () = changed => {}
            () = tokio::time::sleep(used.unwrap_or(TICK)) => {}
        }
    }
}

/// Inserts deliveries of new events and attempts due ones. Returns the wait until the next attempt,
/// at most [`TICK`], and `None` if no webhook was ever created.
async fn pass(
    app: &App,
    owner: &str,
    cleaned: &mut Option<Instant>,
) -> Result<Option<Duration>, Problem> {
    if consumer::position(&app.pool, CONSUMER).await?.is_none() {
        return Ok(None);
    }
    if let Some(mut lease) =
        consumer::acquire(&app.pool, app.log().clock(), CONSUMER, owner, LEASE).await?
    {
        let acquired = Instant::now();
        while acquired.elapsed() < LEASE / 2 && !app.stopping.is_cancelled() {
            if !enqueue_page(app, &mut lease).await? {
                // An endpoint whose event was not processed yet is not an old one.
                if cleaned.is_none_or(|at| at.elapsed() >= CLEANUP) {
                    webhooks::delete_old(&app.pool, app.now()).await?;
                    webhooks::delete_replaced(&app.pool, app.now()).await?;
                    *cleaned = Some(Instant::now());
                }
                break;
            }
        }
    }
    let due = webhooks::claim_due(&app.pool, app.now(), ATTEMPTS).await?;
    if !due.is_empty() {
        let attempts = due.into_iter().map(|due| attempt(app, due));
        stream::iter(attempts).buffer_unordered(CONCURRENT).collect::<Vec<()>>().await;
        return Ok(Some(Duration::ZERO));
    }
    let next = webhooks::next_due(&app.pool).await?;
    let wait = next.and_then(|next| (next - app.now()).to_std().ok());
    Ok(Some(wait.map_or(TICK, |wait| wait.min(TICK))))
}

/// Processes the next page of events. Returns false at the end of the log, and if another server has
/// the consumer.
async fn enqueue_page(app: &App, lease: &mut ConsumerLease) -> Result<bool, Problem> {
    let events = app.log().read(lease.position, PAGE).await?;
    let Some(last) = events.last().map(|event| event.position) else { return Ok(false) };
    let mut transaction = app.pool.begin().await?;
    for stored in &events {
        for event in projections::event::decode(stored)? {
            enqueue(app, &mut transaction, &event).await?;
        }
    }
    if !consumer::advance(&mut *transaction, lease, last).await? {
        return Ok(false);
    }
    transaction.commit().await?;
    lease.position = last;
    Ok(events.len() == PAGE as usize)
}

async fn enqueue(
    app: &App,
    connection: &mut PgConnection,
    event: &RecordedEvent,
) -> Result<(), Problem> {
    if let DomainEvent::Webhook(name, change) = &event.domain_event {
        match change {
            WebhookEvent::Configured(settings) => {
                webhooks::activate(connection, name, settings, event.at).await?;
            }
            WebhookEvent::Deleted {} => webhooks::deactivate(connection, name).await?,
        }
        return Ok(());
    }
    let Some(topic) = topic_of(app, &event.domain_event).await? else { return Ok(()) };
    for webhook in webhooks::subscribers(connection, topic.name()).await? {
        let of = (event.position, topic.name());
        webhooks::enqueue(connection, &webhook, of, app.now()).await?;
    }
    Ok(())
}

async fn topic_of(app: &App, event: &DomainEvent) -> Result<Option<Topic>, Problem> {
    match Notice::of(event) {
        None => Ok(None),
        Some(Notice::Of(topic, _)) => Ok(Some(topic)),
        Some(Notice::Finished(run, outcome)) => {
            // The cache of this server may lack the last events of the run.
            let run = app.log().reload::<Run>(&run.to_string()).await?;
            Ok(Notice::of_finished(&run.state, outcome))
        }
    }
}

/// Sends one message and records the result. After a failed recording, the message is sent again.
async fn attempt(app: &App, due: Due) {
    let result = match send(app, &due).await {
        Ok(Some(outcome)) => result_of(&due, outcome),
        // The webhook was deleted, with its deliveries.
        Ok(None) => return,
        Err(problem) => failed(&due, None, problem.detail, None),
    };
    let is_delivered = result.state == DeliveryState::Delivered;
    let labels = WebhookLabels { result: if is_delivered { "delivered" } else { "failed" } };
    app.metrics.webhook_attempts.get_or_create(&labels).inc();
    if result.state == DeliveryState::Failed {
        tracing::warn!(
            webhook = due.webhook,
            position = due.position,
            "Gave up the delivery of a webhook; a user can replay it"
        );
    }
    if let Err(error) = webhooks::finish(&app.pool, &due, &result, app.now()).await {
        tracing::warn!(webhook = due.webhook, error = %error, "Cannot store the result of a delivery, it is sent again");
    }
}

async fn send(app: &App, due: &Due) -> Result<Option<Outcome>, Problem> {
    let now: DateTime<Utc> = app.now();
    let Some(sending) = webhooks::sending(&app.pool, &due.webhook, now).await? else {
        return Ok(None);
    };
    let message = message::build(app, due.position, sending.format).await?;
    Ok(Some(app.webhook_sender.send(&sending, &message, now).await))
}

fn result_of(due: &Due, outcome: Outcome) -> Attempt {
    match outcome {
        Outcome::Delivered(status) => Attempt {
            state: DeliveryState::Delivered,
            status: Some(status),
            error: None,
            wait: Duration::ZERO,
        },
        Outcome::Gone(status) => Attempt {
            state: DeliveryState::Failed,
            status: Some(status),
            error: Some("the endpoint responded that it is gone".into()),
            wait: Duration::ZERO,
        },
        Outcome::Failed { status, why, after } => failed(due, status, why, after),
    }
}

fn failed(due: &Due, status: Option<u16>, why: String, after: Option<Duration>) -> Attempt {
    let wait = webhooks::back_off(due.attempt, after);
    let state = match wait {
        Some(_) => DeliveryState::Pending,
        None => DeliveryState::Failed,
    };
    let error = Some(why.chars().take(MAX_ERROR).collect());
    Attempt { state, status, error, wait: wait.unwrap_or_default() }
}
