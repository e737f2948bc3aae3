//! Execution of a plan. Before the first effect, it evaluates every object again. A change since
//! the plan makes the plan stale.

use std::path::Path;

use futures::{StreamExt, stream};
use schemas::plugin::{ErrorCode, Operation, StateMark};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Change, Purpose},
    effect::{Checked, Effects},
    evaluate::{self, Evaluated, Subject},
    failure::{Failure, Outcome, listed},
    fields,
    inventory::{EntryResult, Inventory},
    kinds::{Kind, Kinds},
    managed,
    object::{ObjectRef, metadata},
    order::{self, Rank},
    plan_file::{PlanFile, PlannedObject},
    readiness::Barrier,
    rejection::OwnWebhooks,
    removal::Removals,
    report,
    settings::Component,
    wait::{self, Awaited, Waited, Waiting},
};

/// Applies a plan file, for both operations.
pub async fn run(
    component: &Component,
    plan_file: &Path,
    state: &StateMark,
    stop: &CancellationToken,
) -> Outcome<()> {
    let waiting = Waiting { deadline: Instant::now() + component.ready_timeout(), stop };
    let plan = PlanFile::read(plan_file)?;
    let cluster = Cluster::connect(component).await?.until(stop);
    if plan.manager != cluster.manager {
        return Err(Failure::stale("the plan belongs to another component; plan again"));
    }
    if plan.cluster != cluster.identity().await? {
        return Err(Failure::stale(
            "the plan is for another cluster; use the kubeconfig of that cluster, or plan again",
        ));
    }
    let mut inventory = Inventory::load(&cluster, component).await?;
    if inventory.mark() != *state || inventory.mark() != plan.state {
        return Err(Failure::stale("the component changed after the plan; plan again"));
    }
    report::phase("check");
    let versions = plan.objects.iter().map(|one| one.reference.api_version.as_str());
    let kinds = Kinds::load(&cluster, versions).await?;
    let recorded = Kinds::load_recorded(&cluster, plan.removals.iter().map(|one| &one.reference));
    let recorded = recorded.await?;
    let removals = Removals {
        cluster: &cluster,
        kinds: &recorded,
        purpose: match component.operation {
            Operation::Apply => Purpose::Prune,
            Operation::Destroy => Purpose::Destroy,
        },
        planned: &plan.removals,
        waiting: &waiting,
    };
    let webhooks = OwnWebhooks::of(plan.objects.iter().map(|one| (&one.reference, &one.object)));
    let options = (component.settings.take_ownership, &webhooks);
    let check = async {
        let checked = reject_stale(&cluster, &kinds, &inventory, &plan, options).await?;
        removals.check(&inventory).await?;
        Ok(checked)
    };
    let checked = waiting.bound(check).await?;
    let planned = plan.objects.iter().map(|one| {
        let wave = order::wave(&one.object).ok().flatten().unwrap_or_default();
        (one.reference.clone(), wave)
    });
    inventory.begin(&cluster, planned).await?;
    let mut execution =
        Execution { cluster: &cluster, kinds, inventory, checked, waiting: &waiting, options };
    let applied = execution.apply(&plan.objects).await?;
    if !plan.removals.is_empty() {
        // Replacements are ready before the apply removes anything.
        execution.wait(&applied, Barrier::End).await?;
        report::phase("remove");
        removals.run(&mut execution.inventory).await?;
    }
    for removal in &plan.removals {
        if let Some(reason) = &removal.stays {
            report::log(format!("{} stays in the cluster: {reason}", removal.reference));
        }
    }
    execution.finish(&applied).await
}

