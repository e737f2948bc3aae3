//! A name has one owner at a time. Its stream id is `<kind>/<name>`.
//!
//! One commit takes the name and creates its owner. If two commits take a name concurrently, the
//! log rejects the second.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::decider::{Decider, Timestamp};

mod command;
mod error;
mod event;
#[cfg(test)]
mod tests;
pub use command::NameCommand;
pub use error::NameError;
pub use event::NameEvent;

/// Unique name of an object of one kind, such as an install.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Name {
    /// Id of the current owner. `None` while the name is free.
    pub owner: Option<String>,
    /// Id of the former owner of a free name, to find an object by its released name.
    pub last_owner: Option<String>,
}

/// Maximum length of a name in bytes.
pub const MAX_LENGTH: usize = 63;

/// Returns true if a name is valid: 1 to [`MAX_LENGTH`] lower-case ASCII letters, digits, `-` and
/// `_`. The first and the last character are letters or digits.
pub fn is_valid(name: &str) -> bool {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let has_valid_ends = name.bytes().next().is_some_and(is_alphanumeric)
        && name.bytes().last().is_some_and(is_alphanumeric);
    has_valid_ends
        && name.len() <= MAX_LENGTH
        && name.bytes().all(|b| is_alphanumeric(b) || b == b'-' || b == b'_')
}

/// Returns the stream id of a name.
pub fn stream(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

impl Decider for Name {
    const NAME: &'static str = "name";
    type Command = NameCommand;
    type Event = NameEvent;
    type Error = NameError;

    fn decide(&self, command: NameCommand, _now: Timestamp) -> Result<Vec<NameEvent>, NameError> {
        match (command, &self.owner) {
            (NameCommand::Take { owner }, None) => Ok(vec![NameEvent::Taken { owner }]),
            (NameCommand::Take { owner }, Some(current)) if *current == owner => Ok(vec![]),
            (NameCommand::Release { .. }, None) => Ok(vec![]),
            (NameCommand::Release { owner }, Some(current)) if *current == owner => {
                Ok(vec![NameEvent::Released { owner }])
            }
            (NameCommand::Take { .. } | NameCommand::Release { .. }, Some(current)) => {
                Err(NameError::Taken { owner: current.clone() })
            }
        }
    }

    fn evolve(&mut self, event: NameEvent) {
        match event {
            NameEvent::Taken { owner } => *self = Name { owner: Some(owner), last_owner: None },
            NameEvent::Released { owner } => *self = Name { owner: None, last_owner: Some(owner) },
        }
    }
}
