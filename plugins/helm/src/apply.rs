//! Execution of a plan. Before the first effect, every object is evaluated again: a change since
//! the plan makes it stale. Helm executes the static chart, so only the approved texts apply.

use std::path::Path;

use futures::{StreamExt, stream};
use schemas::plugin::{ErrorCode, Operation, StateMark};
use serde_json::json;
use stead_plugin_kubernetes::{
    cluster::CONCURRENCY,
    failure::{Failure, Outcome},
    inventory::{EntryResult, Inventory},
    kinds::Kinds,
    object::metadata,
    report,
    wait::Waiting,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    access::Access,
    chart, check,
    current::Details,
    former_hooks,
    helm::{Limits, args, refs},
    hooks, keep,
    plan_file::{PlanFile, ReleaseChange},
    progress,
    release::{self, Release},
    removal,
    settings::Component,
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
    let (identity, inventory) =
        tokio::try_join!(cluster.identity(), Inventory::load(cluster, component))?;
    if plan.cluster != identity {
        return Err(Failure::stale(
            "the plan is for another cluster; use the kubeconfig of that cluster, or plan again",
        ));
    }
    let mut inventory = inventory;
    if inventory.mark() != *state || inventory.mark() != plan.state {
        return Err(Failure::stale("the component changed after the plan; plan again"));
    }
    report::phase("check");
    let mut details = Details::of(&inventory);
    let checked = async {
        let kinds = check::release_and_kinds(cluster, &plan).await?;
        tokio::try_join!(
            check::objects(&access, &kinds, &plan, component.settings.take_ownership),
            hooks::check(cluster, &kinds, &plan),
            check::removals(cluster, &inventory, &details, &plan)
        )?;
        Ok(kinds)
    };
    let version = check::version(&access.helm, &plan.helm);
    let (kinds, ()) = tokio::try_join!(waiting.bound(checked), version)?;
    details.release = Some(plan.release.clone());
    details.revision = plan.change.as_ref().map_or(details.revision, |change| change.revision);
    former_hooks::begin(&mut details.hooks, &plan);
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
        details.hooks = former_hooks::existing(cluster, &details.hooks).await?;
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
        // The next install replaces the objects that stay.
        details.hooks = former_hooks::existing(cluster, &details.hooks).await?;
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
