//! A webhook sends events on selected topics to an HTTP endpoint. Its stream id is its name.
use std::collections::BTreeSet;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    decider::{Decider, Timestamp},
    ids::EndpointId,
};

mod command;
mod error;
mod event;
#[cfg(test)]
mod tests;
mod topic;
pub use command::WebhookCommand;
pub use error::WebhookError;
pub use event::WebhookEvent;
pub use topic::{About, Notice, Topic, UnknownTopic};

/// Configuration of a webhook. `None` before its creation and after its deletion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Webhook {
    pub settings: Option<WebhookSettings>,
}

/// Settings of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebhookSettings {
    /// Endpoint with the URL and the signing secret, which are stored outside the log: both can be
    /// secret.
    pub endpoint: EndpointId,
    /// Scheme, host and port of the URL, for users and auditors.
    pub origin: String,
    /// Topics of the events to send.
    pub topics: BTreeSet<Topic>,
    pub format: Format,
}

/// Format of the request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Object with `type`, `timestamp` and `data`, as in the specification *Standard Webhooks*.
    Standard,
    /// Object with `text`, which Slack and compatible chats accept.
    Slack,
}

impl Decider for Webhook {
    const NAME: &'static str = "webhook";
    type Command = WebhookCommand;
    type Event = WebhookEvent;
    type Error = WebhookError;

    fn decide(
        &self,
        command: WebhookCommand,
        _: Timestamp,
    ) -> Result<Vec<WebhookEvent>, WebhookError> {
        match (command, &self.settings) {
            (WebhookCommand::Configure(new), _) if new.topics.is_empty() => {
                Err(WebhookError::NoTopics)
            }
            (WebhookCommand::Configure(new), Some(known)) if new == *known => Ok(vec![]),
            (WebhookCommand::Configure(new), Some(_) | None) => {
                Ok(vec![WebhookEvent::Configured(new)])
            }
            (WebhookCommand::Delete, Some(_)) => Ok(vec![WebhookEvent::Deleted {}]),
            (WebhookCommand::Delete, None) => Err(WebhookError::Missing),
        }
    }

    fn evolve(&mut self, event: WebhookEvent) {
        self.settings = match event {
            WebhookEvent::Configured(settings) => Some(settings),
            WebhookEvent::Deleted {} => None,
        };
    }
}
