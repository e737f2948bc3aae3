//! Inclusion and consistency proofs, roots and heads of the log.
use std::collections::{BTreeSet, HashMap};

use domain::decider::Timestamp;
use proof::{
    Hash,
    checkpoint::Checkpoint,
    tree::{self, Edge, Node, ProofPlan},
};
use sqlx::PgConnection;

use crate::{EventLog, LogError, append::Head, nodes};

/// Head of the log as one transaction sees it.
#[derive(Debug, Clone)]
pub struct HeadSnapshot {
    /// Checkpoint of the head, not signed yet.
    pub checkpoint: Checkpoint,
    /// Format of the log.
    pub format: i32,
    /// Time of the last event, or of the log's creation.
    pub recorded_at: Timestamp,
}

/// Returns the head as the connection's transaction sees it, regardless of concurrent
/// appends.
///
/// # Errors
/// [`LogError`].
pub async fn head_snapshot(connection: &mut PgConnection) -> Result<HeadSnapshot, LogError> {
    let head = Head::read(connection).await?.ok_or(LogError::NoLog)?;
    let seen = head.published();
    let (log_id, size) = (head.log_id, head.position);
    let checkpoint = Checkpoint { log_id, size, root: seen.root, epoch: seen.epoch };
    Ok(HeadSnapshot { checkpoint, format: head.format, recorded_at: head.recorded_at })
}

impl EventLog {
    /// Tree head that this process knows. It covers every commit that this process acknowledged.
    pub fn head(&self) -> Checkpoint {
        let seen = self.shared.published.borrow();
        Checkpoint {
            log_id: self.shared.log_id.clone(),
            size: seen.position,
            root: seen.root,
            epoch: seen.epoch,
        }
    }

    /// Link of the chain at [`EventLog::head`].
    pub fn chain(&self) -> Hash {
        self.shared.published.borrow().chain
    }

    /// Returns the root of the first `size` events.
    ///
    /// # Errors
    /// [`LogError::Proof`] if the log has fewer events.
    pub async fn root(&self, size: u64) -> Result<Hash, LogError> {
        if size == 0 {
            return Ok(tree::empty_root());
        }
        self.within(size)?;
        let hashes = self.prove(tree::root(size)).await?;
        hashes.first().copied().ok_or(LogError::NoLog)
    }

    /// Returns the roots at several sizes, and reads the rows with one query. Each size must be at
    /// least 1 and at most the size of the log.
    pub(crate) async fn roots(&self, sizes: &[u64]) -> Result<Vec<Hash>, LogError> {
        let plans: Vec<_> = sizes.iter().map(|size| tree::root(*size)).collect();
        let mut connection = self.pool().acquire().await?;
        let needed = plans.iter().flat_map(ProofPlan::nodes).collect();
        let hashes = nodes::fetch_through(&mut connection, self.archives(), needed).await?;
        let (mut rest, mut roots) = (&hashes[..], Vec::with_capacity(plans.len()));
        for plan in plans {
            let (own, others) = rest.split_at(plan.nodes().count());
            roots.extend(plan.fold(own)?.first().copied());
            rest = others;
        }
        Ok(roots)
    }

    /// Returns the inclusion proof of the event at `position` in the first `size` events.
    ///
    /// # Errors
    /// [`LogError::Proof`] if `position` is 0 or after `size`, or if the log has fewer than `size`
    /// events.
    pub async fn inclusion(&self, position: u64, size: u64) -> Result<Vec<Hash>, LogError> {
        self.within(size)?;
        let index = position.checked_sub(1);
        let index = index.ok_or(tree::TreeError::NoSuchLeaf { index: position, size })?;
        self.prove(tree::inclusion(index, size)?).await
    }

    /// Returns the inclusion proofs of these positions in the first `size` events, in order. Shared
    /// nodes are read once.
    ///
    /// # Errors
    /// [`LogError::Proof`] if a position is 0 or after `size`, or if the log has fewer than `size`
    /// events.
    pub async fn inclusions(
        &self,
        positions: &[u64],
        size: u64,
    ) -> Result<Vec<Vec<Hash>>, LogError> {
        self.within(size)?;
        let plan = |position: &u64| {
            let index = position.checked_sub(1);
            let index = index.ok_or(tree::TreeError::NoSuchLeaf { index: *position, size })?;
            tree::inclusion(index, size)
        };
        let plans = positions.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let nodes: BTreeSet<Node> = plans.iter().flat_map(ProofPlan::nodes).collect();
        let nodes: Vec<Node> = nodes.into_iter().collect();
        let hashes = self.hashes(nodes.clone()).await?;
        let known: HashMap<Node, Hash> = nodes.into_iter().zip(hashes).collect();
        let fold = |plan: &ProofPlan| {
            let hashes: Vec<_> =
                plan.nodes().filter_map(|node| known.get(&node).copied()).collect();
            Ok(plan.fold(&hashes)?)
        };
        plans.iter().map(fold).collect()
    }

    /// Returns the roots of the perfect subtrees that cover the first `size` events, largest
    /// first.
    ///
    /// # Errors
    /// [`LogError::Proof`] if the log has fewer events.
    pub async fn edge(&self, size: u64) -> Result<Vec<Hash>, LogError> {
        self.within(size)?;
        self.hashes(Edge::nodes(size)).await
    }

    /// Returns the consistency proof between the first `old` and the first `new` events.
    ///
    /// # Errors
    /// [`LogError::Proof`] if there is none, or the log has fewer events.
    pub async fn consistency(&self, old: u64, new: u64) -> Result<Vec<Hash>, LogError> {
        self.within(new)?;
        self.prove(tree::consistency(old, new)?).await
    }

    fn within(&self, size: u64) -> Result<(), LogError> {
        // Compares with the published head, because `position` is updated slightly later.
        let position = self.shared.published.borrow().position;
        if size <= position {
            return Ok(());
        }
        Err(tree::TreeError::Shrunk { old: size, new: position }.into())
    }

    async fn prove(&self, plan: ProofPlan) -> Result<Vec<Hash>, LogError> {
        let hashes = self.hashes(plan.nodes().collect()).await?;
        Ok(plan.fold(&hashes)?)
    }

    /// Returns the hashes of these nodes from the cache, the database or archives.
    async fn hashes(&self, nodes: Vec<Node>) -> Result<Vec<Hash>, LogError> {
        let mut found = self.shared.tree_cache.find(&nodes);
        let unknown = nodes.iter().zip(&found).filter(|(_, hash)| hash.is_none());
        let missing: Vec<Node> = unknown.map(|(node, _)| *node).collect();
        if !missing.is_empty() {
            let mut connection = self.pool().acquire().await?;
            let hashes =
                nodes::fetch_through(&mut connection, self.archives(), missing.clone()).await?;
            let mut read = hashes.iter().copied();
            found.iter_mut().filter(|hash| hash.is_none()).for_each(|hash| *hash = read.next());
            self.shared.tree_cache.keep(missing.into_iter().zip(hashes));
        }
        Ok(found.into_iter().flatten().collect())
    }
}
