//! Bounded waits until objects are ready, and until deleted objects no longer exist.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{CONCURRENCY, Cluster, RequestError},
    decide,
    failure::{Failure, Outcome, listed},
    kinds::Kind,
    object::{ObjectRef, metadata},
    pods,
    readiness::{Barrier, Readiness, readiness},
    report,
};

/// Initial back-off between two attempts. Each attempt doubles it, up to [`MAX_BACKOFF`].
pub const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Limits of all waits of one apply.
pub struct Waiting<'w> {
    pub deadline: Instant,
    pub stop: &'w CancellationToken,
}

impl Waiting<'_> {
    /// Waits for the back-off and doubles it.
    pub async fn back_off(&self, backoff: &mut Duration) -> Outcome<()> {
        tokio::select! {
            () = self.stop.cancelled() => return Err(Failure::cancelled()),
            () = sleep(*backoff) => {}
        }
        *backoff = (*backoff * 2).min(MAX_BACKOFF);
        Ok(())
    }

    /// Runs requests until a cancel.
    pub async fn bound<T>(&self, requests: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        tokio::select! {
            result = requests => result,
            () = self.stop.cancelled() => Err(Failure::cancelled()),
        }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Fails if the job was cancelled.
    pub fn check(&self) -> Outcome<()> {
        if self.stop.is_cancelled() { Err(Failure::cancelled()) } else { Ok(()) }
    }
}

/// Object that an apply waits for.
pub struct Awaited<'o> {
    pub object: &'o ObjectRef,
    pub kind: Kind,
    /// True if the cluster deletes the object after its work.
    pub can_end: bool,
}

/// Returns whether the cluster deletes the object after its work: a Job with a time to live.
pub fn can_end(reference: &ObjectRef, object: &Value) -> bool {
    reference.is_kind("batch", "Job") && object["spec"]["ttlSecondsAfterFinished"].is_number()
}

/// Result of a wait.
pub struct Waited<'o> {
    /// Ready objects with their last state. `None` for an object that the cluster deleted after its
    /// work.
    pub ready: Vec<(&'o ObjectRef, Option<Value>)>,
    /// Reason why the wait ended before all objects were ready.
    pub failure: Option<Failure>,
}

