//! Oracle: checks the invariants of a log and its projections after faults, and returns the
//! violations. The nemesis test runs the oracle after its faults. The tests with injected faults
//! show that the oracle detects violations.
use std::collections::{BTreeMap, BTreeSet};

use event_log::{Source, StoredEvent, read::read, verify::verify};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;

type Hash = [u8; 32];

/// Number of events per read.
const PAGE: u32 = 10_000;

/// Response that a caller got to one write.
#[derive(Debug, Clone)]
pub struct CallerWrite {
    /// Stream, `type/id`. If one event of a stream has a recorded response, all events of the
    /// stream have one.
    pub stream: String,
    /// Result that the caller received.
    pub result: WriteResult,
}

/// Result in a response to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    /// An event of this type was written at this position.
    Written { event: String, position: u64 },
    /// The state already matched the request at this position. Up to there, `event` was the last
    /// event of a type in `among`.
    Already { event: String, among: Vec<String>, position: u64 },
    /// The server rejected the write.
    Refused,
}

/// Returns every violation in the log, its projections and the callers' responses.
pub async fn check_all(source: impl Into<Source>, writes: &[CallerWrite]) -> Vec<String> {
    let source = source.into();
    let pool = &source.pool;
    let mut wrong = check_log(pool).await;
    wrong.extend(check_responses(pool, writes).await);
    wrong.extend(check_states(pool).await);
    wrong.extend(check_projections(&source).await);
    wrong.extend(check_deadlocks(pool).await);
    wrong
}

/// Checks that positions and sequences have no gaps. Checks leaves, chain and tree with the
/// program's code and with independent code, which also detects a wrong hash function.
pub async fn check_log(pool: &PgPool) -> Vec<String> {
    let verified = match verify(pool, 0, |_| {}).await {
        Ok(verified) => verified,
        Err(why) => return vec![format!("the log does not verify: {why}")],
    };
    let log_id: String =
        sqlx::query_scalar("select log_id from log_head").fetch_one(pool).await.unwrap();
    let mut chain: Hash = Sha256::digest(format!("stead/chain/v1\n{log_id}")).into();
    let (mut leaves, mut streams) = (Vec::<Hash>::new(), BTreeMap::<String, u64>::new());
    // Other servers may append meanwhile, so the check ends where the verification did.
    for event in events(pool).await.into_iter().take(verified.size as usize) {
        let at = event.position;
        if at != leaves.len() as u64 + 1 {
            return vec![format!("position {at}: {} events are before it", leaves.len())];
        }
        let sequence = streams.entry(event.stream.to_string()).or_default();
        *sequence += 1;
        if event.sequence != *sequence {
            return vec![format!("position {at}: sequence {} of its stream", event.sequence)];
        }
        let Some(entry) = event.computed_leaf() else { return vec![format!("{at}: no leaf")] };
        let leaf = sha256(&[&[0], &entry.canonical()]);
        chain = sha256(&[&chain, &leaf]);
        if leaf != event.leaf || chain != event.chain {
            return vec![format!("position {at}: its leaf or link is not RFC 6962's")];
        }
        leaves.push(leaf);
    }
    let root = root(&leaves);
    if (root, chain) != (verified.root, verified.chain) {
        return vec!["the root or the chain of the log is not that of its events".into()];
    }
    vec![]
}

/// Checks that the log still begins with the events of each stored head: the root over its first
/// `size` events is unchanged.
pub async fn check_heads(pool: &PgPool, heads: &[(u64, Hash)]) -> Vec<String> {
    let leaves: Vec<Hash> = events(pool).await.into_iter().map(|event| event.leaf).collect();
    let differs = |(size, kept): &(u64, Hash)| match leaves.get(..*size as usize) {
        None => {
            Some(format!("a signed head covers {size} events, but the log has {}", leaves.len()))
        }
        Some(first) if root(first) != *kept => {
            Some(format!("the first {size} events differ from the signed events"))
        }
        Some(_) => None,
    };
    heads.iter().filter_map(differs).collect()
}

