//! Right edge of a growing tree, the only state that a writer needs.
use super::{Node, empty_root, node_hash};
use crate::Hash;

/// Perfect subtrees that cover a tree, largest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edge {
    size: u64,
    /// One hash per set bit of `size`, largest subtree first.
    hashes: Vec<Hash>,
}

impl Edge {
    /// Returns an edge from the hashes of [`Edge::nodes`] of that size. Returns `None` if the
    /// number of hashes is wrong.
    pub fn of(size: u64, hashes: Vec<Hash>) -> Option<Edge> {
        (hashes.len() == size.count_ones() as usize).then_some(Edge { size, hashes })
    }

    /// Returns the perfect subtrees that cover a tree of that size, largest first.
    pub fn nodes(size: u64) -> Vec<Node> {
        super::plan::perfect_nodes(0, size)
    }

    /// Returns the number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf, and calls `completed` for every inner node that the leaf completes.
    pub fn push(&mut self, leaf: Hash, completed: impl FnMut(Node, &Hash)) {
        self.join(0, leaf, completed);
    }

    /// Appends a perfect subtree as if its leaves had been pushed one by one. Calls `completed` for
    /// every larger subtree that the append completes. Returns false and appends nothing if the
    /// size is not a multiple of `2^level`.
    pub fn join(
        &mut self,
        level: u8,
        subtree: Hash,
        mut completed: impl FnMut(Node, &Hash),
    ) -> bool {
        let Some(leaves) =
            1u64.checked_shl(level.into()).filter(|all| self.size.is_multiple_of(*all))
        else {
            return false;
        };
        let (mut hash, mut level, mut rest) = (subtree, level, self.size / leaves);
        while rest & 1 == 1 {
            let Some(left) = self.hashes.pop() else { break };
            hash = node_hash(&left, &hash);
            level += 1;
            rest >>= 1;
            completed(Node { level, index: rest }, &hash);
        }
        self.hashes.push(hash);
        self.size += leaves;
        true
    }

    /// Returns the root over all leaves so far.
    pub fn root(&self) -> Hash {
        let mut hashes = self.hashes.iter().rev();
        match hashes.next() {
            None => empty_root(),
            Some(last) => hashes.fold(*last, |right, left| node_hash(left, &right)),
        }
    }
}
