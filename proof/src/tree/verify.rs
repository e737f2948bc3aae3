//! Verification of proofs, by the algorithms of RFC 9162 §2.1.3.2 and §2.1.4.2.
use super::{TreeError, consistency, inclusion, node_hash};
use crate::Hash;

/// Verifies that `leaf` is leaf `index` of the tree of `size` leaves with this root.
///
/// # Errors
/// [`TreeError`].
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: &Hash,
) -> Result<(), TreeError> {
    length(inclusion(index, size)?.len(), proof)?;
    let (mut node, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for sibling in proof {
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    same(&hash, root)
}

/// Verifies that the tree of `new` leaves begins with the tree of `old` leaves. Every tree is a
/// continuation of the empty one.
///
/// # Errors
/// [`TreeError`].
pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    new: u64,
    new_root: &Hash,
    proof: &[Hash],
) -> Result<(), TreeError> {
    length(consistency(old, new)?.len(), proof)?;
    if old == 0 {
        return Ok(());
    }
    if old == new {
        return same(old_root, new_root);
    }
    let (mut node, mut last) = (old - 1, new - 1);
    while node & 1 == 1 {
        node >>= 1;
        last >>= 1;
    }
    let mut hashes = proof.iter();
    // If the old size is a power of two, the root of the old tree is a node of the new tree.
    let first = if old.is_power_of_two() { Some(old_root) } else { hashes.next() };
    let Some(first) = first else { return Err(TreeError::Root) };
    let (mut from_old, mut from_new) = (*first, *first);
    for sibling in hashes {
        if node & 1 == 1 || node == last {
            from_old = node_hash(sibling, &from_old);
            from_new = node_hash(sibling, &from_new);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            from_new = node_hash(&from_new, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    same(&from_old, old_root)?;
    same(&from_new, new_root)
}

fn length(expected: usize, proof: &[Hash]) -> Result<(), TreeError> {
    if proof.len() == expected {
        Ok(())
    } else {
        Err(TreeError::Length { expected, found: proof.len() })
    }
}

fn same(found: &Hash, root: &Hash) -> Result<(), TreeError> {
    if found == root { Ok(()) } else { Err(TreeError::Root) }
}
