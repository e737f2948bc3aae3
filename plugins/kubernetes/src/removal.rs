//! Removal of objects of the inventory, for prune and destroy.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Purpose, Removal},
    failure::{Failure, Outcome, listed},
    inventory::{EntryResult, Inventory},
    kinds::Kinds,
    object::ObjectRef,
    obsolete, order,
    plan_file::PlannedRemoval,
    report,
    wait::{self, Deleted, Waiting},
};

/// Maximum time from the deletion of an object to that of the objects that controllers created for
/// it.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Context of all removals of one job.
pub struct Removals<'r> {
    pub cluster: &'r Cluster,
    pub kinds: &'r Kinds,
    pub purpose: Purpose,
    pub planned: &'r [PlannedRemoval],
    pub waiting: &'r Waiting<'r>,
}

impl Removals<'_> {
    /// Evaluates every removal again, before the first effect.
    ///
    /// # Errors
    /// [`Failure::stale`] with the objects whose removal the plan would now decide differently.
    pub async fn check(&self, inventory: &Inventory) -> Outcome<()> {
        let entries = self.planned.iter().filter_map(|one| inventory.entry(&one.reference));
        let evaluated =
            obsolete::evaluate(self.cluster, self.kinds, entries.collect(), self.purpose).await?;
        let reasons: Vec<String> = self
            .planned
            .iter()
            .filter_map(|planned| {
                let is_same = |one: &&obsolete::Evaluated<'_>| {
                    one.entry.reference.is_same(&planned.reference)
                };
                let now = evaluated.iter().find(is_same);
                stale_reason(planned, now.map(|now| &now.removal), now.and_then(|now| now.uid()))
            })
            .collect();
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
        }
    }

    /// Removes objects in the order of the plan. The objects of a group no longer exist when the
    /// next group starts.
    ///
    /// # Errors
    /// Names the objects that could not be deleted or still exist.
    pub async fn run(&self, inventory: &mut Inventory) -> Outcome<()> {
        for removal in self.planned.iter().filter(|removal| removal.uid.is_none()) {
            inventory.remove(&removal.reference);
        }
        let deletions: Vec<&PlannedRemoval> =
            self.planned.iter().filter(|removal| removal.uid.is_some()).collect();
        let rank = |one: &&PlannedRemoval| order::rank_of_kind(&one.reference, one.wave);
        for group in deletions.chunk_by(|one, next| rank(one) == rank(next)) {
            let result = self.delete_group(inventory, group).await;
            for object in &result.gone {
                inventory.remove(object);
            }
            for object in &result.deleting {
                inventory.record(object, EntryResult::Deleting, None);
            }
            if let Some(failure) = result.failure {
                inventory.save(self.cluster).await?;
                return Err(failure);
            }
        }
        inventory.save(self.cluster).await
    }

    async fn delete_group(&self, inventory: &Inventory, group: &[&PlannedRemoval]) -> GroupResult {
        let uids = self.planned.iter().filter_map(|one| one.uid.clone()).collect();
        let deletions: Vec<Outcome<Deletion>> = stream::iter(group)
            .map(|removal| self.delete(inventory, removal, &uids))
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let mut result = GroupResult::default();
        let (mut deleted, mut problems, mut failures): (Vec<Deleted>, _, _) =
            (vec![], vec![], vec![]);
        for (removal, deletion) in group.iter().zip(deletions) {
            match deletion {
                Ok(Deletion::Started(one)) => deleted.push(one),
                Ok(Deletion::Absent) => result.gone.push(removal.reference.clone()),
                Ok(Deletion::Kept(reason)) => {
                    problems.push(format!("{} stays: {reason}; plan again", removal.reference));
                }
                Err(failure) => failures.push(failure),
            }
        }
        match wait::until_deleted(self.cluster, &deleted, self.waiting).await {
            Ok(left) => {
                for (object, _, _) in deleted {
                    match left.iter().find(|(remaining, _)| *remaining == object) {
                        None => result.gone.push(object),
                        Some((_, finalizers)) => {
                            let problem = format!("{object} is still being deleted{finalizers}");
                            problems.push(problem);
                            result.deleting.push(object);
                        }
                    }
                }
            }
            Err(failure) => {
                result.deleting.extend(deleted.into_iter().map(|(object, ..)| object));
                failures.push(failure);
            }
        }
        problems.extend(failures.iter().map(|failure| failure.message.clone()));
        problems.dedup();
        if !problems.is_empty() {
            let message = listed("objects remain in the cluster", &problems);
            let is_cancelled = failures.iter().any(|failure| failure.is_cancelled());
            let failure =
                if is_cancelled { Failure::cancelled() } else { Failure::failed(message) };
            result.failure = Some(failure);
        }
        result
    }

    /// Deletes one object, if it is still the object of the plan and nothing protects it.
    async fn delete(
        &self,
        inventory: &Inventory,
        removal: &PlannedRemoval,
        uids: &BTreeSet<String>,
    ) -> Outcome<Deletion> {
        self.waiting.check()?;
        let (object, uid) = (&removal.reference, removal.uid.as_deref().unwrap_or_default());
        // If the cluster no longer serves the kind, the object no longer exists.
        let (Some(kind), Some(entry)) = (self.kinds.recorded(object), inventory.entry(object))
        else {
            return Ok(Deletion::Absent);
        };
        let evaluate =
            || obsolete::evaluate_one(self.cluster, self.kinds, entry, self.purpose, uids);
        let mut now = evaluate().await?;
        // Controllers delete what belonged to objects of earlier groups, such as Endpoints, soon.
        let (settled, mut backoff) = (Instant::now() + SETTLE_TIME, wait::MIN_BACKOFF);
        while (object.is_namespace() || object.is_crd())
            && matches!(now.removal, Removal::Forget(_))
            && Instant::now() < settled
        {
            self.waiting.back_off(&mut backoff).await?;
            now = evaluate().await?;
        }
        match (&now.removal, now.uid()) {
            (Removal::Gone, _) => return Ok(Deletion::Absent),
            (Removal::Forget(reason), _) => return Ok(Deletion::Kept(reason.clone())),
            (Removal::Delete, found) if found == Some(uid) => {}
            (Removal::Delete, _) => {
                return Ok(Deletion::Kept("it was deleted and created again".into()));
            }
        }
        self.waiting.check()?;
        let deleted = (object.clone(), kind.clone(), uid.to_owned());
        match self.cluster.delete(kind, object, uid).await {
            Ok(_) => {
                report::log(format!("deleted {object}"));
                Ok(Deletion::Started(deleted))
            }
            Err(error) if error.has_code(404) => Ok(Deletion::Absent),
            // The deletion has already begun, or another object has the name.
            Err(error) if error.has_code(409) => Ok(Deletion::Started(deleted)),
            Err(error) => Err(error.during(&format!("delete {object}"))),
        }
    }
}