/// Evaluates every object again. Returns the resource versions of the existing ones.
///
/// # Errors
/// [`Failure::stale`] with the objects that changed since the plan.
async fn reject_stale<'p>(
    cluster: &Cluster,
    kinds: &Kinds,
    inventory: &Inventory,
    plan: &'p PlanFile,
    (take_ownership, webhooks): (bool, &OwnWebhooks),
) -> Outcome<Checked<'p>> {
    let results: Vec<Outcome<CheckResult<'p>>> = stream::iter(&plan.objects)
        .map(|planned| async move {
            // The apply evaluates other objects immediately before their effects.
            let was_evaluated = planned.expected.is_some() || planned.change == Change::Replace;
            if !was_evaluated {
                return Ok(CheckResult::Unchecked);
            }
            let Some(kind) = kinds.get(&planned.reference) else {
                let reason = format!("the cluster no longer serves {}", planned.reference);
                return Ok(CheckResult::Stale(reason));
            };
            let (reference, object) = (&planned.reference, &planned.object);
            let (entry, chosen) = (inventory.entry(reference), Some(planned.chosen.as_slice()));
            let subject =
                Subject { kind, reference, object, entry, take_ownership, webhooks, chosen };
            match evaluate::evaluate(cluster, &subject).await {
                Ok(now) => Ok(CheckResult::of(planned, &now, &cluster.manager)),
                Err(failure) if failure.code == ErrorCode::Refused => {
                    Ok(CheckResult::Stale(failure.message))
                }
                Err(failure) => Err(failure),
            }
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let (mut checked, mut reasons) = (Checked::new(), vec![]);
    for result in results {
        match result? {
            CheckResult::Unchecked => {}
            CheckResult::Current(reference, version) => {
                checked.insert(reference, version);
            }
            CheckResult::Stale(reason) => reasons.push(reason),
        }
    }
    match reasons.is_empty() {
        true => Ok(checked),
        false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
    }
}

/// Result of the check of one object.
enum CheckResult<'p> {
    /// The object does not exist, or only the apply can evaluate it.
    Unchecked,
    /// The object is that of the plan, and has this resource version.
    Current(&'p ObjectRef, String),
    /// Reason why the plan is stale.
    Stale(String),
}

impl<'p> CheckResult<'p> {
    fn of(planned: &'p PlannedObject, now: &Evaluated, manager: &str) -> Self {
        if let Some(reason) = evaluate::stale_reason(planned, now, manager) {
            return CheckResult::Stale(reason);
        }
        let version = now.live.as_ref().and_then(|live| metadata(live, "resourceVersion"));
        match version {
            Some(version) => CheckResult::Current(&planned.reference, version.to_owned()),
            None => CheckResult::Unchecked,
        }
    }
}

/// Object after its effect.
pub struct Applied<'p> {
    pub planned: &'p PlannedObject,
    pub kind: Kind,
    /// Fields that the component owns, in the format `FieldsV1`. An object with only a name has
    /// none.
    owned: Option<Value>,
    /// Normalized object that the plan expects, or that the apply returned.
    expected: Value,
}

struct Execution<'e> {
    cluster: &'e Cluster,
    kinds: Kinds,
    inventory: Inventory,
    checked: Checked<'e>,
    waiting: &'e Waiting<'e>,
    /// `take_ownership`, and the webhooks that the component brings.
    options: (bool, &'e OwnWebhooks),
}

