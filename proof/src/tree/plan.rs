//! Plans of proofs: the nodes that a proof is computed from.
use super::{Node, TreeError, empty_root, node_hash};
use crate::Hash;

/// Hashes of a proof: for each hash, the perfect subtrees from which it is folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofPlan(Vec<Vec<Node>>);

impl ProofPlan {
    /// Returns every node to fetch, in the order that [`ProofPlan::fold`] expects.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Returns the number of hashes in the proof.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the proof is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the proof from the hashes of [`ProofPlan::nodes`].
    ///
    /// # Errors
    /// [`TreeError::Length`] if there are more or fewer hashes than nodes.
    pub fn fold(&self, hashes: &[Hash]) -> Result<Vec<Hash>, TreeError> {
        let expected = self.nodes().count();
        if hashes.len() != expected {
            return Err(TreeError::Length { expected, found: hashes.len() });
        }
        let mut rest = hashes;
        let mut proof = Vec::with_capacity(self.0.len());
        for subtrees in &self.0 {
            let (own, others) = rest.split_at(subtrees.len());
            rest = others;
            let mut own = own.iter().rev();
            let last = own.next().copied().unwrap_or_else(empty_root);
            proof.push(own.fold(last, |right, left| node_hash(left, &right)));
        }
        Ok(proof)
    }
}

/// Returns the nodes whose fold is the root of a tree of that size (one hash).
pub fn root(size: u64) -> ProofPlan {
    ProofPlan(vec![perfect_nodes(0, size)])
}

/// Plans the proof that leaf `index` is in the tree of that size. The index is the event's position
/// − 1.
///
/// # Errors
/// [`TreeError::NoSuchLeaf`].
pub fn inclusion(index: u64, size: u64) -> Result<ProofPlan, TreeError> {
    if index >= size {
        return Err(TreeError::NoSuchLeaf { index, size });
    }
    let (mut from, mut to) = (0, size);
    let mut steps = Vec::new();
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            steps.push(perfect_nodes(middle, to));
            to = middle;
        } else {
            steps.push(perfect_nodes(from, middle));
            from = middle;
        }
    }
    steps.reverse();
    Ok(ProofPlan(steps))
}

/// Plans the proof that the tree of `new` leaves begins with the tree of `old` leaves. The proof is
/// empty if `old` is 0 or equal to `new`.
///
/// # Errors
/// [`TreeError::Shrunk`].
pub fn consistency(old: u64, new: u64) -> Result<ProofPlan, TreeError> {
    if old > new {
        return Err(TreeError::Shrunk { old, new });
    }
    if old == 0 || old == new {
        return Ok(ProofPlan(Vec::new()));
    }
    let (mut from, mut to) = (0, new);
    // If the old tree is one perfect subtree of the new tree, the proof omits its root. The
    // verifier already has this root.
    let mut is_known = true;
    let mut steps = Vec::new();
    while old != to {
        let middle = from + split(to - from);
        if old <= middle {
            steps.push(perfect_nodes(middle, to));
            to = middle;
        } else {
            steps.push(perfect_nodes(from, middle));
            from = middle;
            is_known = false;
        }
    }
    if !is_known {
        steps.push(perfect_nodes(from, to));
    }
    steps.reverse();
    Ok(ProofPlan(steps))
}

/// Returns the perfect subtrees that cover leaves `from..to`. `from` must be a multiple of the
/// largest subtree's size, which every split of a tree ensures.
pub(super) fn perfect_nodes(from: u64, to: u64) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut start = from;
    while start < to {
        let level = (to - start).ilog2() as u8;
        nodes.push(Node { level, index: start >> level });
        start += 1 << level;
    }
    nodes
}

/// Returns the largest power of two below a size of at least 2, where RFC 6962 splits.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}
