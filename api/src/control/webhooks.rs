//! `/v1/webhooks`: settings and deliveries of webhooks.
use std::collections::BTreeSet;

use axum::{Json, extract::State};
use domain::webhook::{Format, Topic, UnknownTopic};
use schemas::control::{
    ChangeResult, Page, PageQuery,
    webhooks::{
        ConfigureWebhook, DeliveriesQuery, DeliveriesReplayed, ReplayDeliveries, Webhook,
        WebhookConfigured, WebhookDelivery, WebhookFormat, WebhookTested,
    },
};

use super::change_request::{ChangeRequest, change_result};
use crate::{
    extract::{self, Caller, Path, Query},
    problem::{ApiResult, Problem},
    queries::webhooks as queries,
    state::App,
    usecases::webhooks,
    webhooks::Filter,
};

/// List webhooks by name
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "webhooks", params(PageQuery),
    responses((status = 200, body = Page<Webhook>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<Webhook>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get a webhook
#[utoipa::path(
    get, path = "/v1/webhooks/{webhook}", tag = "webhooks",
    params(("webhook" = String, Path, description = "The webhook's name")),
    responses((status = 200, body = Webhook)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Webhook> {
    queries::get(&app, &caller, &name).await.map(Json)
}

/// Create a webhook, or replace its settings
///
/// The webhook gets a message for each later event on its topics. The signing secret is shown only
/// once, when it is created.
#[utoipa::path(
    put, path = "/v1/webhooks/{webhook}", tag = "webhooks", request_body = ConfigureWebhook,
    params(("webhook" = String, Path, description = "The webhook's name")),
    responses((status = 200, body = WebhookConfigured)),
)]
pub(super) async fn configure(
    State(app): State<App>,
    Path(name): Path<String>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<ConfigureWebhook>,
) -> ApiResult<WebhookConfigured> {
    let topics = body.topics.iter().map(|topic| topic.parse());
    let topics: BTreeSet<Topic> = topics.collect::<Result<_, UnknownTopic>>().map_err(|error| {
        Problem::invalid_field("topics", &format!("is not valid: {error}"), "name existing topics")
    })?;
    let format = match body.format {
        WebhookFormat::Standard => Format::Standard,
        WebhookFormat::Slack => Format::Slack,
    };
    let ConfigureWebhook { url, rotate_secret, .. } = body;
    let request = webhooks::Request { url, topics, format, rotate_secret };
    let done = webhooks::configure(&app, &call, &name, request).await?;
    let (changed, position) = (done.events > 0, done.position);
    Ok(Json(WebhookConfigured { name, secret: done.value, changed, position }))
}

/// Delete a webhook with its deliveries
#[utoipa::path(
    delete, path = "/v1/webhooks/{webhook}", tag = "webhooks",
    params(("webhook" = String, Path, description = "The webhook's name")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<ChangeResult> {
    Ok(Json(change_result(&webhooks::delete(&app, &call, &name).await?)))
}

/// Send a test message to the endpoint, and wait for its response
#[utoipa::path(
    post, path = "/v1/webhooks/{webhook}/test", tag = "webhooks",
    params(("webhook" = String, Path, description = "The webhook's name")),
    responses((status = 200, body = WebhookTested)),
)]
pub(super) async fn test(
    State(app): State<App>,
    Path(name): Path<String>,
    _: ChangeRequest,
) -> ApiResult<WebhookTested> {
    Ok(Json(queries::tested(webhooks::test(&app, &name).await?)))
}

/// List the deliveries of a webhook, newest event first
#[utoipa::path(
    get, path = "/v1/webhooks/{webhook}/deliveries", tag = "webhooks",
    params(("webhook" = String, Path, description = "The webhook's name"), DeliveriesQuery),
    responses((status = 200, body = Page<WebhookDelivery>)),
)]
pub(super) async fn deliveries(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<DeliveriesQuery>,
) -> ApiResult<Page<WebhookDelivery>> {
    queries::deliveries(&app, &caller, &name, query).await.map(Json)
}

/// Send deliveries of a webhook again
///
/// Messages keep their ids, so receivers recognize the ones that they got already.
#[utoipa::path(
    post, path = "/v1/webhooks/{webhook}/replay", tag = "webhooks",
    request_body = ReplayDeliveries,
    params(("webhook" = String, Path, description = "The webhook's name")),
    responses((status = 200, body = DeliveriesReplayed)),
)]
pub(super) async fn replay(
    State(app): State<App>,
    Path(name): Path<String>,
    _: ChangeRequest,
    extract::Json(body): extract::Json<ReplayDeliveries>,
) -> ApiResult<DeliveriesReplayed> {
    let state = body.state.as_deref().map(queries::state).transpose()?;
    let filter = Filter { state, from: body.from_position, to: body.to_position };
    let deliveries = webhooks::replay(&app, &name, &filter).await?;
    Ok(Json(DeliveriesReplayed { deliveries }))
}
