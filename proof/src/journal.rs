//! The chain of a runner's journal: change one entry and every later link changes.
//!
//! ```text
//! chain_0 = SHA-256("stead/journal/v1\n" ‖ journal id)
//! chain_n = SHA-256("stead/journal/entry/v1\n" ‖ chain_{n−1} ‖ entry n)
//! ```
//!
//! The entry's bytes are hashed as they were written, its number among them. Nobody else's hashes begin with these
//! words, so that a link is good for nothing else.
use crate::{Hash, sha256_of};

/// The type of a signed head: how many entries there are, and the link after the last of them.
pub const HEAD: &str = "application/vnd.stead.journal-head.v1+json";

/// The link before the first entry of a journal.
pub fn genesis(journal_id: &str) -> Hash {
    sha256_of(&[b"stead/journal/v1\n", journal_id.as_bytes()])
}

/// The link after one more entry.
pub fn next(previous: &Hash, entry: &[u8]) -> Hash {
    sha256_of(&[b"stead/journal/entry/v1\n", previous, entry])
}
