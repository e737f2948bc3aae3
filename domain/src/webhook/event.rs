//! Events of a webhook. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::WebhookSettings;
use crate::decider::Event;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WebhookEvent {
    /// The webhook was created, or its settings were replaced. It sends the events after this one.
    Configured(WebhookSettings),
    /// The webhook was deleted. It sends nothing more.
    Deleted {},
}

impl Event for WebhookEvent {
    fn name(&self) -> &'static str {
        match self {
            WebhookEvent::Configured(_) => "webhook.configured",
            WebhookEvent::Deleted {} => "webhook.deleted",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