/// Result of the request to delete one object.
enum Deletion {
    Started(Deleted),
    Absent,
    /// The object remains, for this reason.
    Kept(String),
}

#[derive(Default)]
struct GroupResult {
    gone: Vec<ObjectRef>,
    deleting: Vec<ObjectRef>,
    failure: Option<Failure>,
}

/// Returns the reason why a removal no longer matches the plan. An object that was deleted in the
/// meantime needs no new plan.
pub fn stale_reason(
    planned: &PlannedRemoval,
    now: Option<&Removal>,
    uid: Option<&str>,
) -> Option<String> {
    let object = &planned.reference;
    match (planned.uid.as_deref(), &planned.stays, now) {
        (_, _, None) => Some(format!("the inventory no longer lists {object}")),
        (_, _, Some(Removal::Gone)) => None,
        (Some(planned), _, Some(Removal::Delete)) if uid == Some(planned) => None,
        (Some(_), _, Some(Removal::Delete)) => {
            Some(format!("{object} was deleted and created again"))
        }
        (Some(_), _, Some(Removal::Forget(reason))) => {
            Some(format!("the plan deletes {object}, and now it would stay: {reason}"))
        }
        (None, Some(_), Some(Removal::Forget(_))) => None,
        (None, Some(_), Some(Removal::Delete)) => {
            Some(format!("the plan keeps {object}, and now it would be deleted"))
        }
        (None, None, Some(Removal::Delete | Removal::Forget(_))) => {
            Some(format!("{object} was created after the plan"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_is_stale_if_it_would_now_be_decided_differently() {
        let planned = |uid: Option<&str>, stays: Option<&str>| PlannedRemoval {
            reference: ObjectRef {
                api_version: "v1".into(),
                kind: "Namespace".into(),
                namespace: None,
                name: "shop".into(),
            },
            wave: 0,
            uid: uid.map(str::to_owned),
            stays: stays.map(str::to_owned),
        };
        let delete = planned(Some("u1"), None);
        let (keep, absent) = (planned(None, Some("kept")), planned(None, None));
        let content = Removal::Forget("it contains Secret shop/database".into());
        let accepted = [
            (&delete, &Removal::Delete, Some("u1")),
            (&delete, &Removal::Gone, None),
            (&keep, &content, Some("u1")),
            (&keep, &Removal::Gone, None),
            (&absent, &Removal::Gone, None),
        ];
        for (planned, now, uid) in accepted {
            assert_eq!(stale_reason(planned, Some(now), uid), None);
        }
        for (planned, now, uid, part) in [
            (&delete, &content, Some("u1"), "now it would stay: it contains Secret shop/database"),
            (&delete, &Removal::Delete, Some("u2"), "created again"),
            (&keep, &Removal::Delete, Some("u1"), "now it would be deleted"),
            (&absent, &Removal::Delete, Some("u1"), "was created after the plan"),
        ] {
            let reason = stale_reason(planned, Some(now), uid).unwrap_or_default();
            assert!(reason.contains(part), "{reason}");
        }
        assert!(stale_reason(&delete, None, None).is_some());
    }
}
