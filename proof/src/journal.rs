//! Hash chain of a runner's journal: a change of one entry changes every later link.
//!
//! ```text
//! chain_0 = SHA-256("stead/journal/v1\n" ‖ journal id)
//! chain_n = SHA-256("stead/journal/entry/v1\n" ‖ chain_{n−1} ‖ entry n)
//! ```
//!
//! The entry's bytes are hashed as written, including its number. No other hashed text in Stead
//! begins with these prefixes, so a link cannot serve as another hash.
use crate::{Hash, sha256_of};

/// DSSE payload type of a signed journal head: the number of entries, and the link after the last
/// one.
pub const HEAD: &str = "application/vnd.stead.journal-head.v1+json";

/// Returns the link before the first entry of a journal.
pub fn genesis(journal_id: &str) -> Hash {
    sha256_of(&[b"stead/journal/v1\n", journal_id.as_bytes()])
}

/// Returns the link after one more entry.
pub fn next(previous: &Hash, entry: &[u8]) -> Hash {
    sha256_of(&[b"stead/journal/entry/v1\n", previous, entry])
}
