//! Source of ids. Aggregates and policies receive ids in commands and never generate them.
use ulid::Ulid;

/// Returns a new ULID: the current time and random bits.
#[expect(clippy::disallowed_methods, reason = "this is the source that all other code uses")]
pub fn new_ulid() -> Ulid {
    Ulid::new()
}
