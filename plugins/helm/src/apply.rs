//! Execution of a plan. Before the first effect, every object is evaluated again: a change since
//! the plan makes it stale. Helm executes the static chart, so only the approved texts apply.

use std::path::Path;

use futures::{StreamExt, stream};
use schemas::plugin::{ErrorCode, Operation, StateMark};
use serde_json::{Value, json};
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Change, Removal},
    evaluate,
    failure::{Failure, Outcome, listed},
    inventory::{EntryResult, Inventory},
    kinds::Kinds,
    managed,
    object::metadata,
    rejection::OwnWebhooks,
    removal::stale_reason as stale_removal,
    report,
    wait::Waiting,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    access::{self, Access},
    chart,
    current::{Current, Details},
    destroy,
    helm::{Limits, args, refs},
    keep,
    plan::{self, Evaluated, Rules, evaluate_object},
    plan_file::{PlanFile, ReleaseChange, ReleaseObject},
    progress,
    release::{self, Release},
    removal,
    settings::Component,
    version,
};

/// Applies a plan file, for both operations.
pub async fn run(
    component: &Component,
    plan_file: &Path,
    state: &StateMark,
    stop: &CancellationToken,
) -> Outcome<()> {
    let waiting = Waiting { deadline: Instant::now() + component.settings.ready_timeout(), stop };
    let plan = PlanFile::read(plan_file)?;
    let access = Access::open(component).await?.until(stop);
    let cluster = &access.cluster;
    if plan.manager != cluster.manager || plan.operation != component.operation {
        return Err(Failure::stale("the plan belongs to another component; plan again"));
    }
    if plan.cluster != cluster.identity().await? {
        return Err(Failure::stale(
            "the plan is for another cluster; use the kubeconfig of that cluster, or plan again",
        ));
    }
    let mut inventory = Inventory::load(cluster, component).await?;
    if inventory.mark() != *state || inventory.mark() != plan.state {
        return Err(Failure::stale("the component changed after the plan; plan again"));
    }
    let version = version::of(&access.helm).await?.to_string();
    if plan.helm != version {
        return Err(Failure::stale(format!(
            "the plan was made by Helm {}, and this runner has Helm {version}; plan again",
            plan.helm
        )));
    }
    report::phase("check");
    let records = release::records(cluster, &plan.release).await?;
    if records.last() != plan.last.as_ref() {
        return Err(Failure::stale(format!(
            "another program changed {} after the plan; plan again",
            plan.release
        )));
    }
    let versions = plan.objects.iter().map(|one| one.reference.api_version.as_str());
    let mut kinds = Kinds::load(cluster, versions).await?;
    let removed = plan.removals.iter().map(|one| &one.reference).chain(&plan.kept);
    kinds.extend(Kinds::load_recorded(cluster, removed).await?);
    let mut details = Details::of(&inventory);
    let checked = async {
        check(&access, &kinds, &plan, component.settings.take_ownership).await?;
        check_removals(cluster, &inventory, &details, &plan).await
    };
    waiting.bound(checked).await?;
    details.release = Some(plan.release.clone());
    details.revision = plan.change.as_ref().map_or(details.revision, |change| change.revision);
    inventory.set_details(json!(details));
    let definitions = plan.definitions.iter().cloned();
    let planned = plan.objects.iter().map(|one| one.reference.clone()).chain(definitions);
    inventory.begin(cluster, planned.map(|reference| (reference, 0))).await?;
    let execution = Execution { access: &access, kinds, inventory, waiting: &waiting, plan: &plan };
    match component.operation {
        Operation::Apply => execution.apply(details).await,
        Operation::Destroy => execution.destroy(details).await,
    }
}

