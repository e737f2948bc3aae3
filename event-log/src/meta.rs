//! Who asked, and why: the flat text beside every event.
use domain::actor::Actor;
use serde::{Deserialize, Serialize};

/// The metadata of the events of one commit. Pseudonymous: no name of a person, no address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Who decided.
    pub actor: Actor,
    /// Which command.
    pub command_id: String,
    /// The event or command that this is a consequence of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// What all consequences of one request have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The route of the API that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The program that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

impl Meta {
    /// The least that must be known.
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
