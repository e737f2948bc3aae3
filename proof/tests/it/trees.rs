//! Properties of trees of any size.

use std::collections::BTreeMap;

use proof::{
    Hash, sha256,
    tree::{self, Edge, Node, TreeError},
};
use proptest::prelude::*;

/// Tree that stores all nodes.
struct Grown {
    roots: Vec<Hash>,
    nodes: BTreeMap<Node, Hash>,
}

impl Grown {
    fn to(size: u64) -> Grown {
        let mut edge = Edge::default();
        let mut grown = Grown { roots: vec![edge.root()], nodes: BTreeMap::new() };
        for index in 0..size {
            let leaf = sha256(&index.to_be_bytes());
            grown.nodes.insert(Node { level: 0, index }, leaf);
            edge.push(leaf, |node, hash| {
                grown.nodes.insert(node, *hash);
            });
            grown.roots.push(edge.root());
        }
        grown
    }

    fn fold(&self, plan: &tree::ProofPlan) -> Vec<Hash> {
        plan.fold(&plan.nodes().map(|node| self.nodes[&node]).collect::<Vec<_>>()).unwrap()
    }
}

proptest! {
    #[test]
    fn a_proof_is_valid_only_for_its_tree(size in 1u64..600, index in 0u64..600, flip in 0usize..40) {
        let index = index % size;
        let grown = Grown::to(size);
        let leaf = grown.nodes[&Node { level: 0, index }];
        let mut proof = grown.fold(&tree::inclusion(index, size).unwrap());
        let root = grown.roots[size as usize];
        prop_assert_eq!(tree::verify_inclusion(&leaf, index, size, &proof, &root), Ok(()));
        prop_assert!(tree::verify_inclusion(&sha256(b"other"), index, size, &proof, &root).is_err());
        prop_assert!(tree::verify_inclusion(&leaf, index, size, &proof, &sha256(b"other")).is_err());
        if size > 1 {
            prop_assert!(tree::verify_inclusion(&leaf, (index + 1) % size, size, &proof, &root).is_err());
            let at = flip % proof.len();
            proof[at][0] ^= 1;
            prop_assert!(tree::verify_inclusion(&leaf, index, size, &proof, &root).is_err());
            proof.pop();
            let short = tree::verify_inclusion(&leaf, index, size, &proof, &root);
            let is_short = matches!(short, Err(TreeError::Length { .. }));
            prop_assert!(is_short);
        }
    }

    #[test]
    fn a_tree_is_consistent_only_with_its_prefixes(new in 1u64..600, old in 0u64..600) {
        let old = old % (new + 1);
        let grown = Grown::to(new);
        let proof = grown.fold(&tree::consistency(old, new).unwrap());
        let (first, last) = (grown.roots[old as usize], grown.roots[new as usize]);
        prop_assert_eq!(tree::verify_consistency(old, &first, new, &last, &proof), Ok(()));
        if old > 0 {
            let other = sha256(b"another history");
            prop_assert!(tree::verify_consistency(old, &other, new, &last, &proof).is_err());
            prop_assert!(tree::verify_consistency(old, &first, new, &other, &proof).is_err());
        }
        prop_assert_eq!(tree::consistency(new + 1, new), Err(TreeError::Shrunk { old: new + 1, new }));
    }

    #[test]
    fn an_edge_can_be_built_from_its_nodes(size in 0u64..600) {
        let grown = Grown::to(size);
        let hashes = Edge::nodes(size).iter().map(|node| grown.nodes[node]).collect::<Vec<_>>();
        let edge = Edge::of(size, hashes).unwrap();
        prop_assert_eq!(edge.root(), grown.roots[size as usize]);
        prop_assert_eq!(grown.fold(&tree::root(size)), vec![edge.root()]);
    }
}

#[test]
fn a_perfect_subtree_can_be_computed_from_any_lower_level() {
    let grown = Grown::to(256);
    let leaves: Vec<Hash> = (0..256).map(|index| grown.nodes[&Node { level: 0, index }]).collect();
    assert_eq!(tree::perfect(&leaves), Some(grown.nodes[&Node { level: 8, index: 0 }]));
    assert_eq!(tree::perfect(&leaves[..3]), None);
    assert_eq!(tree::perfect(&[]), None);
}

/// Leaves and root from the test suite of Certificate Transparency.
#[test]
fn the_tree_matches_certificate_transparency() {
    let entries = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ];
    let mut edge = Edge::default();
    for entry in entries {
        edge.push(tree::leaf_hash(&hex::decode(entry).unwrap()), |_, _| {});
    }
    let root = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328";
    assert_eq!(hex::encode(edge.root()), root);
}
