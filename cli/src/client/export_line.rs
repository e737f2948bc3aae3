//! Verifies lines of an export against their range.
use proof::{
    Hash,
    bundle::{self, BundleError, PositionError},
    range::Range,
};
use schemas::control::audit::EventRecord;
use serde::Deserialize;

use super::verify::leaf_of;

/// Adds the next line to the range. Checks every byte: compares the fields outside of the leaf with
/// the fields in the leaf.
///
/// # Errors
///
/// [`BundleError::At`] if the line is not the expected event.
pub fn take_exported_line(range: &mut Range, line: &[u8]) -> Result<(), BundleError> {
    let position = range.next();
    let wrong = |wrong| BundleError::At { position, wrong };
    let event: EventRecord =
        serde_json::from_slice(line).map_err(|_| wrong(PositionError::Field("its line")))?;
    bundle::check_canonical(line, &event).map_err(|_| wrong(PositionError::Field("its line")))?;
    let actor: Actor = serde_json::from_str(event.metadata.get())
        .map_err(|_| wrong(PositionError::Field("its metadata")))?;
    // The current display name is not part of the log.
    if event.actor != actor.actor || event.actor_name.is_some() {
        return Err(wrong(PositionError::Actor));
    }
    let hash = |text: &str| -> Option<Hash> { hex_of(text)?.try_into().ok() };
    let leaf = leaf_of(&event).map_err(|name| wrong(PositionError::Field(name)))?;
    let leaf_hash = hash(&event.leaf).ok_or(wrong(PositionError::Field("leaf")))?;
    let link = hash(&event.chain).ok_or(wrong(PositionError::Field("chain")))?;
    range.take(&leaf, &leaf_hash, &link)
}

/// Decodes lower-case hexadecimal digits. Rejects other spellings, because a changed line must not
/// pass.
pub(super) fn hex_of(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).ok().filter(|bytes| hex::encode(bytes) == text)
}

#[derive(Deserialize)]
struct Actor {
    #[serde(default)]
    actor: String,
}
