//! Reading everything again and believing nothing: each leaf from its row, each link, each node, the head.
use std::collections::HashMap;

use domain::decider::Timestamp;
use proof::{
    Hash, chain,
    tree::{Edge, Node},
};
use sqlx::{PgPool, Row};
use tokio::task::JoinHandle;

use crate::{
    LogError, Stored, StreamId,
    append::Head,
    nodes,
    read::read,
    stored::{bigint, fixed, number},
};

/// How many events are read at a time.
const PAGE: u32 = 5_000;

/// A log that is what it says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many events it has.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
    /// The last link of the chain.
    pub chain: Hash,
    /// How many events were read for this.
    pub checked: u64,
}

/// The first place where the log is not what it says it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("position {position}: {what}")]
pub struct Difference {
    /// Where; one more than the last event when something is missing at the end.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

/// What verification found, or why it could not look.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log is not what it says it is.
    #[error(transparent)]
    Differs(#[from] Difference),
    /// It could not be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl From<sqlx::Error> for VerifyError {
    fn from(error: sqlx::Error) -> VerifyError {
        VerifyError::Log(error.into())
    }
}

/// Check everything after a position, which is itself taken as it is stored; 0 checks the whole log. `progress`
/// hears how many events have been checked.
///
/// It finds what was changed, removed, added or swapped by somebody who did not compute the log anew. Who did
/// is caught only by a checkpoint that was kept elsewhere: compare [`Verified::root`] with it.
///
/// # Errors
/// [`VerifyError::Differs`] with the first difference.
pub async fn verify(
    pool: &PgPool,
    from_exclusive: u64,
    mut progress: impl FnMut(u64),
) -> Result<Verified, VerifyError> {
    let mut connection = pool.acquire().await?;
    let head = Head::read_row(&mut connection).await?.ok_or(LogError::NoLog)?;
    drop(connection);
    let mut walk = Walk::start(pool, &head.log_id, from_exclusive).await?;
    let mut next = page(pool, walk.position);
    while walk.position < head.position {
        let events = (&mut next).await.map_err(|error| sqlx::Error::Io(error.into()))??;
        let Some(last) = events.last() else { break };
        // The next page is read and decoded while this one is hashed.
        next = page(pool, last.position);
        for event in events.iter().take_while(|event| event.position <= head.position) {
            walk.step(event)?;
        }
        walk.compare_nodes(pool).await?;
        progress(walk.position - from_exclusive);
    }
    next.abort();
    let differs = |what: &str| Difference { position: walk.position + 1, what: what.into() };
    if walk.position != head.position {
        return Err(differs("the log ends before its head").into());
    }
    if walk.chain != head.chain {
        return Err(differs("the head has another chain").into());
    }
    // Others may append while this runs, but nothing of a batch that the head already counts.
    let beyond = sqlx::query("select 1 from log_event where position > $1 and commit_no <= $2")
        .bind(bigint(head.position))
        .bind(bigint(head.commit_no));
    if beyond.fetch_optional(pool).await?.is_some() {
        return Err(differs("there are events after the head").into());
    }
    walk.compare_streams(pool, head.position).await?;
    let (size, checked) = (walk.position, walk.position - from_exclusive);
    Ok(Verified { size, root: walk.edge.root(), chain: walk.chain, checked })
}

fn page(pool: &PgPool, after: u64) -> JoinHandle<Result<Vec<Stored>, LogError>> {
    let pool = pool.clone();
    tokio::spawn(async move { read(&pool, after, PAGE).await })
}

/// What must come next.
struct Walk {
    position: u64,
    chain: Hash,
    edge: Edge,
    /// When the last event was recorded, and in which batch.
    last: Option<(Timestamp, u64)>,
    /// How far each stream came, of those that were seen, and where.
    streams: HashMap<StreamId, (u64, u64)>,
    nodes: Vec<(Node, Hash)>,
    whole: bool,
}

impl Walk {
    async fn start(pool: &PgPool, log_id: &str, from_exclusive: u64) -> Result<Walk, VerifyError> {
        let mut connection = pool.acquire().await?;
        let (mut chain, mut edge) = (chain::genesis(log_id), Edge::default());
        if from_exclusive > 0 {
            let row = sqlx::query("select chain from log_event where position = $1")
                .bind(bigint(from_exclusive))
                .fetch_one(&mut *connection)
                .await?;
            chain = fixed(row.try_get(0)?, from_exclusive, "chain")?;
            let hashes = nodes::fetch(&mut connection, Edge::nodes(from_exclusive)).await?;
            edge = Edge::of(from_exclusive, hashes).ok_or(LogError::NoLog)?;
        }
        Ok(Walk {
            position: from_exclusive,
            chain,
            edge,
            last: None,
            streams: HashMap::new(),
            nodes: Vec::new(),
            whole: from_exclusive == 0,
        })
    }

