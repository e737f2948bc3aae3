//! A line of an export, taken into the range that it has to be of.
use proof::{
    Hash,
    bundle::{self, BundleError, Wrong},
    range::Range,
};
use schemas::control::audit::EventRecord;
use serde::Deserialize;

use super::verify::leaf_of;

/// Take the next line in. Every byte of it has to mean something: what is not in the leaf is compared with it.
///
/// # Errors
/// [`BundleError`].
pub fn take(range: &mut Range, line: &[u8]) -> Result<(), BundleError> {
    let position = range.next();
    let wrong = |wrong| BundleError::At { position, wrong };
    let event: EventRecord =
        serde_json::from_slice(line).map_err(|_| wrong(Wrong::Field("its line")))?;
    bundle::spelled(line, &event).map_err(|_| wrong(Wrong::Field("its line")))?;
    let actor: Actor = serde_json::from_str(event.metadata.get())
        .map_err(|_| wrong(Wrong::Field("its metadata")))?;
    // What somebody is called today is no part of the log.
    if event.actor != actor.actor || event.actor_name.is_some() {
        return Err(wrong(Wrong::Actor));
    }
    let hash = |text: &str| -> Option<Hash> { hex_of(text)?.try_into().ok() };
    let leaf = leaf_of(&event).map_err(|name| wrong(Wrong::Field(name)))?;
    let said = hash(&event.leaf).ok_or(wrong(Wrong::Field("leaf")))?;
    let link = hash(&event.chain).ok_or(wrong(Wrong::Field("chain")))?;
    range.take(&leaf, &said, &link)
}

/// Bytes in the one spelling that is written: a letter that was made large is a line that was changed.
pub(super) fn hex_of(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).ok().filter(|bytes| hex::encode(bytes) == text)
}

#[derive(Deserialize)]
struct Actor {
    #[serde(default)]
    actor: String,
}
