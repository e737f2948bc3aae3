//! Exports of a log range: every event of `from..=to`, one per line, after a first line with the
//! proof.
//!
//! ```text
//! edge (everything before `from`) + every event ──▶ root of the first `to` ── consistency ──▶ signed root
//! ```
use serde::{Deserialize, Serialize};

use crate::{
    Hash,
    bundle::{self, Base64, BundleError, PositionError},
    chain,
    checkpoint::Checkpoint,
    key::{TrustedKey, VerifierKey},
    leaf::Leaf,
    tree::{Edge, TreeError, verify_consistency},
};

/// Value of [`Head::format`].
pub const FORMAT: &str = "stead/export/v1";

/// First line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Format, always [`FORMAT`].
    pub format: String,
    /// First exported position, from 1.
    pub from: u64,
    /// Last exported position, inclusive.
    pub to: u64,
    /// Verifier key of the checkpoint. It names the signer, but does not make the signer trusted.
    pub signer: String,
    /// C2SP signed note with the root that all proofs are verified against.
    pub checkpoint: String,
    /// Hashes of the perfect subtrees that cover leaves `1..from`, largest first.
    pub edge: Vec<Base64<Hash>>,
    /// RFC 6962 consistency proof from `to` to the checkpoint's size.
    pub consistency: Vec<Base64<Hash>>,
    /// Chain link before `from`. If `from` is 1, the link must be the genesis link. Otherwise the
    /// link is unproven, because the checkpoint does not cover the chain.
    pub chain: Base64<Hash>,
}

/// Verifier of a range, which takes its events in order.
#[derive(Debug)]
pub struct Range {
    head: Head,
    checkpoint: Checkpoint,
    signer: VerifierKey,
    other_signatures: usize,
    stored: Option<Checkpoint>,
    matched: Option<bool>,
    edge: Edge,
    chain: Hash,
    time: i64,
}

/// Properties of the log that a range proves, under the trusted keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedRange {
    /// First exported position, from 1.
    pub from: u64,
    /// Last exported position, inclusive.
    pub to: u64,
    /// Signed checkpoint in the export.
    pub checkpoint: Checkpoint,
    /// Key that signed the checkpoint.
    pub signer: VerifierKey,
    /// Number of signatures on the note that are not from the signer.
    pub other_signatures: usize,
    /// Checkpoint from another source, if the caller passed one. It belongs to the same log.
    pub stored: Option<Checkpoint>,
}

impl Head {
    /// Parses the first line.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn read(line: &[u8]) -> Result<Head, BundleError> {
        let unreadable = |error: serde_json::Error| BundleError::Unreadable(error.to_string());
        let head: Head = serde_json::from_slice(line).map_err(unreadable)?;
        if head.format != FORMAT {
            let other = format!("its format is {:?}, not {FORMAT:?}", head.format);
            return Err(BundleError::Unreadable(other));
        }
        bundle::check_canonical(line, &head)?;
        Ok(head)
    }

    /// Returns the number of events that follow, according to the first line.
    pub fn count(&self) -> u64 {
        self.to.saturating_sub(self.from).saturating_add(1)
    }
}

impl Range {
    /// Starts the verification. `stored` is the text of a checkpoint from another source, which
    /// must belong to this log.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn begin(
        head: Head,
        keys: &[TrustedKey],
        stored: Option<&str>,
    ) -> Result<Range, BundleError> {
        let (checkpoint, signer, other_signatures) =
            bundle::opened(&head.checkpoint, &head.signer, keys)?;
        let (from, to, size) = (head.from, head.to, checkpoint.size);
        if from == 0 || to < from || to > size {
            let why = format!("positions {from} to {to} are not in a log of {size} events");
            return Err(BundleError::Unreadable(why));
        }
        let named = [signer.clone()].into_iter();
        let stored =
            stored.map(|note| bundle::open_stored(note, &checkpoint, named, keys)).transpose()?;
        let before = head.edge.iter().map(|hash| hash.0).collect();
        let edge = Edge::of(from - 1, before).ok_or(BundleError::Root { from, to })?;
        let chain = head.chain.0;
        if from == 1 && chain != chain::genesis(&checkpoint.log_id) {
            return Err(BundleError::at(1, PositionError::Chain));
        }
        let matched = bundle::root_matches(&edge, stored.as_ref());
        let time = i64::MIN;
        Ok(Range { head, checkpoint, signer, other_signatures, stored, matched, edge, chain, time })
    }

    /// Returns the next expected position.
    pub fn next(&self) -> u64 {
        self.edge.size() + 1
    }

    /// Returns the last position of the range.
    pub fn to(&self) -> u64 {
        self.head.to
    }

    /// Verifies the next event: its leaf, and the leaf hash and chain link of the event's line.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn take(&mut self, leaf: &Leaf<'_>, hash: &Hash, link: &Hash) -> Result<(), BundleError> {
        let (position, to) = (self.next(), self.head.to);
        if position > to {
            let (from, expected) = (self.head.from, self.head.count());
            return Err(BundleError::Count { from, size: to, expected, found: expected + 1 });
        }
        let wrong = |wrong| BundleError::at(position, wrong);
        if leaf.position != position {
            return Err(wrong(PositionError::Missing(leaf.position)));
        }
        if leaf.hash() != *hash {
            return Err(wrong(PositionError::Leaf));
        }
        self.chain = chain::next(&self.chain, hash);
        if self.chain != *link {
            return Err(wrong(PositionError::Chain));
        }
        if leaf.recorded_at_us < self.time {
            return Err(wrong(PositionError::Time));
        }
        self.time = leaf.recorded_at_us;
        self.edge.push(*hash, |_, _| {});
        self.matched = self.matched.or(bundle::root_matches(&self.edge, self.stored.as_ref()));
        Ok(())
    }

    /// Verifies that all events together lead to the signed root.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn end(self) -> Result<VerifiedRange, BundleError> {
        let (from, to, size) = (self.head.from, self.head.to, self.checkpoint.size);
        let found = self.edge.size() + 1 - from;
        let expected = self.head.count();
        if found != expected {
            return Err(BundleError::Count { from, size: to, expected, found });
        }
        let path: Vec<Hash> = self.head.consistency.iter().map(|hash| hash.0).collect();
        verify_consistency(to, &self.edge.root(), size, &self.checkpoint.root, &path)
            .map_err(|_| BundleError::Root { from, to })?;
        if let Some(stored) = &self.stored {
            let rewritten = Err(BundleError::Rewritten { size: stored.size, why: TreeError::Root });
            match self.matched {
                Some(true) => {}
                Some(false) => return rewritten,
                None if stored.size == size && stored.root == self.checkpoint.root => {}
                None if stored.size == size => return rewritten,
                None if stored.size == 0 => {}
                None => {
                    let remedy = "export a range that includes it";
                    return Err(BundleError::Uncompared { stored: stored.size, size, remedy });
                }
            }
        }
        let Range { checkpoint, signer, other_signatures, stored, .. } = self;
        Ok(VerifiedRange { from, to, checkpoint, signer, other_signatures, stored })
    }
}