/// Evaluates every object again.
///
/// # Errors
/// [`Failure::stale`] with the objects that changed since the plan.
async fn check(
    access: &Access,
    kinds: &Kinds,
    plan: &PlanFile,
    take_ownership: bool,
) -> Outcome<()> {
    let manager = &access.helm_manager(plan.is_server_side);
    let objects = plan.objects.iter().map(|one| (&one.reference, &one.object));
    let webhooks = &OwnWebhooks::of(objects);
    let reasons: Vec<Outcome<Option<String>>> = stream::iter(&plan.objects)
        .map(|planned| async move {
            // Helm decides objects that the plan could not evaluate.
            let Some(expected) = &planned.expected else { return Ok(None) };
            let reference = &planned.reference;
            let Some(kind) = kinds.get(reference) else {
                return Ok(Some(format!("the cluster no longer serves {reference}")));
            };
            let (release, random) = (&plan.release, planned.random.as_slice());
            let rules = Rules { release, random, take_ownership, webhooks };
            match evaluate_object(manager, (kind, reference, &planned.object), &rules).await {
                Ok(now) => Ok(stale_reason(planned, expected, &now)),
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

/// Decides about every removal again. Helm deletes by name.
///
/// # Errors
/// [`Failure::stale`] with the objects whose removal the plan would now decide differently.
async fn check_removals(
    cluster: &Cluster,
    inventory: &Inventory,
    details: &Details,
    plan: &PlanFile,
) -> Outcome<()> {
    let release = &plan.release;
    let decided = match plan.operation {
        Operation::Apply => {
            let current = Current::load(cluster, release, details).await?;
            let removals = plan::removals(cluster, (inventory, &current), release, &plan.objects);
            removals.await.map(|(removals, _)| removals)
        }
        Operation::Destroy => {
            let current = destroy::current(cluster, release, details).await?;
            destroy::removals(cluster, (inventory, &current), release).await
        }
    };
    let now = match decided {
        Err(failure) if failure.code == ErrorCode::Refused => {
            return Err(Failure::stale(failure.message));
        }
        decided => decided?,
    };
    let reasons: Vec<String> = plan
        .removals
        .iter()
        .filter_map(|planned| {
            let now = now.iter().find(|one| one.reference.is_same(&planned.reference));
            let removal = now.map(|one| match (&one.uid, &one.stays) {
                (Some(_), _) => Removal::Delete,
                (None, Some(reason)) => Removal::Forget(reason.clone()),
                (None, None) => Removal::Gone,
            });
            stale_removal(planned, removal.as_ref(), now.and_then(|one| one.uid.as_deref()))
        })
        .collect();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
    }
}

/// Returns why an evaluation no longer matches the plan. Fields of other managers can change at any
/// time, such as the replicas of an autoscaled Deployment.
fn stale_reason(planned: &ReleaseObject, expected: &Value, now: &Evaluated) -> Option<String> {
    let reference = &planned.reference;
    if now.decision.change != planned.change {
        return Some(format!("{reference} changed since the plan"));
    }
    if planned.change == Change::None {
        return None;
    }
    let after = now.after.as_ref()?;
    // The dry run returns the fields that Helm applies.
    let all = Value::Null;
    let owned = managed::applied_fields(after, access::MANAGER).unwrap_or(&all);
    let differing = evaluate::unexpected(owned, expected, after, &planned.chosen);
    (!differing.is_empty())
        .then(|| format!("{reference} changed since the plan: {}", differing.join(", ")))
}

struct Execution<'e> {
    access: &'e Access,
    kinds: Kinds,
    inventory: Inventory,
    waiting: &'e Waiting<'e>,
    plan: &'e PlanFile,
}

impl Execution<'_> {
    /// Installs or upgrades the release.
    async fn apply(mut self, mut details: Details) -> Outcome<()> {
        let Some(change) = &self.plan.change else { return Ok(()) };
        let (cluster, release) = (&self.access.cluster, &self.plan.release);
        for version in &change.dropped {
            release::delete(cluster, release, *version).await?;
            report::log(format!("removed the record of revision {version} of {release}"));
        }
        for reference in &self.plan.kept {
            if let Some(kind) = self.kinds.recorded(reference) {
                keep::mark(cluster, kind, reference).await?;
            }
        }
        report::phase(change.verb.name());
        let installed = self.execute(change).await?;
        let differs = differences(change, &installed);
        details.chart = change.chart.clone();
        self.inventory.set_details(json!(details));
        self.record().await?;
        if !self.plan.removals.is_empty() {
            report::phase("remove");
            // Helm has deleted the objects of its last manifest.
            let removals = &self.plan.removals;
            let Execution { kinds, inventory, waiting, .. } = &mut self;
            removal::run((cluster, kinds), inventory, (release, removals), waiting).await?;
        }
        self.inventory.save(cluster).await?;
        for line in installed.info.notes.lines() {
            report::log(line);
        }
        differs
    }

    /// Runs Helm, and reports the progress of the objects.
    async fn execute(&self, change: &ReleaseChange) -> Outcome<Release> {
        let release = &self.plan.release;
        let (chart, values) = change.content.write(self.access.helm.dir())?;
        let timeout = self.waiting.deadline.saturating_duration_since(Instant::now());
        let mut command = args([change.verb.name(), &release.name]);
        command.push(chart.into());
        command.extend(args(["--namespace", &release.namespace, "--values"]));
        command.push(values.into());
        let seconds = format!("{}s", timeout.as_secs().max(1));
        command.extend(args(["--wait", "--timeout", &seconds, "--output", "json"]));
        if change.creates_namespace {
            command.push("--create-namespace".into());
        }
        if change.adopts {
            command.push("--take-ownership".into());
        }
        let command = refs(&command);
        // Helm itself ends at the limit, and records the release as failed.
        let timeout = timeout + std::time::Duration::from_secs(30);
        let limits = Limits { timeout, stop: Some(self.waiting.stop) };
        let objects = self.plan.objects.iter();
        let objects = objects
            .filter_map(|one| Some((&one.reference, self.kinds.get(&one.reference)?.clone())));
        let output = tokio::select! {
            output = self.access.helm.run(&command, limits) => output,
            never = progress::watch(&self.access.cluster, objects.collect()) => match never {},
        };
        let output = output.map_err(|failure| match failure.code {
            ErrorCode::Failed => Failure::failed(format!(
                "{}\n{release} stays as it is; correct the cause and deploy again",
                failure.message
            )),
            ErrorCode::Cancelled
            | ErrorCode::PlanStale
            | ErrorCode::ToolMissing
            | ErrorCode::Refused
            | ErrorCode::Unsupported => failure,
        })?;
        output.warnings().into_iter().for_each(report::log);
        serde_json::from_slice(&output.stdout)
            .map_err(|e| Failure::failed(format!("cannot read the output of helm: {e}")))
    }

    /// Records the objects of the release with their UIDs.
    async fn record(&mut self) -> Outcome<()> {
        let cluster = &self.access.cluster;
        let objects = self.plan.objects.iter().map(|one| &one.reference);
        let objects: Vec<_> = objects.chain(&self.plan.definitions).collect();
        let versions = objects.iter().map(|one| one.api_version.as_str());
        self.kinds.extend(Kinds::load(cluster, versions).await?);
        let kinds = &self.kinds;
        let live: Vec<_> = stream::iter(objects)
            .map(|reference| async move {
                let Some(kind) = kinds.get(reference) else { return Ok((reference, None)) };
                cluster.live(kind, reference).await.map(|live| (reference, live))
            })
            .buffered(CONCURRENCY)
            .collect()
            .await;
        for read in live {
            let (reference, live) = read?;
            let uid = live.as_ref().and_then(|live| metadata(live, "uid"));
            self.inventory.record(reference, EntryResult::Ready, uid);
        }
        Ok(())
    }

    /// Uninstalls the release, and removes objects of interrupted operations.
    async fn destroy(mut self, mut details: Details) -> Outcome<()> {
        let (cluster, release) = (&self.access.cluster, &self.plan.release);
        if self.plan.last.is_some() {
            report::phase("uninstall");
            let timeout = self.waiting.deadline.saturating_duration_since(Instant::now());
            let seconds = format!("{}s", timeout.as_secs().max(1));
            let command = args([
                "uninstall",
                &release.name,
                "--namespace",
                &release.namespace,
                "--wait",
                "--timeout",
                &seconds,
            ]);
            let timeout = timeout + std::time::Duration::from_secs(30);
            let limits = Limits { timeout, stop: Some(self.waiting.stop) };
            let output = self.access.helm.run(&refs(&command), limits).await?;
            output.warnings().into_iter().for_each(report::log);
            report::log(format!("uninstalled {release}"));
        }
        report::phase("remove");
        let removals = &self.plan.removals;
        let Execution { kinds, inventory, waiting, .. } = &mut self;
        removal::run((cluster, kinds), inventory, (release, removals), waiting).await?;
        for removal in removals {
            if let Some(reason) = &removal.stays {
                report::log(format!("{} stays in the cluster: {reason}", removal.reference));
            }
        }
        (details.release, details.chart) = (None, String::new());
        self.inventory.set_details(json!(details));
        self.inventory.save(cluster).await
    }
}

/// Compares the documents that Helm applied with the approved ones.
fn differences(change: &ReleaseChange, installed: &Release) -> Outcome<()> {
    let approved: Vec<String> = change.content.documents().collect();
    // Helm adds the path of the static template to each document.
    let applied = chart::documents(&installed.manifest).into_iter().map(|document| match document
        .split_once('\n')
    {
        Some((source, rest)) if source.starts_with("# Source: ") => rest,
        Some(_) | None => document,
    });
    let applied: Vec<&str> = applied.collect();
    let is_same = approved.len() == applied.len()
        && approved.iter().zip(&applied).all(|(one, other)| one.trim() == other.trim());
    match is_same {
        true => Ok(()),
        false => Err(Failure::failed(
            "outcome_differs: Helm applied other objects than the approved ones; report this as a \
             defect, and plan again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use stead_plugin_kubernetes::{decide::Decision, fields, object::ObjectRef};

    use super::*;

    /// Deployment whose image Helm applies, and whose replicas an autoscaler sets.
    fn web(image: &str, replicas: u32) -> Value {
        json!({ "metadata": { "managedFields": [{ "manager": "helm", "operation": "Apply",
            "fieldsV1": { "f:spec": { "f:image": {} } } }] },
            "spec": { "image": image, "replicas": replicas } })
    }

    #[test]
    fn only_fields_of_the_release_make_a_plan_stale() {
        let expected = fields::normalize(&web("web:2", 3));
        let planned = ReleaseObject {
            reference: ObjectRef {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: Some("shop".into()),
                name: "web".into(),
            },
            change: Change::Update,
            object: Value::Null,
            expected: Some(expected.clone()),
            chosen: vec![],
            random: vec![],
        };
        let stale = |after: Value| {
            let decision = Decision { change: Change::Update, attributes: vec![] };
            let now = Evaluated { decision, live: None, after: Some(after) };
            stale_reason(&planned, &expected, &now)
        };
        assert_eq!(stale(web("web:2", 5)), None, "an autoscaler");
        assert!(stale(web("web:3", 3)).unwrap().ends_with("changed since the plan: spec.image"));
        // Without managed fields, every field counts.
        let bare = json!({ "spec": { "image": "web:2", "replicas": 5 } });
        assert!(stale(bare).unwrap().ends_with("spec.replicas"));
    }
}
