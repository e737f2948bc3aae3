//! Nodes of the tree that proofs ask for again and again: those near the head, and whatever was read once.
//!
//! A complete node never changes, so nothing here can be stale; it is forgotten when history itself is another one.
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use proof::{
    Hash,
    tree::{self, Node},
};

use crate::Stored;

/// How many of the last leaves are kept. An event that was just written is proved by those of its block of 256.
const LEAVES: usize = 1_024;
/// How many other nodes are kept, at most.
const NODES: usize = 65_536;

/// What is known of the tree without asking the database.
#[derive(Default)]
pub(crate) struct Nearby(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The index of the first leaf that is kept.
    first: u64,
    leaves: VecDeque<Hash>,
    nodes: HashMap<Node, Hash>,
}

impl Nearby {
    /// Take in what was appended. Whatever has a gap before it begins anew.
    pub(crate) fn grow(&self, events: &[Stored]) {
        let mut known = self.known();
        for event in events {
            let index = event.position - 1;
            if index != known.first + known.leaves.len() as u64 {
                known.leaves.clear();
                known.first = index;
            }
            known.leaves.push_back(event.leaf);
            if known.leaves.len() > LEAVES {
                known.leaves.pop_front();
                known.first += 1;
            }
        }
    }

    /// History is another one.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }

    /// The hashes of those that are known, in their order.
    pub(crate) fn find(&self, nodes: &[Node]) -> Vec<Option<Hash>> {
        let mut known = self.known();
        nodes.iter().map(|node| known.find(*node)).collect()
    }

    /// Keep what was read.
    pub(crate) fn keep(&self, nodes: impl IntoIterator<Item = (Node, Hash)>) {
        let mut known = self.known();
        for (node, hash) in nodes {
            known.keep(node, hash);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&mut self, node: Node) -> Option<Hash> {
        if let Some(hash) = self.nodes.get(&node) {
            return Some(*hash);
        }
        let width = 1_usize.checked_shl(node.level.into()).filter(|width| *width <= LEAVES)?;
        let from = usize::try_from((node.index << node.level).checked_sub(self.first)?).ok()?;
        let leaves = from.checked_add(width).filter(|to| *to <= self.leaves.len())?;
        let leaves: Vec<Hash> = self.leaves.range(from..leaves).copied().collect();
        let hash = tree::perfect(&leaves)?;
        self.keep(node, hash);
        Some(hash)
    }

    fn keep(&mut self, node: Node, hash: Hash) {
        // A leaf is known as long as it is near; the others save the work of hashing as well.
        if node.level > 0 {
            if self.nodes.len() >= NODES {
                self.nodes.clear();
            }
            self.nodes.insert(node, hash);
        }
    }
}
