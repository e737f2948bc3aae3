//! What every aggregate is: a state, and two pure functions.
use std::fmt::Debug;

use bincode::{Decode, Encode};
use serde::{Serialize, de::DeserializeOwned};

use crate::{ids::InstallId, upcast::Upcaster};

/// A moment in UTC. Events and rules know it to the microsecond.
pub type Timestamp = chrono::DateTime<chrono::Utc>;

/// A fact, kept for ever under a name that never changes.
pub trait Event: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync {
    /// `aggregate.verb_past`: what the log calls it.
    fn name(&self) -> &'static str;
    /// Which shape the payload has, `"1"` first.
    fn version(&self) -> &'static str;
    /// How what was written in older words is read.
    const UPCASTERS: &'static [Upcaster] = &[];
}

/// The rules: what a command means in a state, and what a fact does to it.
///
/// A state is kept as a snapshot by bincode's own derives: they do not look at serde's attributes, of which some need
/// a format that describes itself.
pub trait Decider:
    Default + Serialize + DeserializeOwned + Encode + Decode<()> + Clone + Send + Sync + 'static
{
    /// The aggregate type, as the log writes it.
    const NAME: &'static str;
    /// What may be asked.
    type Command: Send;
    /// What can have happened.
    type Event: Event;
    /// Why it may be refused.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Answer a command with the facts it makes true. Empty: it is already so.
    fn decide(
        &self,
        command: Self::Command,
        now: Timestamp,
    ) -> Result<Vec<Self::Event>, Self::Error>;

    /// Take in a fact. Never refuses and never panics: it has already happened.
    fn evolve(&mut self, event: Self::Event);

    /// Whose install it is about, once it is known; its own id says so only of an install itself.
    fn customer(&self, _id: &str) -> Option<InstallId> {
        None
    }
}
