//! Reads nodes of the tree, or computes them from stored nodes. The log stores the leaves and every
//! eighth level.
use proof::{
    Hash,
    tree::{self, Node},
};
use sqlx::{PgConnection, Row};

use crate::{Archives, LogError, stored::bigint};

/// Returns the hashes of complete perfect subtrees. Each is computed from at most 128 stored
/// hashes.
pub(crate) async fn fetch(
    connection: &mut PgConnection,
    nodes: Vec<Node>,
) -> Result<Vec<Hash>, sqlx::Error> {
    let found = stored_hashes(connection, &nodes).await?;
    combine_hashes(&nodes, &found)
}

/// Returns the hashes as [`fetch`] does, with the leaves of archived events where there are no
/// rows.
pub(crate) async fn fetch_through(
    connection: &mut PgConnection,
    archives: &Archives,
    nodes: Vec<Node>,
) -> Result<Vec<Hash>, LogError> {
    let mut found = stored_hashes(&mut *connection, &nodes).await?;
    for (node, hashes) in nodes.iter().zip(&mut found) {
        if node.level < 8 && hashes.len() < 1 << node.level {
            let (first, end) = (node.index << node.level, (node.index + 1) << node.level);
            let events = archives.events(connection, (first, end), u32::MAX).await?;
            // A partition has whole blocks, so either all leaves of a block are rows or none.
            if !events.is_empty() {
                *hashes = events.iter().map(|event| event.leaf).collect();
            }
        }
    }
    Ok(combine_hashes(&nodes, &found)?)
}

/// Returns the stored hashes of each node: its own hash, or the hashes of its descendants on the
/// next stored level.
async fn stored_hashes(
    connection: &mut PgConnection,
    nodes: &[Node],
) -> Result<Vec<Vec<Hash>>, sqlx::Error> {
    let (mut level, mut first, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for node in nodes {
        let stored = node.level / 8 * 8;
        let above = node.level - stored;
        level.push(i32::from(stored));
        first.push(bigint(node.index << above));
        last.push(bigint(((node.index + 1) << above) - 1));
    }
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(
        "select n, hash from ( \
           select w.n, e.position as place, e.leaf as hash \
             from unnest($1::integer[], $2::bigint[], $3::bigint[]) \
               with ordinality as w(level, first, last, n) \
             join log_event e on e.position between w.first + 1 and w.last + 1 \
            where w.level = 0 \
           union all \
           select w.n, o.index, o.hash \
             from unnest($1::integer[], $2::bigint[], $3::bigint[]) \
               with ordinality as w(level, first, last, n) \
             join log_node o on o.level = w.level and o.index between w.first and w.last \
            where w.level > 0) as found \
         order by n, place",
    )
    .bind(&level)
    .bind(&first)
    .bind(&last)
    .fetch_all(connection)
    .await?;
    let mut found: Vec<Vec<Hash>> = vec![Vec::new(); nodes.len()];
    for row in &rows {
        let n = usize::try_from(row.try_get::<i64, _>("n")?).unwrap_or(0);
        let hash: Vec<u8> = row.try_get("hash")?;
        let hash: Hash = hash.try_into().map_err(|_| {
            sqlx::Error::Decode("a hash of a tree node does not have 32 bytes".into())
        })?;
        if let Some(hashes) = n.checked_sub(1).and_then(|at| found.get_mut(at)) {
            hashes.push(hash);
        }
    }
    Ok(found)
}

fn combine_hashes(nodes: &[Node], found: &[Vec<Hash>]) -> Result<Vec<Hash>, sqlx::Error> {
    nodes
        .iter()
        .zip(found)
        .map(|(node, hashes)| {
            let is_complete = hashes.len() == 1 << (node.level % 8);
            let hash = if is_complete { tree::perfect(hashes) } else { None };
            hash.ok_or_else(|| {
                let what = format!("node {} of level {} is missing", node.index, node.level);
                sqlx::Error::Decode(what.into())
            })
        })
        .collect()
}
