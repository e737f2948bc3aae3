//! RFC 6962 tree over the log.
//!
//! The writer keeps only the right edge, one hash per set bit of the size. A proof is first planned
//! as lists of perfect subtrees ([`Node`]). The caller can fetch these nodes with one query, and
//! the plan folds them into the proof.
use crate::{Hash, sha256, sha256_of};

mod edge;
mod plan;
mod verify;

pub use edge::Edge;
pub use plan::{ProofPlan, consistency, inclusion, root};
pub use verify::{verify_consistency, verify_inclusion};

/// Perfect subtree: `2^level` leaves from leaf `index × 2^level` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// Level, 0 for a leaf.
    pub level: u8,
    /// Index among the nodes of its level, from 0.
    pub index: u64,
}

/// Failure to plan or verify a proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The leaf is outside the tree.
    #[error("leaf {index} is not in a tree of {size} leaves")]
    NoSuchLeaf {
        /// Index of the leaf, from 0.
        index: u64,
        /// Number of leaves in the tree.
        size: u64,
    },
    /// The new tree is smaller than the old one.
    #[error("the new tree has {new} leaves, fewer than the {old} of the old tree")]
    Shrunk {
        /// Number of leaves in the old tree.
        old: u64,
        /// Number of leaves in the new tree.
        new: u64,
    },
    /// The proof has too many or too few hashes for these sizes.
    #[error("the proof has {found} hashes, not {expected}")]
    Length {
        /// Number of hashes that the sizes require.
        expected: usize,
        /// Number of hashes in the proof.
        found: usize,
    },
    /// The computed root is another one, so the tree is not the expected one.
    #[error("the computed root differs from the expected root")]
    Root,
}

/// Returns the hash of an entry.
pub fn leaf_hash(entry: &[u8]) -> Hash {
    #[cfg(feature = "fault-injection")]
    if crate::fault_injection::has(crate::fault_injection::Fault::UnprefixedLeaf) {
        return sha256(entry);
    }
    sha256_of(&[&[0x00], entry])
}

/// Returns the hash of an inner node.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256_of(&[&[0x01], left, right])
}

/// Returns the root of a tree without leaves.
pub fn empty_root() -> Hash {
    sha256(b"")
}

/// Returns the hash of a perfect subtree from all its nodes of one level, in order. Returns `None`
/// unless their number is a power of two.
pub fn perfect(nodes: &[Hash]) -> Option<Hash> {
    if !nodes.len().is_power_of_two() {
        return None;
    }
    let mut level = nodes.to_vec();
    while level.len() > 1 {
        level = level.chunks_exact(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
    }
    level.pop()
}
