//! Objects of the inventory that are not desired, with their live state and their removal. A plan,
//! the check before its apply, and each deletion use the same evaluation.

use std::{cmp::Reverse, collections::BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    content,
    decide::{Obsolete, Purpose, Removal, remove},
    failure::Outcome,
    inventory::Entry,
    kinds::Kinds,
    object::metadata,
    order,
};

/// Object of the inventory with its live state and the decision about it.
#[derive(Debug)]
pub struct Evaluated<'i> {
    pub entry: &'i Entry,
    pub live: Option<Value>,
    pub removal: Removal,
}

impl Evaluated<'_> {
    /// Returns the UID of the live object.
    pub fn uid(&self) -> Option<&str> {
        self.live.as_ref().and_then(|live| metadata(live, "uid"))
    }
}

/// Evaluates objects in the order of their removal. The content of a Namespace or of a
/// CustomResourceDefinition counts as own only if this evaluation deletes it.
pub async fn evaluate<'i>(
    cluster: &Cluster,
    kinds: &Kinds,
    entries: Vec<&'i Entry>,
    purpose: Purpose,
) -> Outcome<Vec<Evaluated<'i>>> {
    let mut evaluated: Vec<Evaluated<'i>> = stream::iter(entries)
        .map(|entry| read(cluster, kinds, entry, purpose))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let deleted = deleted_uids(&evaluated);
    for one in &mut evaluated {
        protect_content(cluster, &deleted, one, purpose).await?;
    }
    evaluated.sort_by_key(|one| Reverse(order::rank_of_kind(&one.entry.reference, one.entry.wave)));
    Ok(evaluated)
}

/// Evaluates one object again. `deleted` contains the UIDs of all objects that the plan deletes.
pub async fn evaluate_one<'i>(
    cluster: &Cluster,
    kinds: &Kinds,
    entry: &'i Entry,
    purpose: Purpose,
    deleted: &BTreeSet<String>,
) -> Outcome<Evaluated<'i>> {
    let mut evaluated = read(cluster, kinds, entry, purpose).await?;
    protect_content(cluster, deleted, &mut evaluated, purpose).await?;
    Ok(evaluated)
}

fn deleted_uids(evaluated: &[Evaluated<'_>]) -> BTreeSet<String> {
    let deleted = evaluated.iter().filter(|one| one.removal == Removal::Delete);
    deleted.filter_map(|one| one.uid().map(str::to_owned)).collect()
}

/// Reads an object and decides its removal without regard to its content.
async fn read<'i>(
    cluster: &Cluster,
    kinds: &Kinds,
    entry: &'i Entry,
    purpose: Purpose,
) -> Outcome<Evaluated<'i>> {
    // If the cluster does not serve the kind, it has no object of that kind.
    let live = match kinds.recorded(&entry.reference) {
        Some(kind) => cluster.live(kind, &entry.reference).await?,
        None => None,
    };
    let removal = decide(cluster, entry, live.as_ref(), purpose, None);
    Ok(Evaluated { entry, live, removal })
}

/// Keeps an object whose deletion would also delete objects that the plan does not delete.
async fn protect_content(
    cluster: &Cluster,
    deleted: &BTreeSet<String>,
    evaluated: &mut Evaluated<'_>,
    purpose: Purpose,
) -> Outcome<()> {
    let (Removal::Delete, Some(live)) = (&evaluated.removal, &evaluated.live) else {
        return Ok(());
    };
    let reference = &evaluated.entry.reference;
    let content = content::reason_to_keep(cluster, deleted, reference, live).await?;
    evaluated.removal = decide(cluster, evaluated.entry, Some(live), purpose, content.as_deref());
    Ok(())
}

fn decide(
    cluster: &Cluster,
    entry: &Entry,
    live: Option<&Value>,
    purpose: Purpose,
    content: Option<&str>,
) -> Removal {
    let (object, uid, manager) = (&entry.reference, entry.uid.as_deref(), &cluster.manager);
    remove(&Obsolete { object, uid, live, manager, purpose, content })
}
