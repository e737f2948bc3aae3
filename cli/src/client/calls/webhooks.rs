//! Calls of `/v1/webhooks`.
use reqwest::Method;
use schemas::control::{
    ChangeResult, Page, PageQuery,
    webhooks::{
        ConfigureWebhook, DeliveriesQuery, DeliveriesReplayed, ReplayDeliveries, Webhook,
        WebhookConfigured, WebhookDelivery, WebhookTested,
    },
};
use serde_json::json;

use super::CallResult;
use crate::client::Client;

impl Client {
    /// Webhooks by name.
    pub async fn webhooks(&self, listing: &PageQuery) -> CallResult<Page<Webhook>> {
        self.fresh("/v1/webhooks", listing).await
    }

    /// Webhook with its settings.
    pub async fn webhook(&self, name: &str) -> CallResult<Webhook> {
        self.fresh(&format!("/v1/webhooks/{name}"), &()).await
    }

    /// Creates a webhook, or replaces its settings.
    pub async fn configure_webhook(
        &self,
        name: &str,
        body: &ConfigureWebhook,
    ) -> CallResult<WebhookConfigured> {
        self.change(Method::PUT, &format!("/v1/webhooks/{name}"), body).await
    }

    /// Deletes a webhook with its deliveries.
    pub async fn delete_webhook(&self, name: &str) -> CallResult<ChangeResult> {
        self.change(Method::DELETE, &format!("/v1/webhooks/{name}"), &json!({})).await
    }

    /// Sends a test message to the endpoint.
    pub async fn test_webhook(&self, name: &str) -> CallResult<WebhookTested> {
        self.change(Method::POST, &format!("/v1/webhooks/{name}/test"), &json!({})).await
    }

    /// Deliveries of a webhook, newest event first.
    pub async fn webhook_deliveries(
        &self,
        name: &str,
        query: &DeliveriesQuery,
    ) -> CallResult<Page<WebhookDelivery>> {
        self.fresh(&format!("/v1/webhooks/{name}/deliveries"), query).await
    }

    /// Sends deliveries of a webhook again.
    pub async fn replay_webhook(
        &self,
        name: &str,
        body: &ReplayDeliveries,
    ) -> CallResult<DeliveriesReplayed> {
        self.change(Method::POST, &format!("/v1/webhooks/{name}/replay"), body).await
    }
}