/// Waits until all objects are ready. Logs each change in the progress of an object. An API server
/// that does not respond delays the result until the deadline.
pub async fn until_ready<'o>(
    cluster: &Cluster,
    objects: Vec<Awaited<'o>>,
    waiting: &Waiting<'_>,
    barrier: Barrier,
) -> Waited<'o> {
    let (mut pending, mut ready) = (objects, vec![]);
    let mut progress: BTreeMap<String, String> = BTreeMap::new();
    let mut backoff = MIN_BACKOFF;
    while !pending.is_empty() {
        let reads = stream::iter(pending).map(|one| async move {
            let live = cluster.live_or_error(&one.kind, one.object).await;
            (one, live)
        });
        let read = waiting.bound(async { Ok(reads.buffered(CONCURRENCY).collect().await) });
        let read: Vec<(Awaited<'o>, Result<Option<Value>, RequestError>)> = match read.await {
            Ok(read) => read,
            Err(failure) => return Waited { ready, failure: Some(failure) },
        };
        pending = vec![];
        let (mut failed, mut failure) = (vec![], None);
        for (one, live) in read {
            let object = one.object;
            let state = match live {
                Ok(Some(live)) => {
                    let state = readiness(object, &live, barrier);
                    let state = match state {
                        Readiness::Ready => Readiness::Ready,
                        Readiness::Progressing(_)
                            if waits_for_consumer(cluster, object, &live).await =>
                        {
                            Readiness::Ready
                        }
                        // Pods that start need a few seconds.
                        Readiness::Progressing(reason) if backoff < MAX_BACKOFF => {
                            Readiness::Progressing(reason)
                        }
                        Readiness::Progressing(reason) => Readiness::Progressing(
                            pods::explain(cluster, object, &live, reason).await,
                        ),
                        Readiness::Failed(reason) => {
                            Readiness::Failed(pods::explain(cluster, object, &live, reason).await)
                        }
                    };
                    (state, Some(live))
                }
                Ok(None) if one.can_end => (Readiness::Ready, None),
                Ok(None) => (Readiness::Failed("it was deleted during the apply".into()), None),
                Err(error) if error.is_transient() => {
                    (Readiness::Progressing("the API server does not respond".into()), None)
                }
                Err(error) => {
                    failure = Some(error.during(&format!("read {object}")));
                    pending.push(one);
                    continue;
                }
            };
            match state {
                (Readiness::Ready, live) => {
                    if progress.remove(&object.to_string()).is_some() {
                        report::log(format!("{object} is ready"));
                    }
                    ready.push((object, live));
                }
                (Readiness::Progressing(reason), _) => {
                    let known = progress.insert(object.to_string(), reason.clone());
                    if known.as_ref() != Some(&reason) {
                        report::log(format!("waiting for {object}: {reason}"));
                    }
                    pending.push(one);
                }
                (Readiness::Failed(reason), _) => failed.push(format!("{object}: {reason}")),
            }
        }
        if !failed.is_empty() {
            failure = Some(Failure::failed(listed("objects cannot become ready", &failed)));
        }
        if failure.is_some() {
            return Waited { ready, failure };
        }
        if pending.is_empty() {
            break;
        }
        if waiting.is_over() {
            let lines: Vec<String> =
                progress.iter().map(|(object, reason)| format!("{object}: {reason}")).collect();
            let failure = Failure::failed(listed("timeout: objects are not ready", &lines));
            return Waited { ready, failure: Some(failure) };
        }
        if let Err(failure) = waiting.back_off(&mut backoff).await {
            return Waited { ready, failure: Some(failure) };
        }
    }
    Waited { ready, failure: None }
}

/// Returns whether a claim gets its volume only with the first pod that uses it. The wait for that
/// pod includes the volume.
async fn waits_for_consumer(cluster: &Cluster, object: &ObjectRef, live: &Value) -> bool {
    let is_pending =
        live["status"]["phase"] == "Pending" && metadata(live, "deletionTimestamp").is_none();
    let class = live["spec"]["storageClassName"].as_str().filter(|class| !class.is_empty());
    let (true, true, Some(class)) =
        (object.is_kind("", "PersistentVolumeClaim"), is_pending, class)
    else {
        return false;
    };
    // Without the permission to read classes, the apply waits for the volume.
    let class = cluster.get(&Kind::storage_class(), None, class).await.ok().flatten();
    class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
}

/// Object that is being deleted, with its UID.
pub type Deleted = (ObjectRef, Kind, String);

/// Waits until deleted objects no longer exist. Returns those that still exist at the deadline,
/// with their finalizers.
pub async fn until_deleted(
    cluster: &Cluster,
    deleted: &[Deleted],
    waiting: &Waiting<'_>,
) -> Outcome<Vec<(ObjectRef, String)>> {
    let mut backoff = MIN_BACKOFF;
    loop {
        let reads = stream::iter(deleted).map(|(object, kind, uid)| async move {
            match cluster.live_or_error(kind, object).await {
                // Another object can already have the name.
                Ok(live) => {
                    let live = live.filter(|live| metadata(live, "uid") == Some(uid));
                    Ok(live.map(|live| (object.clone(), decide::finalizers(&live))))
                }
                Err(error) if error.is_transient() => {
                    Ok(Some((object.clone(), " (the API server does not respond)".to_owned())))
                }
                Err(error) => Err(error.during(&format!("read {object}"))),
            }
        });
        let live = waiting.bound(reads.buffered(CONCURRENCY).try_collect::<Vec<_>>());
        let left: Vec<(ObjectRef, String)> = live.await?.into_iter().flatten().collect();
        if left.is_empty() || waiting.is_over() {
            return Ok(left);
        }
        waiting.back_off(&mut backoff).await?;
    }
}
