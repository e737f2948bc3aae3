//! Webhooks and their deliveries.
use domain::webhook::Format;
use projections::views::webhooks::{self as view, Row};
use schemas::control::{
    Page, PageQuery,
    webhooks::{DeliveriesQuery, Webhook, WebhookDelivery, WebhookFormat, WebhookTested},
};

use super::pagination::PageRequest;
use crate::{
    extract::Caller,
    problem::{Code, Problem},
    state::App,
    webhooks::{self, Delivery, DeliveryState, Outcome},
};

/// Lists the webhooks by name.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: PageQuery,
) -> Result<Page<Webhook>, Problem> {
    caller.authorize("GET", "/v1/webhooks")?;
    let part = PageRequest::<String>::of(query.limit, query.cursor)?;
    let rows = view::page(&app.pool, part.after.as_deref(), part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.name.clone());
    Ok(Page { items: rows.into_iter().map(webhook).collect(), next })
}

/// Returns a webhook by its name.
pub(crate) async fn get(app: &App, caller: &Caller, name: &str) -> Result<Webhook, Problem> {
    caller.authorize("GET", "/v1/webhooks/{webhook}")?;
    let row = view::webhook(&app.pool, name).await?;
    row.map(webhook).ok_or_else(|| Problem::not_found(format!("the webhook {name:?}")))
}

/// Lists the deliveries of a webhook, newest event first.
pub(crate) async fn deliveries(
    app: &App,
    caller: &Caller,
    name: &str,
    query: DeliveriesQuery,
) -> Result<Page<WebhookDelivery>, Problem> {
    caller.authorize("GET", "/v1/webhooks/{webhook}/deliveries")?;
    let row = view::webhook(&app.pool, name).await?;
    row.ok_or_else(|| Problem::not_found(format!("the webhook {name:?}")))?;
    let state = query.state.as_deref().map(state).transpose()?;
    let part = PageRequest::<u64>::of(query.limit, query.cursor)?;
    let range = (part.after, part.query_limit());
    let rows = webhooks::page(&app.pool, name, state, range).await?;
    let (rows, next) = part.page(rows, |row| row.position);
    Ok(Page { items: rows.into_iter().map(delivery).collect(), next })
}

/// Returns the state of this name.
pub(crate) fn state(name: &str) -> Result<DeliveryState, Problem> {
    let all = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed];
    all.into_iter().find(|state| state.name() == name).ok_or_else(|| {
        let names = all.map(DeliveryState::name).join(", ");
        Problem::new(Code::BadRequest, format!("invalid state {name:?}: use one of {names}"))
    })
}

/// Describes the result of a test message.
pub(crate) fn tested(outcome: Outcome) -> WebhookTested {
    match outcome {
        Outcome::Delivered(status) => {
            WebhookTested { delivered: true, status: Some(status), error: None }
        }
        Outcome::Gone(status) => {
            let error = Some("the endpoint responded that it is gone".into());
            WebhookTested { delivered: false, status: Some(status), error }
        }
        Outcome::Failed { status, why, .. } => {
            WebhookTested { delivered: false, status, error: Some(why) }
        }
    }
}

fn webhook(row: Row) -> Webhook {
    let Row { name, settings, configured_at } = row;
    Webhook {
        name,
        origin: settings.origin,
        topics: settings.topics.iter().map(ToString::to_string).collect(),
        format: match settings.format {
            Format::Standard => WebhookFormat::Standard,
            Format::Slack => WebhookFormat::Slack,
        },
        configured_at,
    }
}

fn delivery(row: Delivery) -> WebhookDelivery {
    let is_pending = row.state == DeliveryState::Pending.name();
    WebhookDelivery {
        position: row.position,
        topic: row.topic,
        state: row.state,
        attempts: row.attempts,
        status: row.status,
        error: row.error,
        next_attempt_at: is_pending.then_some(row.due_at),
        created_at: row.created_at,
        delivered_at: row.delivered_at,
    }
}