impl Execution<'_> {
    /// Applies the objects in their order. Objects of one wave are ready before the next starts.
    async fn apply<'p>(&mut self, objects: &'p [PlannedObject]) -> Outcome<Vec<Applied<'p>>> {
        report::phase("apply");
        let rank = |one: &PlannedObject| order::rank(&one.reference, &one.object);
        let mut done: Vec<Applied<'p>> = vec![];
        let mut unready = 0;
        let mut last: Option<Rank> = None;
        for group in objects.chunk_by(|one, next| rank(one) == rank(next)) {
            let rank = group.first().map(rank);
            if let (Some(last), Some(rank)) = (last, rank)
                && last.is_barrier_before(&rank)
            {
                self.wait(&done[unready..], Barrier::Wave).await?;
                unready = done.len();
            }
            self.waiting.check()?;
            done.extend(self.apply_group(group).await?);
            last = rank;
        }
        Ok(done)
    }

    async fn apply_group<'p>(&mut self, group: &'p [PlannedObject]) -> Outcome<Vec<Applied<'p>>> {
        if group.iter().any(|one| self.kinds.get(&one.reference).is_none()) {
            let references = group.iter().map(|one| &one.reference);
            self.kinds.wait_for(self.cluster, references, self.waiting).await?;
        }
        let effects = Effects {
            cluster: self.cluster,
            inventory: &self.inventory,
            checked: &self.checked,
            take_ownership: self.options.0,
            webhooks: self.options.1,
            waiting: self.waiting,
        };
        let kinds = &self.kinds;
        let results: Vec<Outcome<(Applied<'p>, Value)>> = stream::iter(group)
            .map(|planned| apply_one(&effects, kinds, planned))
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let (mut done, mut failures) = (vec![], vec![]);
        for result in results {
            match result {
                Ok((applied, live)) => {
                    // An unchanged object that was ready remains ready.
                    let reference = &applied.planned.reference;
                    let is_changed = applied.planned.change != Change::None;
                    let known = self.inventory.entry(reference).map(|entry| entry.result);
                    let result = match known {
                        Some(EntryResult::Ready) if !is_changed => EntryResult::Ready,
                        Some(_) | None => EntryResult::Applied,
                    };
                    self.inventory.record(reference, result, metadata(&live, "uid"));
                    done.push(applied);
                }
                Err(failure) => failures.push(failure),
            }
        }
        if group.iter().any(|one| one.change != Change::None) || !failures.is_empty() {
            self.inventory.save(self.cluster).await?;
        }
        if let Some(at) = failures.iter().position(Failure::is_cancelled) {
            return Err(failures.remove(at));
        }
        match failures.len() {
            0 => Ok(done),
            1 => Err(failures.remove(0)),
            _ => {
                let code = failures.first().map_or(ErrorCode::Failed, |first| first.code);
                let lines: Vec<String> = failures.into_iter().map(|one| one.message).collect();
                Err(Failure { code, message: listed("cannot apply", &lines) })
            }
        }
    }

    /// Waits until objects are ready. Records those that are, even if others never become ready.
    async fn wait(&mut self, applied: &[Applied<'_>], barrier: Barrier) -> Outcome<()> {
        let waited = wait_for(self.cluster, applied, self.waiting, barrier).await;
        let Some(failure) = waited.failure else { return Ok(()) };
        let differing = self.record(applied, &waited.ready);
        self.inventory.save(self.cluster).await?;
        report_differing(&differing);
        Err(failure)
    }

    /// Waits until all objects are ready, and compares them with the plan.
    async fn finish(mut self, applied: &[Applied<'_>]) -> Outcome<()> {
        report::phase("verify");
        let waited = wait_for(self.cluster, applied, self.waiting, Barrier::End).await;
        let differing = self.record(applied, &waited.ready);
        self.inventory.save(self.cluster).await?;
        if let Some(failure) = waited.failure {
            report_differing(&differing);
            return Err(failure);
        }
        match differing.is_empty() {
            true => Ok(()),
            false => Err(Failure::failed(listed(
                "outcome_differs: another program changed these fields during the apply; resolve \
                 the conflict and plan again",
                &differing,
            ))),
        }
    }

    /// Records ready objects, and returns those that differ from the plan.
    fn record(
        &mut self,
        applied: &[Applied<'_>],
        ready: &[(&ObjectRef, Option<Value>)],
    ) -> Vec<String> {
        let mut differing = vec![];
        for one in applied {
            let reference = &one.planned.reference;
            let Some((_, actual)) = ready.iter().find(|(object, _)| *object == reference) else {
                continue;
            };
            // A finished Job can be absent.
            let Some(actual) = actual else { continue };
            let found = one.differences(actual, &self.cluster.manager);
            if found.is_empty() {
                self.inventory.record(reference, EntryResult::Ready, metadata(actual, "uid"));
            } else {
                self.inventory.record(reference, EntryResult::Applied, None);
                differing.push(format!("{reference}: {}", found.join(", ")));
            }
        }
        differing
    }
}

fn report_differing(differing: &[String]) {
    for line in differing {
        report::log(format!("another program changed fields of {line}"));
    }
}

impl Applied<'_> {
    /// Returns the fields of the component that differ from the expected ones.
    fn differences(&self, actual: &Value, manager: &str) -> Vec<String> {
        let Some(owned) = &self.owned else { return vec![] };
        if managed::applied_fields(actual, manager).is_none() {
            return vec!["metadata.managedFields".into()];
        }
        evaluate::unexpected(owned, &self.expected, actual, &self.planned.chosen)
    }
}

async fn wait_for<'a>(
    cluster: &Cluster,
    applied: &'a [Applied<'_>],
    waiting: &Waiting<'_>,
    barrier: Barrier,
) -> Waited<'a> {
    let objects = applied.iter().map(|one| Awaited {
        object: &one.planned.reference,
        kind: one.kind.clone(),
        can_end: wait::can_end(&one.planned.reference, &one.planned.object),
    });
    wait::until_ready(cluster, objects.collect(), waiting, barrier).await
}

/// Executes the planned change of one object and returns the resulting object.
async fn apply_one<'p>(
    effects: &Effects<'_>,
    kinds: &Kinds,
    planned: &'p PlannedObject,
) -> Outcome<(Applied<'p>, Value)> {
    let reference = &planned.reference;
    let Some(kind) = kinds.get(reference).cloned() else {
        return Err(Failure::failed(format!("the cluster does not serve {reference}")));
    };
    let after = effects.perform(&kind, planned).await?;
    let owned = managed::applied_fields(&after, &effects.cluster.manager).cloned();
    let expected = planned.expected.clone().unwrap_or_else(|| fields::normalize(&after));
    Ok((Applied { planned, kind, owned, expected }, after))
}
