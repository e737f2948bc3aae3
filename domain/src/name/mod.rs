//! A name belongs to one thing at a time. Its stream is `<kind>/<name>`, so that taking it and
//! making the thing is one commit, and the second to take it is refused by the log itself.
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

/// One name among things of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Name {
    /// The id of the thing that has it.
    pub owner: Option<String>,
    /// The id of the thing that had it last, for who looks for it by its old name.
    pub last: Option<String>,
}

/// The longest name there can be.
pub const LONGEST: usize = 63;

/// Whether a thing can be called this: lower-case letters, digits and `-` or `_` between them.
pub fn is_valid(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let edges = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    edges && name.len() <= LONGEST && name.bytes().all(|b| plain(b) || b == b'-' || b == b'_')
}

/// The id of the stream of a name.
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
            (NameCommand::Take { owner }, Some(known)) if *known == owner => Ok(vec![]),
            (NameCommand::Release { .. }, None) => Ok(vec![]),
            (NameCommand::Release { owner }, Some(known)) if *known == owner => {
                Ok(vec![NameEvent::Released { owner }])
            }
            (NameCommand::Take { .. } | NameCommand::Release { .. }, Some(known)) => {
                Err(NameError::Taken { owner: known.clone() })
            }
        }
    }

    fn evolve(&mut self, event: NameEvent) {
        match event {
            NameEvent::Taken { owner } => *self = Name { owner: Some(owner), last: None },
            NameEvent::Released { owner } => *self = Name { owner: None, last: Some(owner) },
        }
    }
}
