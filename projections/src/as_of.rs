//! What was so at a position: the same folds, stopped earlier.
use std::collections::BTreeMap;

use domain::decider::Decider;
use event_log::{EventLog, LogError, StreamId};

use crate::{Projection, Recorded, fold::fold};

/// The state of an aggregate after a position. `None`: nothing had happened to it yet.
///
/// # Errors
/// [`LogError`].
pub async fn state_at<D: Decider>(
    log: &EventLog,
    id: &str,
    position: u64,
) -> Result<Option<D>, LogError> {
    let loaded = log.load_as_of::<D>(id, position).await?;
    Ok((loaded.version > 0).then(|| D::clone(&loaded.state)))
}

/// The rows that a view had of a stream after a position.
///
/// # Errors
/// [`LogError`].
pub async fn rows_at<P: Projection>(
    log: &EventLog,
    stream: &StreamId,
    position: u64,
) -> Result<BTreeMap<String, P::Row>, LogError> {
    let events = log.read_stream(stream, 0).await?;
    let then = events.iter().take_while(|event| event.position <= position);
    let recorded = then.map(Recorded::read).collect::<Result<Vec<_>, _>>()?;
    let rows = fold::<P>(&recorded.iter().collect::<Vec<_>>(), |_| None);
    Ok(rows.into_iter().filter_map(|(key, row)| row.map(|row| (key, row))).collect())
}
