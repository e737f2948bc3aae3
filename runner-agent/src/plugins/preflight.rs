//! Preflight of a run: checks everything that the later jobs of the run need, and reports all
//! findings at once.
//!
//! A plugin starts only if the policy would allow the jobs that use it.

mod registries;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use domain::image::COMPONENT_TYPES;
use oci_layout::Layout;
use schemas::{
    cluster::CLUSTER_INPUT,
    manifest::Manifest,
    plugin,
    preflight::{PlannedJob, PreflightInputs, Rendered},
    runner::{Check, CheckStatus, JobKind},
};
use serde_json::Value;

use super::{
    cluster::{self, ClusterAccess},
    contract::{JobContext, Outcome, PluginError, Rules, Sink, Stream},
    external::External,
    plugin::{Halt, IoContext, Plugin, Work},
    source, terraform,
};
use crate::{host, isolation};

/// Disk space that the runner reserves for the state during an apply.
const APPLY_RESERVE_BYTES: u64 = 64 << 20;

/// Checks of one preflight.
struct Preflight<'a> {
    work: &'a Work<'a>,
    jobs: &'a [PlannedJob],
    checks: Vec<Check>,
}

/// Runs the job of a preflight.
pub(super) async fn run(work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    let inputs = PreflightInputs::of(work.manifest).ok_or_else(|| {
        PluginError::Refused("cannot check the run: the manifest's inputs are malformed".into())
    })?;
    sink.phase("preflight");
    let rules = work.job.rules.as_ref().ok_or_else(|| {
        PluginError::Refused("cannot check the run: the rules of this runner are missing".into())
    })?;
    let mut preflight = Preflight { work, jobs: &inputs.jobs, checks: Vec::new() };
    let allowed = preflight.check_policy(rules);
    preflight.check_isolation(rules).await;
    preflight.check_terraform(&allowed, sink).await?;
    preflight.check_plugins(&allowed, sink).await?;
    preflight.check_registries(&allowed, sink).await?;
    preflight.check_disk();
    preflight.list_deferred();
    let checks = preflight.checks;
    for check in &checks {
        let line = format!("{}: {}", check.status.as_str(), check.text());
        sink.line(Stream::Runner, line.as_bytes());
    }
    sink.checks(checks).doing(|| "cannot report the checks".into())?;
    Ok(())
}

