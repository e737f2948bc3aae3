//! What anyone can verify with nothing but bytes and public keys: no database, no clock, no network.
//!
//! ```text
//! event ─▶ leaf (SHA-256 over canonical bytes) ─┬─▶ chain: one hash over everything before
//!                                               └─▶ tree (RFC 6962) ─▶ root ─▶ checkpoint (signed note)
//!                                                     └─▶ inclusion and consistency proofs ─▶ bundle, range
//! manifest, grant ─▶ RFC 8785 JSON ─▶ DSSE envelope        plan file + summary ─▶ plan digest
//! a runner's report in an event ─▶ its key there, what it signed
//! a runner's journal: entry ─▶ chain ─▶ head ─▶ DSSE envelope
//! ```
//!
//! None of these bytes may ever change: `tests/vectors` holds what they are.

/// What the log hashes of one event.
pub mod leaf;

/// One hash over everything up to a position.
pub mod chain;

/// The RFC 6962 tree over the whole log: right edge, proofs, their verification.
pub mod tree;

/// A signed tree head: C2SP tlog-checkpoint in a signed note.
pub mod checkpoint;

/// How a key that signs checkpoints is written down.
pub mod key;

/// What is handed to somebody who has no server: a checkpoint, events, and what proves that they are in the log and
/// that none of a stream is missing.
pub mod bundle;

/// A part of the log, every event of it, against a checkpoint.
pub mod range;

/// Signed bytes with a type: DSSE envelopes.
pub mod dsse;

/// JSON in its one spelling: RFC 8785.
pub mod canonical;

/// What a person approves: the digest of a plan.
pub mod plan;

/// What runners signed of their work, in the events of a log.
pub mod report;

/// One hash over everything that a runner wrote down up to an entry.
pub mod journal;

/// Mistakes made on purpose, in builds for tests.
#[cfg(feature = "planted")]
pub mod planted;

use sha2::{Digest, Sha256};

/// A SHA-256.
pub type Hash = [u8; 32];

/// The SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// A hash as everything outside this crate writes it: `sha256:` and 64 digits in lower case.
pub fn digest_text(hash: &Hash) -> String {
    format!("sha256:{}", hex::encode(hash))
}

/// The SHA-256 of several byte strings, one after the other.
pub(crate) fn sha256_of(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
