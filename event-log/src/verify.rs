//! Reading everything again and believing nothing: each leaf from its row, each link, each node, the head.
use std::collections::HashMap;

use proof::{
    Hash, chain,
    tree::{Edge, Node},
};
use sqlx::{PgPool, Row};

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
    while walk.position < head.position {
        let events = read(pool, walk.position, PAGE).await?;
        if events.is_empty() {
            break;
        }
        for event in events.iter().take_while(|event| event.position <= head.position) {
            walk.step(event)?;
        }
        walk.compare_nodes(pool).await?;
        walk.compare_streams(pool, &events).await?;
        progress(walk.position - from_exclusive);
    }
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
    let (size, checked) = (walk.position, walk.position - from_exclusive);
    Ok(Verified { size, root: walk.edge.root(), chain: walk.chain, checked })
}

/// What must come next.
struct Walk {
    position: u64,
    chain: Hash,
    edge: Edge,
    last: Option<Stored>,
    /// How far each stream came, of those that were seen.
    streams: HashMap<StreamId, u64>,
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
        if let Some(last) = &self.last
            && (event.recorded_at < last.recorded_at || event.commit_no < last.commit_no)
        {
            return differs("the event is older than the one before it");
        }
        let known = self.streams.get(&event.stream).copied();
        let expected =
            if self.whole { Some(known.unwrap_or(0) + 1) } else { known.map(|of| of + 1) };
        if expected.is_some_and(|expected| event.sequence != expected) {
            return differs("the event is not the next of its stream");
        }
        self.streams.insert(event.stream.clone(), event.sequence);
        let nodes = &mut self.nodes;
        self.edge.push(event.leaf, |node, hash| {
            if node.level % 8 == 0 {
                nodes.push((node, *hash));
            }
        });
        (self.position, self.chain, self.last) = (position, chain, Some(event.clone()));
        Ok(())
    }

    /// The nodes that these events completed are stored as they are.
    async fn compare_nodes(&mut self, pool: &PgPool) -> Result<(), VerifyError> {
        for (node, hash) in self.nodes.drain(..) {
            let row = sqlx::query("select hash from log_node where level = $1 and index = $2")
                .bind(i32::from(node.level))
                .bind(bigint(node.index))
                .fetch_optional(pool)
                .await?;
            let found: Option<Vec<u8>> = row.map(|row| row.try_get(0)).transpose()?;
            if found.is_none_or(|found| found != hash) {
                let position = ((node.index + 1) << node.level).min(self.position);
                let what = format!("node {} of level {} is another", node.index, node.level);
                return Err(Difference { position, what }.into());
            }
        }
        Ok(())
    }

    /// No stream's version is behind its events.
    async fn compare_streams(&self, pool: &PgPool, events: &[Stored]) -> Result<(), VerifyError> {
        let mut last: HashMap<&StreamId, &Stored> = HashMap::new();
        last.extend(events.iter().map(|event| (&event.stream, event)));
        let column = |of: fn(&StreamId) -> &str| last.keys().map(|id| of(id)).collect::<Vec<_>>();
        let rows = sqlx::query(
            "select aggregate_type, aggregate_id, version from log_stream \
             where (aggregate_type, aggregate_id) in (select * from unnest($1::text[], $2::text[]))",
        )
        .bind(column(|id| &id.aggregate_type))
        .bind(column(|id| &id.aggregate_id))
        .fetch_all(pool)
        .await?;
        let mut versions = HashMap::new();
        for row in &rows {
            let stream = StreamId::new(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
            versions.insert(stream, number(row.try_get(2)?));
        }
        let behind = last
            .iter()
            .filter(|(id, event)| {
                versions.get(**id).is_none_or(|version| *version < event.sequence)
            })
            .map(|(id, event)| (event.position, id))
            .min();
        match behind {
            None => Ok(()),
            Some((position, id)) => {
                Err(Difference { position, what: format!("the version of {id} is behind") }.into())
            }
        }
    }
}