    fn step(&mut self, event: &Stored) -> Result<(), Difference> {
        let position = self.position + 1;
        let differs = |what: &str| Err(Difference { position, what: what.into() });
        if event.position != position {
            return differs("the event is missing");
        }
        if event.computed_leaf() != Some(event.leaf) {
            return differs("the event is not the one that was hashed");
        }
        let chain = chain::next(&self.chain, &event.leaf);
        if chain != event.chain {
            return differs("the chain is broken");
        }
        if let Some((recorded_at, commit_no)) = self.last
            && (event.recorded_at < recorded_at || event.commit_no < commit_no)
        {
            return differs("the event is older than the one before it");
        }
        match self.streams.get_mut(&event.stream) {
            Some((sequence, _)) if event.sequence != *sequence + 1 => {
                return differs("the event is not the next of its stream");
            }
            Some(known) => *known = (event.sequence, position),
            None if self.whole && event.sequence != 1 => {
                return differs("the event is not the first of its stream");
            }
            None => drop(self.streams.insert(event.stream.clone(), (event.sequence, position))),
        }
        let nodes = &mut self.nodes;
        self.edge.push(event.leaf, |node, hash| {
            if node.level % 8 == 0 {
                nodes.push((node, *hash));
            }
        });
        (self.position, self.chain) = (position, chain);
        self.last = Some((event.recorded_at, event.commit_no));
        Ok(())
    }

    /// The nodes that these events completed are stored as they are.
    async fn compare_nodes(&mut self, pool: &PgPool) -> Result<(), VerifyError> {
        let nodes = std::mem::take(&mut self.nodes);
        let rows = sqlx::query(
            "select w.n, o.hash from unnest($1::integer[], $2::bigint[]) with ordinality as w(level, index, n) \
             join log_node o on o.level = w.level and o.index = w.index",
        )
        .bind(nodes.iter().map(|(node, _)| i32::from(node.level)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|(node, _)| bigint(node.index)).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
        let mut found = HashMap::new();
        for row in &rows {
            found.insert(row.try_get::<i64, _>("n")?, row.try_get::<Vec<u8>, _>("hash")?);
        }
        for (n, (node, hash)) in (1..).zip(&nodes) {
            if found.get(&n).is_none_or(|found| found[..] != hash[..]) {
                let position = ((node.index + 1) << node.level).min(self.position);
                let what = format!("node {} of level {} is another", node.index, node.level);
                return Err(Difference { position, what }.into());
            }
        }
        Ok(())
    }

    /// Every stream's version is its last event's sequence, and no stream is without events.
    async fn compare_streams(&mut self, pool: &PgPool, end: u64) -> Result<(), VerifyError> {
        let mut after = (String::new(), String::new());
        loop {
            let rows = sqlx::query(
                "select aggregate_type, aggregate_id, version, last_position from log_stream \
                 where (aggregate_type, aggregate_id) > ($1, $2) \
                 order by aggregate_type, aggregate_id limit $3",
            )
            .bind(&after.0)
            .bind(&after.1)
            .bind(i64::from(PAGE))
            .fetch_all(pool)
            .await?;
            let Some(last) = rows.last() else { break };
            after = (last.try_get(0)?, last.try_get(1)?);
            for row in &rows {
                let stream =
                    StreamId::new(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
                let (version, position) = (number(row.try_get(2)?), number(row.try_get(3)?));
                let differs = |position| {
                    let what = format!("the version of {stream} is not its last event's");
                    Err(Difference { position, what }.into())
                };
                match self.streams.remove(&stream) {
                    // Others append while this runs.
                    _ if position > end => {}
                    Some(seen) if seen == (version, position) => {}
                    Some((_, seen)) => return differs(seen),
                    None if self.whole => return differs(position),
                    None => {}
                }
            }
        }
        match self.streams.iter().map(|(stream, (_, position))| (*position, stream)).min() {
            None => Ok(()),
            Some((position, stream)) => {
                Err(Difference { position, what: format!("{stream} has no version") }.into())
            }
        }
    }
}
