//! Execution of a plan. Before the first effect, it evaluates every object again. A change since
//! the plan makes the plan stale.

use std::path::Path;

use futures::{StreamExt, stream};
use schemas::plugin::{ErrorCode, StateMark};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    decide::Change,
    effect::Effects,
    evaluate::{self, Subject},
    failure::{Failure, Outcome, listed},
    fields,
    inventory::{EntryResult, Inventory},
    kinds::{Kind, Kinds},
    managed,
    object::{ObjectRef, metadata},
    order::{self, Rank},
    plan_file::{PlanFile, PlannedObject},
    removal, report,
    settings::Component,
    wait::{self, Waiting},
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
    let cluster = Cluster::connect(component).await?;
    if plan.manager != cluster.manager {
        return Err(Failure::stale("the plan belongs to another component; make a new plan"));
    }
    if plan.cluster != cluster.identity().await? {
        return Err(Failure::stale(
            "the plan was made for another cluster; use the kubeconfig of that cluster, or make a \
             new plan",
        ));
    }
    let mut inventory = Inventory::load(&cluster, component).await?;
    if inventory.mark() != *state || inventory.mark() != plan.state {
        return Err(Failure::stale("the component changed after the plan; make a new plan"));
    }
    report::phase("check");
    let versions = plan.objects.iter().map(|one| one.reference.api_version.as_str());
    let mut kinds = Kinds::load(&cluster, versions).await?;
    let removed = plan.removals.iter().map(|one| &one.reference);
    kinds.extend(Kinds::load_recorded(&cluster, removed).await?);
    check(&cluster, &kinds, &inventory, &plan, component.settings.take_ownership).await?;
    waiting.check()?;
    let planned = plan.objects.iter().map(|one| {
        let wave = order::wave(&one.object).ok().flatten().unwrap_or_default();
        (one.reference.clone(), wave)
    });
    inventory.begin(&cluster, planned).await?;
    let mut execution =
        Execution { cluster: &cluster, kinds, inventory, waiting: &waiting, component };
    let applied = execution.apply(&plan.objects).await?;
    if !plan.removals.is_empty() {
        // Replacements are ready before the apply removes anything.
        wait_for(&cluster, &applied, &waiting).await?;
        report::phase("remove");
        let Execution { kinds, inventory, .. } = &mut execution;
        removal::run(&cluster, kinds, inventory, &plan.removals, &waiting).await?;
    }
    for removal in &plan.removals {
        if let Some(reason) = &removal.stays {
            report::log(format!("{} stays in the cluster: {reason}", removal.reference));
        }
    }
    execution.finish(&applied).await
}

/// Evaluates every object again.
///
/// # Errors
/// [`Failure::stale`] with the objects that changed since the plan.
async fn check(
    cluster: &Cluster,
    kinds: &Kinds,
    inventory: &Inventory,
    plan: &PlanFile,
    take_ownership: bool,
) -> Outcome<()> {
    let reasons: Vec<Outcome<Option<String>>> = stream::iter(&plan.objects)
        .map(|planned| async move {
            // The apply evaluates other objects immediately before their effects.
            let is_judged = planned.expected.is_some() || planned.change == Change::Replace;
            if !is_judged {
                return Ok(None);
            }
            let Some(kind) = kinds.get(&planned.reference) else {
                return Ok(Some(format!("the cluster no longer serves {}", planned.reference)));
            };
            let (reference, object) = (&planned.reference, &planned.object);
            let entry = inventory.entry(reference);
            let subject = Subject { kind, reference, object, entry, take_ownership };
            match evaluate::evaluate(cluster, &subject).await {
                Ok(now) => {
                    let expected = planned.expected.as_ref();
                    let planned = (planned.change, expected, planned.chosen.as_slice());
                    Ok(evaluate::stale_reason(reference, planned, &now))
                }
                Err(failure) if failure.code == ErrorCode::Refused => Ok(Some(failure.message)),
                Err(failure) => Err(failure),
            }
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let reasons = reasons.into_iter().collect::<Outcome<Vec<_>>>()?;
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
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
    waiting: &'e Waiting<'e>,
    component: &'e Component,
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
                wait_for(self.cluster, &done[unready..], self.waiting).await?;
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
            take_ownership: self.component.settings.take_ownership,
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

    /// Waits until all objects are ready, and compares them with the plan.
    async fn finish(mut self, applied: &[Applied<'_>]) -> Outcome<()> {
        report::phase("verify");
        let live = wait_for(self.cluster, applied, self.waiting).await?;
        let mut differing = vec![];
        for one in applied {
            let reference = &one.planned.reference;
            let Some((_, actual)) = live.iter().find(|(object, _)| *object == reference) else {
                continue;
            };
            let found = one.differences(actual, &self.cluster.manager);
            if found.is_empty() {
                self.inventory.record(reference, EntryResult::Ready, metadata(actual, "uid"));
            } else {
                self.inventory.record(reference, EntryResult::Applied, None);
                differing.push(format!("{reference}: {}", found.join(", ")));
            }
        }
        self.inventory.save(self.cluster).await?;
        match differing.is_empty() {
            true => Ok(()),
            false => Err(Failure::failed(listed(
                "outcome_differs: these fields are not as planned, because another program \
                 changed them",
                &differing,
            ))),
        }
    }
}

impl Applied<'_> {
    /// Returns the fields of the component that differ from the expected ones.
    fn differences(&self, actual: &Value, manager: &str) -> Vec<String> {
        let Some(owned) = &self.owned else { return vec![] };
        if managed::applied_fields(actual, manager).is_none() {
            return vec!["metadata.managedFields".into()];
        }
        let expected = managed::project(owned, &self.expected);
        let actual = managed::project(owned, &fields::normalize(actual));
        evaluate::unexpected(&self.planned.reference, &expected, &actual, &self.planned.chosen)
    }
}

async fn wait_for<'a>(
    cluster: &Cluster,
    applied: &'a [Applied<'_>],
    waiting: &Waiting<'_>,
) -> Outcome<Vec<(&'a ObjectRef, Value)>> {
    let objects = applied.iter().map(|one| (&one.planned.reference, one.kind.clone()));
    wait::ready(cluster, objects.collect(), waiting).await
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
