//! Progress of the objects while Helm waits for them, which Helm itself does not show.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use futures::{StreamExt, stream};
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    kinds::Kind,
    object::ObjectRef,
    pods,
    readiness::{Barrier, Readiness, readiness},
    report,
};
use tokio::time::sleep;

const PERIOD: Duration = Duration::from_secs(2);

/// Logs every change of an object's progress, until it is dropped.
pub async fn watch(cluster: &Cluster, objects: Vec<(&ObjectRef, Kind)>) -> Infallible {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    loop {
        sleep(PERIOD).await;
        let read: Vec<_> = stream::iter(&objects)
            .map(|(object, kind)| async move { (*object, cluster.live(kind, object).await) })
            .buffered(CONCURRENCY)
            .collect()
            .await;
        for (object, live) in read {
            // Helm decides about the result. A failed read here only delays a line of the log.
            let Ok(Some(live)) = live else { continue };
            let state = match readiness(object, &live, Barrier::End) {
                Readiness::Ready => {
                    if known.remove(&object.to_string()).is_some() {
                        report::log(format!("{object} is ready"));
                    }
                    continue;
                }
                Readiness::Progressing(reason) | Readiness::Failed(reason) => reason,
            };
            // Helm names only the workload when it fails.
            let state = pods::explain(cluster, object, &live, state).await;
            if known.insert(object.to_string(), state.clone()).as_ref() != Some(&state) {
                report::log(format!("waiting for {object}: {state}"));
            }
        }
    }
}
