use super::WebhookSettings;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum WebhookCommand {
    /// Create the webhook, or replace its settings. The endpoint is stored.
    Configure(WebhookSettings),
    /// Delete the webhook. Its pending deliveries are not sent.
    Delete,
}
