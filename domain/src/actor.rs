//! Actor of a command, which the log records with every event.
use std::{fmt, str::FromStr};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::ids::{PrincipalId, RunnerId};

/// Actor of a command, serialized as text: `prn_…`, `rnr_…`, `policy:<name>`, `timer:<name>` or
/// `system`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(try_from = "String", into = "String")]
pub enum Actor {
    /// User or service, authenticated by an API token.
    Principal(PrincipalId),
    /// Runner, authenticated by its identity key.
    Runner(RunnerId),
    /// Built-in policy, by name.
    Policy(String),
    /// Timer that elapsed, by name.
    Timer(String),
    /// The server itself, for example at its first start.
    System,
}

/// Text that is not a valid actor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid actor {0:?}: expected prn_…, rnr_…, policy:<name>, timer:<name> or system")]
pub struct ActorError(String);

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Principal(id) => write!(f, "{id}"),
            Actor::Runner(id) => write!(f, "{id}"),
            Actor::Policy(name) => write!(f, "policy:{name}"),
            Actor::Timer(name) => write!(f, "timer:{name}"),
            Actor::System => f.write_str("system"),
        }
    }
}

impl FromStr for Actor {
    type Err = ActorError;
    fn from_str(text: &str) -> Result<Self, ActorError> {
        let named = |prefix| text.strip_prefix(prefix).filter(|name: &&str| !name.is_empty());
        if let Some(name) = named("policy:") {
            Ok(Actor::Policy(name.into()))
        } else if let Some(name) = named("timer:") {
            Ok(Actor::Timer(name.into()))
        } else if text == "system" {
            Ok(Actor::System)
        } else if let Ok(id) = text.parse() {
            Ok(Actor::Principal(id))
        } else {
            text.parse().map(Actor::Runner).map_err(|_| ActorError(text.into()))
        }
    }
}

impl TryFrom<String> for Actor {
    type Error = ActorError;
    fn try_from(text: String) -> Result<Self, ActorError> {
        text.parse()
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> String {
        actor.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_parses_from_its_text() {
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for text in [&format!("prn_{id}"), &format!("rnr_{id}"), "policy:x", "timer:y", "system"] {
            assert_eq!(text.parse::<Actor>().unwrap().to_string(), *text);
        }
        for other in ["", "policy:", "ann", &format!("job_{id}")] {
            assert!(other.parse::<Actor>().is_err(), "{other}");
        }
    }
}
