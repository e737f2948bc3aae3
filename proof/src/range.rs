//! A part of the log with every event of it: `from..=to`, as lines, behind one line that says what they have to come
//! to.
//!
//! ```text
//! edge (what is before `from`) + every event ──▶ root of the first `to` ── consistency ──▶ signed root
//! ```
use serde::{Deserialize, Serialize};

use crate::{
    Hash,
    bundle::{self, Base64, BundleError, Wrong},
    chain,
    checkpoint::Checkpoint,
    key::{Believed, VerifierKey},
    leaf::Leaf,
    tree::{Edge, TreeError, verify_consistency},
};

/// What the first line says that the file is.
pub const FORMAT: &str = "stead/export/v1";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`FORMAT`].
    pub format: String,
    /// The first position.
    pub from: u64,
    /// The last position.
    pub to: u64,
    /// The verifier key of the checkpoint. It is there to be recognised, not to be believed.
    pub signer: String,
    /// The C2SP signed note that everything leads to.
    pub checkpoint: String,
    /// The perfect subtrees that leaves `1..from` are made of, largest first.
    pub edge: Vec<Base64<Hash>>,
    /// RFC 6962 consistency proof from `to` to the checkpoint's size.
    pub consistency: Vec<Base64<Hash>>,
    /// The chain's link before `from`. The checkpoint does not cover it: with `from` 1 it is computed, else it is not
    /// proven.
    pub chain: Base64<Hash>,
}

/// Takes in every event of a range, in order.
#[derive(Debug)]
pub struct Range {
    head: Head,
    checkpoint: Checkpoint,
    signer: VerifierKey,
    other_signatures: usize,
    kept: Option<Checkpoint>,
    met: Option<bool>,
    edge: Edge,
    chain: Hash,
    time: i64,
}

/// What a range proves, under the keys that were believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// The first position.
    pub from: u64,
    /// The last position.
    pub to: u64,
    /// The log at the moment of the export.
    pub checkpoint: Checkpoint,
    /// Who signed that.
    pub signer: VerifierKey,
    /// Signatures of the note by others, of which nothing is known.
    pub other_signatures: usize,
    /// The checkpoint that was kept elsewhere: it is of the same log.
    pub kept: Option<Checkpoint>,
}

impl Head {
    /// Read the first line.
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
        bundle::spelled(line, &head)?;
        Ok(head)
    }

    /// How many events follow, as it says.
    pub fn count(&self) -> u64 {
        self.to.saturating_sub(self.from).saturating_add(1)
    }
}

impl Range {
    /// Before the first event. `kept` is the text of a checkpoint that was kept elsewhere.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn begin(head: Head, keys: &[Believed], kept: Option<&str>) -> Result<Range, BundleError> {
        let (checkpoint, signer, other_signatures) =
            bundle::opened(&head.checkpoint, &head.signer, keys)?;
        let (from, to, size) = (head.from, head.to, checkpoint.size);
        if from == 0 || to < from || to > size {
            let why = format!("there are no positions {from} to {to} in a log of {size}");
            return Err(BundleError::Unreadable(why));
        }
        let named = [signer.clone()].into_iter();
        let kept = kept.map(|note| bundle::kept(note, &checkpoint, named, keys)).transpose()?;
        let before = head.edge.iter().map(|hash| hash.0).collect();
        let edge = Edge::of(from - 1, before).ok_or(BundleError::Root { from, to })?;
        let chain = head.chain.0;
        if from == 1 && chain != chain::genesis(&checkpoint.log_id) {
            return Err(BundleError::at(1, Wrong::Chain));
        }
        let met = bundle::meets(&edge, kept.as_ref());
        let time = i64::MIN;
        Ok(Range { head, checkpoint, signer, other_signatures, kept, met, edge, chain, time })
    }

    /// The next position.
    pub fn next(&self) -> u64 {
        self.edge.size() + 1
    }

    /// The last position.
    pub fn to(&self) -> u64 {
        self.head.to
    }

    /// Take the next event in: its leaf, and what its line says of leaf and chain.
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
            return Err(wrong(Wrong::Missing(leaf.position)));
        }
        if leaf.hash() != *hash {
            return Err(wrong(Wrong::Leaf));
        }
        self.chain = chain::next(&self.chain, hash);
        if self.chain != *link {
            return Err(wrong(Wrong::Chain));
        }
        if leaf.recorded_at_us < self.time {
            return Err(wrong(Wrong::Time));
        }
        self.time = leaf.recorded_at_us;
        self.edge.push(*hash, |_, _| {});
        self.met = self.met.or(bundle::meets(&self.edge, self.kept.as_ref()));
        Ok(())
    }

    /// After the last event: whether all of it makes the signed root.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn end(self) -> Result<Proven, BundleError> {
        let (from, to, size) = (self.head.from, self.head.to, self.checkpoint.size);
        let found = self.edge.size() + 1 - from;
        let expected = self.head.count();
        if found != expected {
            return Err(BundleError::Count { from, size: to, expected, found });
        }
        let path: Vec<Hash> = self.head.consistency.iter().map(|hash| hash.0).collect();
        verify_consistency(to, &self.edge.root(), size, &self.checkpoint.root, &path)
            .map_err(|_| BundleError::Root { from, to })?;
        if let Some(kept) = &self.kept {
            let rewritten = Err(BundleError::Rewritten { size: kept.size, why: TreeError::Root });
            match self.met {
                Some(true) => {}
                Some(false) => return rewritten,
                None if kept.size == size && kept.root == self.checkpoint.root => {}
                None if kept.size == size => return rewritten,
                None if kept.size == 0 => {}
                None => {
                    let remedy = "export positions that begin at or before it and reach it";
                    return Err(BundleError::Uncompared { kept: kept.size, size, remedy });
                }
            }
        }
        let Range { checkpoint, signer, other_signatures, kept, .. } = self;
        Ok(Proven { from, to, checkpoint, signer, other_signatures, kept })
    }
}
