//! Verification that needs only bytes and public keys: no database, no clock, no network.
//!
//! ```text
//! event ─▶ leaf (SHA-256 over canonical bytes) ─┬─▶ chain: one hash over everything before
//!                                               └─▶ tree (RFC 6962) ─▶ root ─▶ checkpoint (signed note)
//!                                                     └─▶ inclusion and consistency proofs ─▶ bundle, range
//! manifest, grant ─▶ RFC 8785 JSON ─▶ DSSE envelope        plan file + summary ─▶ plan digest
//! runner report in an event ─▶ identity key at that position, signed statement
//! runner journal: entry ─▶ chain ─▶ head ─▶ DSSE envelope
//! ```
//!
//! These encodings never change. The test vectors in `tests/vectors` pin them.

#![warn(missing_docs)]

/// Leaf of an event, the data that the log hashes.
pub mod leaf;

/// Hash chain over the log.
pub mod chain;

/// RFC 6962 tree over the log: right edge, proofs, and their verification.
pub mod tree;

/// Signed tree heads: C2SP tlog-checkpoint in a signed note.
pub mod checkpoint;

/// Text form of a key that signs checkpoints.
pub mod key;

/// Offline proof bundles. A bundle has a checkpoint, events, and the proofs that the events are in
/// the log. It can also prove that no event of a stream is missing.
pub mod bundle;

/// Exports of a log range, verified against a checkpoint.
pub mod range;

/// DSSE envelopes: typed payloads with Ed25519 signatures.
pub mod dsse;

/// Canonical JSON, RFC 8785.
pub mod canonical;

/// Plan digests, which approvals cover.
pub mod plan;

/// Signed runner reports in the events of a log.
pub mod report;

/// Hash chain over a runner's journal.
pub mod journal;

/// Fault injection for tests.
#[cfg(feature = "fault-injection")]
pub mod fault_injection;

use sha2::{Digest, Sha256};

/// SHA-256 hash.
pub type Hash = [u8; 32];

/// Returns the SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Returns the text form of a hash: `sha256:` and 64 lower-case hexadecimal digits.
pub fn digest_text(hash: &Hash) -> String {
    format!("sha256:{}", hex::encode(hash))
}

/// Returns the SHA-256 of concatenated byte strings.
pub(crate) fn sha256_of(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
