//! The RFC 6962 tree over the whole log.
//!
//! The writer keeps only the right edge, one hash per bit of the size. Proofs are planned here as lists of
//! perfect subtrees ([`Node`]), so that whoever holds the nodes can fetch them in one go, and folded here.
use crate::{Hash, sha256, sha256_of};

mod edge;
mod plan;
mod verify;

pub use edge::Edge;
pub use plan::{ProofPlan, consistency, inclusion, root};
pub use verify::{verify_consistency, verify_inclusion};

/// A perfect subtree: `2^level` leaves from leaf `index × 2^level` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// 0 is a leaf.
    pub level: u8,
    /// Its place among the nodes of its level, from 0.
    pub index: u64,
}

/// Why a proof was not planned, or does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// It asks for something outside the tree.
    #[error("there is no leaf {index} in a tree of {size}")]
    NoSuchLeaf { index: u64, size: u64 },
    /// A tree cannot shrink.
    #[error("a tree of {new} cannot follow a tree of {old}")]
    Shrunk { old: u64, new: u64 },
    /// It has too many or too few hashes for these sizes.
    #[error("the proof has {found} hashes, not {expected}")]
    Length { expected: usize, found: usize },
    /// It leads to another root: the tree is not the one that was claimed.
    #[error("the proof does not lead to the root")]
    Root,
}

/// The hash of an entry.
pub fn leaf_hash(entry: &[u8]) -> Hash {
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::UnprefixedLeaf) {
        return sha256(entry);
    }
    sha256_of(&[&[0x00], entry])
}

/// The hash of an inner node.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256_of(&[&[0x01], left, right])
}

/// The root of a tree without leaves.
pub fn empty_root() -> Hash {
    sha256(b"")
}

/// The hash of a perfect subtree from all nodes of one lower level, in order. `None` unless their number is
/// a power of two.
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