/// Compares the callers' responses with the log. Checks that the log has each acknowledged event
/// once, and that the callers' streams have no other events. Also checks each
/// [`WriteResult::Already`].
pub async fn check_responses(pool: &PgPool, writes: &[CallerWrite]) -> Vec<String> {
    let mut log = BTreeMap::<String, BTreeMap<u64, String>>::new();
    for event in events(pool).await {
        let stream = log.entry(event.stream.to_string()).or_default();
        stream.insert(event.position, event.event_type.into_owned());
    }
    let (mut wrong, mut acknowledged) = (Vec::new(), BTreeMap::<&str, BTreeSet<u64>>::new());
    for CallerWrite { stream, result } in writes {
        let (events_of_stream, positions) =
            (log.entry(stream.clone()).or_default(), acknowledged.entry(stream).or_default());
        match result {
            WriteResult::Written { event, position } => {
                if events_of_stream.get(position) != Some(event) {
                    wrong.push(format!(
                        "{stream}: {event} was acknowledged at {position}, but is missing"
                    ));
                }
                if !positions.insert(*position) {
                    wrong.push(format!("{stream}: two writes were acknowledged at {position}"));
                }
            }
            WriteResult::Already { event, among, position } => {
                let mut before = events_of_stream.range(..=*position).rev().map(|(_, name)| name);
                let last = before.find(|name| among.contains(name));
                if last != Some(event) {
                    wrong.push(format!(
                        "{stream}: the response at {position} reported an unchanged state, but the state was different"
                    ));
                }
            }
            WriteResult::Refused => {}
        }
    }
    for (stream, positions) in acknowledged {
        for position in log[stream].keys().filter(|position| !positions.contains(position)) {
            wrong.push(format!("{stream}: the event at {position} was never acknowledged"));
        }
    }
    wrong
}

/// Checks that every projection equals a rebuild, which also decrypts personal data.
pub async fn check_projections(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut connection = source.pool.acquire().await.unwrap();
    for view in projections::list(&mut connection).await.unwrap() {
        let name = view.name;
        match projections::verify(source, name, |_| {}).await {
            Ok(verified) => wrong.extend(
                verified.differences.into_iter().map(|difference| format!("{name}: {difference}")),
            ),
            Err(why) => wrong.push(format!("{name}: cannot be verified: {why}")),
        }
    }
    wrong
}

/// Checks that no deadlock happened. A consistent lock order prevents deadlocks.
pub async fn check_deadlocks(pool: &PgPool) -> Vec<String> {
    // A backend reports its statistics after its transaction and at most once per second.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    let deadlocks: i64 = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
    if deadlocks == 0 { vec![] } else { vec![format!("{deadlocks} deadlocks in the database")] }
}

/// Returns all events, in order.
/// Checks the order of the stored states of each component: no execution stores a state after a
/// later one has stored one, and within a lineage each serial follows the one before.
pub async fn check_states(pool: &PgPool) -> Vec<String> {
    type Row = (String, String, i64, String, i64, i64, i64);
    let sql = "select install, component, number, lineage, serial, fence_epoch, fence_position \
               from state_version order by install, component, number";
    let rows: Vec<Row> = sqlx::query_as(sql).fetch_all(pool).await.unwrap();
    let wrong = |pair: &[Row]| {
        let [former, next] = pair else { return None };
        if (&former.0, &former.1) != (&next.0, &next.1) {
            return None;
        }
        let (component, number) = (&next.1, next.2);
        if (next.5, next.6) < (former.5, former.6) {
            return Some(format!("state {number} of {component}: an earlier execution stored it"));
        }
        (former.3 == next.3 && former.4 >= next.4)
            .then(|| format!("state {number} of {component}: its serial is {}", next.4))
    };
    rows.windows(2).filter_map(wrong).collect()
}

async fn events(pool: &PgPool) -> Vec<StoredEvent> {
    let mut all: Vec<StoredEvent> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.position);
        let page = read(pool, after, PAGE).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

fn sha256(parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// Computes the root as RFC 6962, 2.1, defines it.
fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => sha256(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            sha256(&[&[1], &root(left), &root(right)])
        }
    }
}
