//! Bounded waits until objects are ready, and until deleted objects no longer exist.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    decide,
    failure::{Failure, Outcome, listed},
    kinds::Kind,
    object::{ObjectRef, metadata},
    readiness::{Readiness, readiness},
    report,
};

/// Initial back-off between two attempts. Each attempt doubles it, up to the longest one.
pub const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Limits of all waits of one apply.
pub struct Waiting<'w> {
    pub deadline: Instant,
    pub stop: &'w CancellationToken,
}

impl Waiting<'_> {
    /// Waits for the back-off and doubles it.
    pub async fn pause(&self, pause: &mut Duration) -> Outcome<()> {
        tokio::select! {
            () = self.stop.cancelled() => return Err(Failure::cancelled()),
            () = sleep(*pause) => {}
        }
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Fails if the job was cancelled.
    pub fn check(&self) -> Outcome<()> {
        if self.stop.is_cancelled() { Err(Failure::cancelled()) } else { Ok(()) }
    }
}

/// Waits until all objects are ready, and returns their last state. Logs each change in the
/// progress of an object.
pub async fn ready<'o>(
    cluster: &Cluster,
    objects: Vec<(&'o ObjectRef, Kind)>,
    waiting: &Waiting<'_>,
) -> Outcome<Vec<(&'o ObjectRef, Value)>> {
    let (mut pending, mut ready) = (objects, vec![]);
    let mut progress: BTreeMap<String, String> = BTreeMap::new();
    let mut pause = SHORTEST_PAUSE;
    while !pending.is_empty() {
        let read: Vec<(&ObjectRef, Kind, Option<Value>)> = stream::iter(pending)
            .map(|(object, kind)| async move {
                let live = cluster.live(&kind, object).await?;
                Ok::<_, Failure>((object, kind, live))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        pending = vec![];
        let mut failed = vec![];
        for (object, kind, live) in read {
            let Some(live) = live else {
                failed.push(format!("{object} was deleted during the apply"));
                continue;
            };
            match readiness(object, &live) {
                Readiness::Ready => {
                    if progress.remove(&object.to_string()).is_some() {
                        report::log(format!("{object} is ready"));
                    }
                    ready.push((object, live));
                }
                Readiness::Progressing(reason) => {
                    let known = progress.insert(object.to_string(), reason.clone());
                    if known.as_ref() != Some(&reason) {
                        report::log(format!("waiting for {object}: {reason}"));
                    }
                    pending.push((object, kind));
                }
                Readiness::Failed(reason) => failed.push(format!("{object}: {reason}")),
            }
        }
        if !failed.is_empty() {
            return Err(Failure::failed(listed("objects cannot become ready", &failed)));
        }
        if pending.is_empty() {
            break;
        }
        if waiting.is_over() {
            let lines: Vec<String> =
                progress.iter().map(|(object, reason)| format!("{object}: {reason}")).collect();
            return Err(Failure::failed(listed("objects are not ready in time", &lines)));
        }
        waiting.pause(&mut pause).await?;
    }
    Ok(ready)
}

/// Object that is being deleted, with its UID.
pub type Deleted = (ObjectRef, Kind, String);

/// Waits until deleted objects no longer exist. Returns those that still exist at the deadline,
/// with their finalizers.
pub async fn gone(
    cluster: &Cluster,
    deleted: &[Deleted],
    waiting: &Waiting<'_>,
) -> Outcome<Vec<(ObjectRef, String)>> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let live: Vec<Option<(ObjectRef, String)>> = stream::iter(deleted)
            .map(|(object, kind, uid)| async move {
                let live = cluster.live(kind, object).await?;
                // Another object can already have the name.
                let live = live.filter(|live| metadata(live, "uid") == Some(uid));
                Ok::<_, Failure>(live.map(|live| (object.clone(), decide::finalizers(&live))))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        let left: Vec<(ObjectRef, String)> = live.into_iter().flatten().collect();
        if left.is_empty() || waiting.is_over() {
            return Ok(left);
        }
        waiting.pause(&mut pause).await?;
    }
}
