//! Removal of objects of interrupted operations, which Helm leaves.

use stead_plugin_kubernetes::{
    cluster::Cluster,
    failure::{Failure, Outcome, listed},
    inventory::Inventory,
    kinds::Kinds,
    object::metadata,
    plan_file::PlannedRemoval,
    report,
    wait::{self, Waiting},
};

use crate::{decide, settings::ReleaseRef};

/// Deletes the planned objects that still exist and belong to the release, and waits until they
/// no longer exist.
///
/// # Errors
/// Names the objects that still exist at the deadline.
pub async fn run(
    (cluster, kinds): (&Cluster, &Kinds),
    inventory: &mut Inventory,
    (release, removals): (&ReleaseRef, &[PlannedRemoval]),
    waiting: &Waiting<'_>,
) -> Outcome<()> {
    let mut deleted = vec![];
    for removal in removals {
        waiting.check()?;
        let (reference, Some(uid)) = (&removal.reference, &removal.uid) else { continue };
        // Without its kind, the object no longer exists.
        let Some(kind) = kinds.recorded(reference) else { continue };
        let Some(live) = cluster.live(kind, reference).await? else { continue };
        if metadata(&live, "uid") != Some(uid) {
            continue;
        }
        deleted.push((reference.clone(), kind.clone(), uid.clone()));
        let is_leaving = metadata(&live, "deletionTimestamp").is_some();
        if is_leaving || !decide::belongs_to(&live, release) {
            continue;
        }
        match cluster.delete(kind, reference, uid).await {
            Ok(_) => report::log(format!("deleted {reference}")),
            Err(error) if error.has_code(404) || error.has_code(409) => {}
            Err(error) => return Err(error.during(&format!("delete {reference}"))),
        }
    }
    let left = wait::until_deleted(cluster, &deleted, waiting).await?;
    for removal in removals {
        if !left.iter().any(|(reference, _)| reference.is_same(&removal.reference)) {
            inventory.remove(&removal.reference);
        }
    }
    inventory.save(cluster).await?;
    let left: Vec<String> = left
        .into_iter()
        .map(|(reference, finalizers)| format!("{reference} still exists{finalizers}"))
        .collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(listed("objects remain in the cluster", &left))),
    }
}