impl Preflight<'_> {
    fn add(
        &mut self,
        component: Option<&str>,
        check: &str,
        status: CheckStatus,
        message: impl Into<String>,
    ) {
        let (component, check) = (component.map(str::to_owned), check.to_owned());
        self.checks.push(Check { component, check, status, message: message.into() });
    }

    /// Checks the rules of the policy. Returns the positions of the jobs that it does not refuse.
    fn check_policy(&mut self, rules: &Rules) -> BTreeSet<usize> {
        let Rules { policy, publishers, trial: _ } = rules;
        let found = policy.findings(self.work.manifest, self.jobs, publishers, host::now());
        let mut allowed: BTreeSet<usize> = (0..self.jobs.len()).collect();
        for finding in found {
            let names: Vec<&str> =
                finding.jobs.iter().map(|at| self.jobs[*at].name.as_str()).collect();
            let check = format!("policy {}", finding.rule);
            let (component, suffix) = match names.as_slice() {
                [] => (None, String::new()),
                [only] => (Some(*only), String::new()),
                several => (None, format!(" (for {})", several.join(", "))),
            };
            if finding.status == CheckStatus::Failed {
                allowed.retain(|at| !finding.jobs.contains(at));
            }
            self.add(component, &check, finding.status, format!("{}{suffix}", finding.message));
        }
        if allowed.len() == self.jobs.len() {
            self.add(None, "policy", CheckStatus::Ok, "it allows all jobs of the run");
        }
        allowed
    }

    /// Checks that the host supports the isolation that the jobs need.
    async fn check_isolation(&mut self, rules: &Rules) {
        let kinds: BTreeSet<JobKind> =
            self.jobs.iter().flat_map(|job| job.kinds.iter().copied()).collect();
        let mut has_network = false;
        for kind in kinds {
            match isolation::choose(&rules.policy, kind, &rules.trial).await {
                Ok(choice) => has_network |= choice.pasta.is_some(),
                Err(refusal) => {
                    self.add(None, "policy isolation", CheckStatus::Failed, refusal.detail);
                }
            }
        }
        if has_network {
            // Whether the jobs need credentials shows only when they run.
            let why = isolation::WITHOUT_CREDENTIALS;
            self.add(None, "cloud credentials", CheckStatus::Deferred, why);
        }
    }

    /// Checks that Terraform or OpenTofu is installed, if a component needs it.
    async fn check_terraform(
        &mut self,
        allowed: &BTreeSet<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let jobs = self.jobs;
        let modules = jobs
            .iter()
            .enumerate()
            .filter(|(at, job)| allowed.contains(at) && job.plugin.name == "terraform_module");
        // A component can request a version that the host has beside the usual one.
        let mut requests: BTreeMap<Option<&str>, Vec<&PlannedJob>> = BTreeMap::new();
        for (_, job) in modules {
            let requested = match &job.rendered {
                Rendered::Known { inputs, .. } => inputs["terraform_version"].as_str(),
                Rendered::Deferred(_) => None,
            };
            let requested = requested.filter(|version| !version.is_empty());
            requests.entry(requested).or_default().push(job);
        }
        let mut shown = BTreeSet::new();
        for (requested, jobs) in requests {
            let (found, status, message) =
                match terraform::find_tool(self.work, requested, sink).await {
                    Ok((version, tool)) => (Some(version), CheckStatus::Ok, tool),
                    Err(halt) => (None, CheckStatus::Failed, self.failure(halt)?),
                };
            if shown.insert(message.clone()) {
                self.add(None, "terraform", status, message);
            }
            let (Some(requested), Some(found)) = (requested, found) else { continue };
            for job in jobs.into_iter().filter(|_| requested != found) {
                let message =
                    format!("the app requests version {requested}, but this runner has {found}");
                self.add(Some(&job.name), "terraform version", CheckStatus::Ok, message);
            }
        }
        Ok(())
    }

    /// Starts each plugin executable once, and checks its components.
    async fn check_plugins(
        &mut self,
        allowed: &BTreeSet<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let mut left: Vec<usize> =
            allowed.iter().copied().filter(|at| is_external(&self.jobs[*at])).collect();
        while let Some(first) = left.first().copied() {
            let jobs = self.jobs;
            // A process has one plugin, one environment and one cluster.
            let same = |at: &usize| {
                jobs[*at].plugin == jobs[first].plugin
                    && environment(&jobs[*at]) == environment(&jobs[first])
            };
            let (group, rest): (Vec<usize>, Vec<usize>) = left.iter().partition(|at| same(at));
            left = rest;
            self.check_plugin(&group, sink).await?;
        }
        Ok(())
    }

    async fn check_plugin(&mut self, group: &[usize], sink: &mut dyn Sink) -> Result<(), Halt> {
        let jobs = self.jobs;
        let parts: Vec<(usize, Manifest, JobContext)> =
            group.iter().map(|at| self.component(*at)).collect();
        let (mut plugin, mut access): (Option<External>, Option<ClusterAccess>) = (None, None);
        for (at, manifest, context) in &parts {
            let job = &jobs[*at];
            let result = async {
                let mut work = Work::new(manifest, context)?;
                match &mut plugin {
                    Some(plugin) => plugin.use_component(&work)?,
                    None => {
                        access = cluster::prepare(&work, sink).await?;
                        work.kubeconfig = access.as_ref().map(ClusterAccess::kubeconfig);
                        plugin = Some(External::start(&work, sink).await?);
                    }
                }
                let Some(started) = &mut plugin else { return Ok(()) };
                self.check_component(started, job, &mut work, sink).await
            };
            if let Err(halt) = result.await {
                let message = self.failure(halt)?;
                let (name, status) = (&job.plugin.name, CheckStatus::Failed);
                if plugin.is_some() {
                    self.add(Some(&job.name), &format!("plugin {name}"), status, message);
                } else {
                    // Without the plugin, no component of the group can be checked.
                    let names: Vec<&str> = group.iter().map(|at| jobs[*at].name.as_str()).collect();
                    let message = format!("{message} (for {})", names.join(", "));
                    self.add(None, &format!("plugin {name}"), status, message);
                    return Ok(());
                }
            }
        }
        if let Some(plugin) = plugin {
            self.add(
                None,
                &format!("plugin {}", jobs[group[0]].plugin.name),
                CheckStatus::Ok,
                plugin.tool(),
            );
            plugin.end(sink).await;
        }
        Ok(())
    }

    /// Calls `health` and `preflight` of the plugin for one component.
    async fn check_component(
        &mut self,
        plugin: &mut External,
        job: &PlannedJob,
        work: &mut Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let description = plugin.describe();
        if let Some(kind) = job.kinds.iter().find(|kind| !description.kinds.contains(kind)) {
            return Err(description.unsupported(*kind));
        }
        match job.rendered {
            Rendered::Known { .. } => {}
            Rendered::Deferred(_) => return Ok(()),
        }
        plugin.health(work, sink).await?;
        if work.manifest.artifacts.is_empty() {
            let why = "its build has not ended; the plan of the component checks it";
            self.add(Some(&job.name), "artifact", CheckStatus::Deferred, why);
            return Ok(());
        }
        source::sync(work, sink).await?;
        for check in plugin.checks(work, sink).await? {
            let status = match check.status {
                plugin::CheckStatus::Ok => CheckStatus::Ok,
                plugin::CheckStatus::Failed => CheckStatus::Failed,
                plugin::CheckStatus::Deferred => CheckStatus::Deferred,
            };
            self.add(Some(&job.name), &check.check, status, check.message);
        }
        Ok(())
    }

    /// Returns manifest and directories of a component, as for its plan.
    fn component(&self, at: usize) -> (usize, Manifest, JobContext) {
        let manifest = self.jobs[at].manifest(self.work.manifest, JobKind::Plan);
        let mut context = self.work.job.clone();
        context.work_dir = context.work_dir.join("components").join(at.to_string());
        (at, manifest, context)
    }

    /// Checks the free disk space. An artifact needs its size twice: in the layout, and unpacked.
    fn check_disk(&mut self) {
        let job = self.work.job;
        let layout = Layout::new(&job.artifacts_dir);
        let artifacts = self.jobs.iter().flat_map(|job| {
            let plugin = job.plugin.artifact.as_ref().map(|one| (&one.digest, one.size));
            job.artifacts.iter().map(|one| (&one.digest, one.size)).chain(plugin)
        });
        let mut seen = BTreeSet::new();
        let missing = artifacts
            .filter(|(digest, _)| seen.insert(digest.to_string()) && !layout.complete(digest));
        let pulled = missing.map(|(_, size)| size.saturating_mul(2)).fold(0, u64::saturating_add);
        let required = pulled.saturating_add(APPLY_RESERVE_BYTES);
        let free = host::disk_free(&job.work_dir);
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let sizes = format!("{} MiB free, {} MiB needed", mib(free), mib(required));
        match free >= required {
            true => self.add(None, "disk", CheckStatus::Ok, sizes),
            false => {
                let message = format!("{sizes}; free disk space on the runner's host");
                self.add(None, "disk", CheckStatus::Failed, message);
            }
        }
    }

    fn list_deferred(&mut self) {
        for job in self.jobs {
            if let Rendered::Deferred(reason) = &job.rendered {
                self.add(Some(&job.name), "inputs", CheckStatus::Deferred, reason);
            }
        }
    }

    /// Returns the message of a check that could not be completed. A cancelled job ends instead.
    fn failure(&self, halt: Halt) -> Result<String, Halt> {
        if self.work.job.cancel.requested.is_cancelled() {
            return Err(Halt::cancelled(false));
        }
        match halt {
            // A full disk of the runner or a similar fault ends the job.
            Halt::Error(error @ PluginError::Io { .. }) if is_out_of_space(&error) => {
                Err(error.into())
            }
            Halt::Error(error) => Ok(format!("{:#}", anyhow::Error::new(error))),
            Halt::Outcome(Outcome::Failed { detail, .. }) => Ok(detail),
            Halt::Outcome(outcome @ (Outcome::Succeeded | Outcome::Cancelled { .. })) => {
                Err(Halt::Outcome(outcome))
            }
        }
    }
}

fn is_out_of_space(error: &PluginError) -> bool {
    matches!(error, PluginError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
}

fn is_external(job: &PlannedJob) -> bool {
    let name = job.plugin.name.as_str();
    !matches!(name, "terraform_module" | "action") && !COMPONENT_TYPES.contains(&name)
}

/// Returns the environment variables of a job, and the input that names its cluster.
fn environment(job: &PlannedJob) -> Option<(&BTreeMap<String, String>, Option<&Value>)> {
    match &job.rendered {
        Rendered::Known { env, inputs, .. } => Some((env, inputs.get(CLUSTER_INPUT))),
        Rendered::Deferred(_) => None,
    }
}
