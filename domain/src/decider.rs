//! Interface of an aggregate: its state and two pure functions.
use std::fmt::Debug;

use bincode::{Decode, Encode};
use serde::{Serialize, de::DeserializeOwned};

use crate::{ids::InstallId, upcast::Upcaster};

/// Time in UTC. Events and rules use microsecond precision.
pub type Timestamp = chrono::DateTime<chrono::Utc>;

/// Immutable event. Its name in the log never changes.
pub trait Event: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync {
    /// Name in the log: `aggregate.verb_past`.
    fn name(&self) -> &'static str;
    /// Version of the payload format; the first is `"1"`.
    fn version(&self) -> &'static str;
    /// Conversions of older payload versions.
    const UPCASTERS: &'static [Upcaster] = &[];
}

/// Rules of an aggregate: `decide` turns a command into events, and `evolve` applies an event to
/// the state.
///
/// Snapshots use bincode's own derives. Several serde attributes of the states need a
/// self-describing format, and bincode is not one.
pub trait Decider:
    Default + Serialize + DeserializeOwned + Encode + Decode<()> + Clone + Send + Sync + 'static
{
    /// Aggregate type in the log.
    const NAME: &'static str;
    /// Commands that the aggregate handles.
    type Command: Send;
    /// Events that the aggregate emits.
    type Event: Event;
    /// Reasons to reject a command.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Handles a command and returns the events that it causes. An empty list means that the state
    /// already is as requested.
    fn decide(
        &self,
        command: Self::Command,
        now: Timestamp,
    ) -> Result<Vec<Self::Event>, Self::Error>;

    /// Applies an event. Must neither fail nor panic, because the event is already stored.
    fn evolve(&mut self, event: Self::Event);

    /// Returns the install that the aggregate belongs to, if the state contains it. Only an install
    /// derives this id from its own aggregate id.
    fn customer(&self, _id: &str) -> Option<InstallId> {
        None
    }
}
