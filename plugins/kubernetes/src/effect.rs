//! Execution of the planned change of one object.

use serde_json::Value;

use crate::{
    cluster::Cluster,
    decide::{Change, conflict_text},
    evaluate::{self, Subject},
    failure::{Failure, Outcome},
    inventory::Inventory,
    kinds::Kind,
    managed,
    object::{ObjectRef, metadata},
    plan_file::PlannedObject,
    report,
    wait::{self, Waiting},
};

/// Context that all changes of one apply share.
pub struct Effects<'e> {
    pub cluster: &'e Cluster,
    pub inventory: &'e Inventory,
    pub take_ownership: bool,
    pub waiting: &'e Waiting<'e>,
}

impl Effects<'_> {
    /// Executes a planned change and returns the resulting object.
    pub async fn perform(&self, kind: &Kind, planned: &PlannedObject) -> Outcome<Value> {
        let (reference, object) = (&planned.reference, &planned.object);
        let verb = match planned.change {
            Change::None => return self.existing(kind, reference).await,
            Change::Create => "created",
            Change::Update => "updated",
            Change::Adopt => "adopted",
            Change::Replace => "replaced",
        };
        if planned.change == Change::Replace {
            self.delete(kind, reference).await?;
        } else if planned.expected.is_none() {
            self.judge(kind, planned).await?;
        }
        match self.cluster.apply(kind, reference, object, false).await {
            Ok(after) => {
                report::log(format!("{verb} {reference}"));
                Ok(after)
            }
            Err(error) => {
                let conflicts = error.status().map(managed::conflicts).unwrap_or_default();
                Err(match conflicts.is_empty() {
                    true => Failure::failed(evaluate::apply_failure(reference, error).message),
                    false => Failure::failed(conflict_text(reference, &conflicts)),
                })
            }
        }
    }

    /// Evaluates an object that the plan could not evaluate. Its kind, namespace or webhook exists
    /// now.
    async fn judge(&self, kind: &Kind, planned: &PlannedObject) -> Outcome<()> {
        let (reference, object) = (&planned.reference, &planned.object);
        let (entry, take_ownership) = (self.inventory.entry(reference), self.take_ownership);
        let subject = Subject { kind, reference, object, entry, take_ownership };
        let change = evaluate::evaluate(self.cluster, &subject).await?.decision.change;
        match change == planned.change || change == Change::None {
            true => Ok(()),
            false => {
                Err(Failure::failed(format!("{reference} changed after the plan; plan again")))
            }
        }
    }

    async fn existing(&self, kind: &Kind, reference: &ObjectRef) -> Outcome<Value> {
        let live = self.cluster.live(kind, reference).await?;
        live.ok_or_else(|| Failure::failed(format!("{reference} was deleted during the apply")))
    }

    /// Deletes an object before [`Effects::perform`] creates it again.
    async fn delete(&self, kind: &Kind, reference: &ObjectRef) -> Outcome<()> {
        let Some(live) = self.cluster.live(kind, reference).await? else { return Ok(()) };
        let uid = metadata(&live, "uid").unwrap_or_default().to_owned();
        match self.cluster.delete(kind, reference, &uid).await {
            Ok(_) => {}
            Err(error) if error.has_code(404) => return Ok(()),
            Err(error) => return Err(error.during(&format!("delete {reference}"))),
        }
        let deleted = [(reference.clone(), kind.clone(), uid)];
        match wait::gone(self.cluster, &deleted, self.waiting).await?.first() {
            None => Ok(()),
            Some((object, finalizers)) => Err(Failure::failed(format!(
                "cannot replace {object}: it is still being deleted{finalizers}"
            ))),
        }
    }
}
