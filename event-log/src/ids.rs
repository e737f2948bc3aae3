//! Source of ids of events and logs.
use ulid::Ulid;

/// Returns a new ULID: the current time and random bits.
#[expect(clippy::disallowed_methods, reason = "this is the source that all other code uses")]
pub(crate) fn new_ulid() -> Ulid {
    Ulid::new()
}
