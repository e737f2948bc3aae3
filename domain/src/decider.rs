//! Interface of an aggregate: its state and two pure functions.
use std::fmt::Debug;

use bincode::{Decode, Encode};
use serde::{Serialize, de::DeserializeOwned};

use crate::{ids::InstallId, upcast::Upcaster};

/// Time in UTC. The clock of the server truncates it to microseconds, the precision of events.
pub type Timestamp = chrono::DateTime<chrono::Utc>;

/// Immutable event. The log stores its name, which therefore never changes.
pub trait Event: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync {
    /// Returns the event type in the log, in the form `aggregate.verb_past`.
    fn name(&self) -> &'static str;
    /// Returns the version of the payload format. The first version is `"1"`.
    fn version(&self) -> &'static str;
    /// Conversions of older payload versions, in chronological order.
    const UPCASTERS: &'static [Upcaster] = &[];
}

/// Rules of an aggregate: `decide` turns a command into events, and `evolve` applies an event to
/// the state.
///
/// Snapshots use bincode's own derives instead of serde. Several serde attributes of the states
/// work only in self-describing formats, and bincode is not self-describing.
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

    /// Handles a command and returns the resulting events. An empty list means that the command
    /// changes nothing, for example because it is a repetition.
    fn decide(
        &self,
        command: Self::Command,
        now: Timestamp,
    ) -> Result<Vec<Self::Event>, Self::Error>;

    /// Applies an event. An implementation must not panic, because every load applies the stored
    /// events again.
    fn evolve(&mut self, event: Self::Event);

    /// Returns the install of the customer that the aggregate belongs to. `_id` is the id of the
    /// aggregate; only an install needs it, because the other states contain the install's id.
    fn customer(&self, _id: &str) -> Option<InstallId> {
        None
    }
}
