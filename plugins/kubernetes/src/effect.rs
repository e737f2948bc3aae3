//! Execution of the planned change of one object.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    cluster::{Cluster, RequestError, Response},
    decide::{Change, conflict_text, reason_to_stop},
    evaluate::{self, Subject},
    failure::{Failure, Outcome},
    inventory::Inventory,
    kinds::Kind,
    managed,
    object::ObjectRef,
    plan_file::PlannedObject,
    rejection::{OwnWebhooks, apply_failure},
    report,
    wait::{self, Waiting},
};

/// Resource versions of the objects that the check of the plan read, by object.
pub type Checked<'p> = BTreeMap<&'p ObjectRef, String>;

/// Context that all changes of one apply share.
pub struct Effects<'e> {
    pub cluster: &'e Cluster,
    pub inventory: &'e Inventory,
    /// Objects that the check of the plan allows to update.
    pub checked: &'e Checked<'e>,
    pub take_ownership: bool,
    pub webhooks: &'e OwnWebhooks,
    pub waiting: &'e Waiting<'e>,
}

impl Effects<'_> {
    /// Executes a planned change and returns the resulting object. Starts no effect after a cancel,
    /// or if the object is no longer that of the plan.
    pub async fn perform(&self, kind: &Kind, planned: &PlannedObject) -> Outcome<Value> {
        self.waiting.check()?;
        if let Some(updated) = self.update_checked(kind, planned).await {
            return Self::finish("updated", &planned.reference, updated);
        }
        let (reference, object) = (&planned.reference, &planned.object);
        let live = self.cluster.live(kind, reference).await?;
        let is_deferred = planned.expected.is_none() && planned.change != Change::Replace;
        let uid = planned.uid.as_deref();
        if is_deferred {
            self.evaluate_deferred(kind, planned).await?;
        } else if let Some(reason) =
            reason_to_stop(planned.change, uid, live.as_ref(), &self.cluster.manager, reference)
        {
            return Err(Failure::failed(format!("{reason}; plan again")));
        }
        let verb = match planned.change {
            Change::None => {
                return live.ok_or_else(|| {
                    Failure::failed(format!("{reference} was deleted during the apply; plan again"))
                });
            }
            Change::Create => "created",
            Change::Update => "updated",
            Change::Adopt => "adopted",
            Change::Replace => "replaced",
        };
        let applied = match (planned.change, uid) {
            (Change::Replace, Some(uid)) => {
                self.delete(kind, reference, uid).await?;
                self.cluster.apply(kind, reference, object, false).await
            }
            (Change::Adopt, Some(uid)) => {
                if let Some(live) = &live {
                    self.release(kind, planned, live).await?;
                }
                self.cluster.apply(kind, reference, &with_uid(object, uid), false).await
            }
            (_, Some(uid)) => {
                self.cluster.apply(kind, reference, &with_uid(object, uid), false).await
            }
            (_, None) => self.cluster.apply(kind, reference, object, false).await,
        };
        Self::finish(verb, reference, applied)
    }

    /// Updates an object that nothing changed since the check of the plan, without another read: the
    /// server refuses the update of another version. Returns `None` if the object must be read.
    async fn update_checked(&self, kind: &Kind, planned: &PlannedObject) -> Option<Response> {
        let (Change::Update, Some(uid)) = (planned.change, &planned.uid) else { return None };
        let version = self.checked.get(&planned.reference)?;
        let mut object = with_uid(&planned.object, uid);
        object["metadata"]["resourceVersion"] = version.as_str().into();
        match self.cluster.apply(kind, &planned.reference, &object, false).await {
            Err(error) if is_outdated(&error) => None,
            updated => Some(updated),
        }
    }

    /// Logs a change, or converts its error.
    fn finish(verb: &str, reference: &ObjectRef, applied: Response) -> Outcome<Value> {
        match applied {
            Ok(after) => {
                report::log(format!("{verb} {reference}"));
                Ok(after)
            }
            Err(error) => {
                let conflicts = error.status().map(managed::conflicts).unwrap_or_default();
                Err(match conflicts.is_empty() {
                    true => Failure::failed(apply_failure(reference, error).message),
                    false => Failure::failed(conflict_text(reference, &conflicts)),
                })
            }
        }
    }

    /// Evaluates an object that the plan could not evaluate. Its kind, namespace or webhook exists
    /// now.
    async fn evaluate_deferred(&self, kind: &Kind, planned: &PlannedObject) -> Outcome<()> {
        let (reference, object) = (&planned.reference, &planned.object);
        let (entry, take_ownership) = (self.inventory.entry(reference), self.take_ownership);
        let (webhooks, chosen) = (self.webhooks, Some(planned.chosen.as_slice()));
        let subject = Subject { kind, reference, object, entry, take_ownership, webhooks, chosen };
        let now = evaluate::evaluate(self.cluster, &subject).await?;
        let is_planned =
            now.decision.change == planned.change || now.decision.change == Change::None;
        match is_planned && now.uid() == planned.uid.as_deref() {
            true => Ok(()),
            false => {
                Err(Failure::failed(format!("{reference} changed after the plan; plan again")))
            }
        }
    }

    /// Moves the fields that the component sets from kubectl's field managers to the component, as
    /// the plan announced. The fields of controllers and of server-side applies stay conflicts.
    async fn release(&self, kind: &Kind, planned: &PlannedObject, live: &Value) -> Outcome<()> {
        let (reference, object) = (&planned.reference, &planned.object);
        if let Err(error) = self.cluster.apply(kind, reference, object, true).await {
            let conflicts = error.status().map(managed::conflicts).unwrap_or_default();
            if conflicts.is_empty() {
                return Err(apply_failure(reference, error));
            }
            if !managed::are_of_kubectl(&conflicts) {
                return Err(Failure::failed(conflict_text(reference, &conflicts)));
            }
        }
        let after = self.cluster.forced_dry_run(kind, reference, object).await;
        let after = after.map_err(|error| apply_failure(reference, error))?;
        let release = managed::release(live, &after, &self.cluster.manager);
        if release.managers.is_empty() {
            return Ok(());
        }
        let fields = &release.managed_fields;
        let patched = self.cluster.set_managed_fields(kind, reference, live, fields).await;
        patched.map(drop).map_err(|error| apply_failure(reference, error))
    }

    /// Deletes the object of the plan before [`Effects::perform`] creates it again.
    async fn delete(&self, kind: &Kind, reference: &ObjectRef, uid: &str) -> Outcome<()> {
        match self.cluster.delete(kind, reference, uid).await {
            Ok(_) => {}
            Err(error) if error.has_code(404) => return Ok(()),
            Err(error) => return Err(error.during(&format!("delete {reference}"))),
        }
        let deleted = [(reference.clone(), kind.clone(), uid.to_owned())];
        match wait::until_deleted(self.cluster, &deleted, self.waiting).await?.first() {
            None => Ok(()),
            Some((object, finalizers)) => Err(Failure::failed(format!(
                "cannot replace {object}: its deletion has not finished{finalizers}; remove the \
                 finalizers, or wait and plan again"
            ))),
        }
    }
}

/// Returns whether another version of the object exists than that of the request, or none.
fn is_outdated(error: &RequestError) -> bool {
    let has_conflicts = error.status().is_some_and(|one| !managed::conflicts(one).is_empty());
    error.has_code(409) && !has_conflicts || error.has_code(404)
}

/// Adds the UID of the live object. The server refuses the change of an object with another UID.
fn with_uid(object: &Value, uid: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["uid"] = uid.into();
    object
}
