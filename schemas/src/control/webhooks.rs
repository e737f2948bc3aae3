//! Webhooks: HTTP endpoints that get messages about events.
use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::moment;

/// Webhook with its settings. The URL and the signing secret are never returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// Unique name.
    pub name: String,
    /// Scheme, host and port of the URL.
    pub origin: String,
    /// Topics of the messages.
    pub topics: BTreeSet<String>,
    /// Format of the messages.
    pub format: WebhookFormat,
    /// Time of the last change of the settings.
    #[serde(with = "moment")]
    pub configured_at: DateTime<Utc>,
}

/// Format of the body of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookFormat {
    /// Object with `type`, `timestamp` and `data`, as in Standard Webhooks.
    #[default]
    Standard,
    /// Object with `text`, for Slack and compatible chats.
    Slack,
}

/// Settings of a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigureWebhook {
    /// URL of the endpoint. Required for a new webhook; absent to keep the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub url: Option<String>,
    /// Topics of the messages, at least one.
    pub topics: BTreeSet<String>,
    /// Format of the messages. Default: `standard`.
    #[serde(default)]
    pub format: WebhookFormat,
    /// True to replace the signing secret. The former one also signs for 24 hours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotate_secret: bool,
}

/// Result of a change of a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WebhookConfigured {
    /// Name of the webhook.
    pub name: String,
    /// New signing secret: `whsec_` and base64. Absent if the webhook keeps its secret, and in the
    /// response to a repeated request. No other response contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// False if the webhook had these settings already.
    pub changed: bool,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Result of a test message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WebhookTested {
    /// True if the endpoint accepted the message.
    pub delivered: bool,
    /// HTTP status of the endpoint. Absent if it did not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Delivery of a message about one event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WebhookDelivery {
    /// Log position of the event.
    pub position: u64,
    /// Topic of the event.
    pub topic: String,
    /// `pending`, `delivered` or `failed`.
    pub state: String,
    /// Number of attempts since the event or the last replay.
    pub attempts: u32,
    /// HTTP status of the last attempt. Absent if the endpoint did not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Reason of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time of the next attempt of a pending delivery.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Time at which the server queued the message.
    #[serde(with = "moment")]
    pub created_at: DateTime<Utc>,
    /// Time at which the endpoint accepted the message.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub delivered_at: Option<DateTime<Utc>>,
}

/// Selection of deliveries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeliveriesQuery {
    /// Only deliveries in this state: `pending`, `delivered`, `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Deliveries to send again. Absent members do not limit the selection. The server keeps
/// deliveries for 30 days.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayDeliveries {
    /// Only deliveries in this state: `pending`, `delivered` or `failed`. A pending one does not wait
    /// for its next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only deliveries of events from this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_position: Option<u64>,
    /// Only deliveries of events up to this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_position: Option<u64>,
}

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeliveriesReplayed {
    /// Number of deliveries that are sent again.
    pub deliveries: u64,
}
