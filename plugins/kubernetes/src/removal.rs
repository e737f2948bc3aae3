//! Removal of objects of the inventory, for prune and destroy.

use futures::{StreamExt, stream};

use crate::{
    cluster::{CONCURRENCY, Cluster},
    failure::{Failure, Outcome, listed},
    inventory::{EntryResult, Inventory},
    kinds::Kinds,
    object::ObjectRef,
    order,
    plan_file::PlannedRemoval,
    report,
    wait::{self, Deleted, Waiting},
};

/// Removes objects in the order of the plan. The objects of a group no longer exist
/// when the next group starts.
///
/// # Errors
/// Names the objects that could not be deleted or still exist.
pub async fn run(
    cluster: &Cluster,
    kinds: &Kinds,
    inventory: &mut Inventory,
    removals: &[PlannedRemoval],
    waiting: &Waiting<'_>,
) -> Outcome<()> {
    for removal in removals.iter().filter(|removal| removal.uid.is_none()) {
        inventory.remove(&removal.reference);
    }
    let deletions: Vec<&PlannedRemoval> =
        removals.iter().filter(|removal| removal.uid.is_some()).collect();
    let rank = |one: &&PlannedRemoval| order::rank_of_kind(&one.reference, one.wave);
    for group in deletions.chunk_by(|one, next| rank(one) == rank(next)) {
        waiting.check()?;
        let result = delete_group(cluster, kinds, group, waiting).await?;
        for object in &result.gone {
            inventory.remove(object);
        }
        for object in &result.remaining {
            inventory.record(object, EntryResult::Deleting, None);
        }
        if !result.problems.is_empty() {
            inventory.save(cluster).await?;
            return Err(Failure::failed(listed("objects remain in the cluster", &result.problems)));
        }
    }
    inventory.save(cluster).await
}

struct GroupResult {
    gone: Vec<ObjectRef>,
    remaining: Vec<ObjectRef>,
    problems: Vec<String>,
}

async fn delete_group(
    cluster: &Cluster,
    kinds: &Kinds,
    group: &[&PlannedRemoval],
    waiting: &Waiting<'_>,
) -> Outcome<GroupResult> {
    let mut result = GroupResult { gone: vec![], remaining: vec![], problems: vec![] };
    let mut deleted: Vec<Deleted> = vec![];
    let requests: Vec<Result<Option<Deleted>, (ObjectRef, String)>> = stream::iter(group)
        .map(|removal| async move {
            let (object, uid) = (&removal.reference, removal.uid.as_deref().unwrap_or_default());
            // If the cluster no longer serves the kind, the object no longer exists.
            let Some(kind) = kinds.recorded(object) else { return Ok(None) };
            let deleted = (object.clone(), kind.clone(), uid.to_owned());
            match cluster.delete(kind, object, uid).await {
                Ok(_) => {
                    report::log(format!("deleted {object}"));
                    Ok(Some(deleted))
                }
                Err(error) if error.has_code(404) => Ok(None),
                // The deletion has already begun, or another object has the name.
                Err(error) if error.has_code(409) => Ok(Some(deleted)),
                Err(error) => {
                    let failure = error.during(&format!("delete {object}"));
                    Err((object.clone(), failure.message))
                }
            }
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    for (removal, request) in group.iter().zip(requests) {
        match request {
            Ok(Some(one)) => deleted.push(one),
            Ok(None) => result.gone.push(removal.reference.clone()),
            Err((object, problem)) => {
                result.remaining.push(object);
                result.problems.push(problem);
            }
        }
    }
    let left = wait::gone(cluster, &deleted, waiting).await?;
    for (object, _, _) in deleted {
        match left.iter().find(|(remaining, _)| *remaining == object) {
            None => result.gone.push(object),
            Some((_, finalizers)) => {
                result.problems.push(format!("{object} is still being deleted{finalizers}"));
                result.remaining.push(object);
            }
        }
    }
    Ok(result)
}
