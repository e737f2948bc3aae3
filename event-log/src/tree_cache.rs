//! Cache of the tree nodes that proofs need frequently: those near the head, and nodes that were
//! read before.
//!
//! A complete node never changes, so an entry is never outdated. The cache is cleared if the log
//! has another history.
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use proof::{
    Hash,
    tree::{self, Node},
};

use crate::StoredEvent;

/// Number of recent leaves in the cache. The inclusion proof of a new event needs the leaves of its
/// block of 256.
const LEAVES: usize = 1_024;
/// Maximum number of other nodes in the cache.
const NODES: usize = 65_536;

#[derive(Default)]
pub(crate) struct TreeCache(Mutex<CachedNodes>);

#[derive(Default)]
struct CachedNodes {
    /// Index of the first cached leaf.
    first: u64,
    leaves: VecDeque<Hash>,
    nodes: HashMap<Node, Hash>,
}

impl TreeCache {
    /// Adds the leaves of appended events. After a gap, starts with an empty list of leaves.
    pub(crate) fn grow(&self, events: &[StoredEvent]) {
        let mut cached = self.lock();
        for event in events {
            let index = event.position - 1;
            if index != cached.first + cached.leaves.len() as u64 {
                cached.leaves.clear();
                cached.first = index;
            }
            cached.leaves.push_back(event.leaf);
            if cached.leaves.len() > LEAVES {
                cached.leaves.pop_front();
                cached.first += 1;
            }
        }
    }

    /// Clears the cache, because the log may have another history.
    pub(crate) fn forget(&self) {
        *self.lock() = CachedNodes::default();
    }

    /// Returns the hashes of these nodes, in order. `None` for a node that is neither cached nor
    /// computable from cached leaves.
    pub(crate) fn find(&self, nodes: &[Node]) -> Vec<Option<Hash>> {
        let mut cached = self.lock();
        nodes.iter().map(|node| cached.find(*node)).collect()
    }

    /// Adds nodes that were read.
    pub(crate) fn keep(&self, nodes: impl IntoIterator<Item = (Node, Hash)>) {
        let mut cached = self.lock();
        for (node, hash) in nodes {
            cached.keep(node, hash);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CachedNodes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedNodes {
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
        // Recent leaves are cached separately. Other nodes are cached to avoid hashing them again.
        if node.level > 0 {
            if self.nodes.len() >= NODES {
                self.nodes.clear();
            }
            self.nodes.insert(node, hash);
        }
    }
}
