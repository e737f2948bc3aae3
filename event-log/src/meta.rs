//! Metadata of events: the actor and the cause of each event.
use domain::actor::Actor;
use serde::{Deserialize, Serialize};

/// Metadata of the events of one commit. It is pseudonymous: it contains neither names nor
/// addresses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Actor that caused the commit.
    pub actor: Actor,
    /// Id of the command that caused the commit.
    pub command_id: String,
    /// Id of the event that a policy reacted to with this commit. `None` for other commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Id that all effects of one request share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Route of the API call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Client of the API call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

impl Meta {
    /// Creates metadata with the required fields only.
    pub fn new(actor: Actor, command_id: impl Into<String>) -> Meta {
        Meta {
            actor,
            command_id: command_id.into(),
            causation_id: None,
            correlation_id: None,
            traceparent: None,
            route: None,
            client: None,
        }
    }
}
