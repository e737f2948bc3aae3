//! Renders the manifest of a preflight: the jobs of the steps that apply or execute, as far as their
//! manifests are known before the run makes a change.
use std::collections::BTreeSet;

use app_config::tree::SANDBOX;
use domain::{
    build::{Build, State as BuildState},
    check::{self, Check, CheckStatus},
    ids::{JobId, RunId},
    install::Install,
    job::{Origin, Work},
    run::{Operation, Run, Step, Target},
};
use schemas::{
    cluster::CLUSTER_INPUT,
    manifest::{Manifest, PluginRef},
    preflight::{INPUTS_BYTES, PLUGIN, PlannedJob, PreflightInputs, Rendered as Parts},
    runner::JobKind,
};
use serde_json::json;

use super::{
    build::PLUGIN_CONTRACT,
    manifest,
    step::{self, Artifacts, ManifestParts, StepContext, artifact_ref},
};
use crate::{configs::Config, execute::UnitOfWork, problem::Problem, state::App};

/// Deadline of a preflight: ten minutes. Each call of a plugin has its own timeout.
const DEADLINE_MS: u64 = 10 * 60 * 1000;

/// Rendered preflight.
pub(crate) enum Rendered {
    Work(Work),
    /// Requirements that the server found not met. A runner would find them, too.
    Failed(Vec<Check>),
}

/// Renders the job of a run's preflight, or a message for the vendor.
pub(crate) async fn render(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    job: JobId,
) -> Result<Result<Rendered, String>, Problem> {
    let state = unit.load::<Run>(run).await?.clone();
    let request = state.request.as_ref().ok_or_else(|| Problem::not_found(run))?;
    let install_id = request.install;
    let install = unit.load::<Install>(install_id).await?.clone();
    let planned: Vec<&Step> = state.steps.iter().filter(|step| is_checked(step)).collect();
    let Some(first) = planned.first() else { return Ok(Err("the run applies nothing".into())) };
    let mut context = StepContext::load(app, unit, run, first).await?;
    let failed = missing_plugins(context.config(), &planned);
    if !failed.is_empty() {
        return Ok(Ok(Rendered::Failed(check::limited(failed))));
    }
    let changed: BTreeSet<&str> = planned.iter().filter_map(|step| applied(step)).collect();
    let (mut jobs, mut size) = (vec![], 0);
    for step in planned {
        context.use_step(&install, step);
        let artifacts = artifacts(app, unit, run, step).await?;
        let parts = context.parts(step, &artifacts).and_then(|mut parts| {
            let kind = match step.spec.operation {
                Operation::Apply | Operation::Destroy | Operation::Check => JobKind::Plan,
                Operation::Execute => JobKind::Action,
            };
            let is_sensitive = !context.references(step, kind, &mut parts)?.is_empty();
            Ok((parts, is_sensitive))
        });
        let sensitive = parts.as_ref().ok().filter(|(_, is_sensitive)| *is_sensitive);
        let sensitive = sensitive.map(|_| "its inputs contain sensitive values".to_owned());
        let parts = parts.map(|(parts, _)| parts);
        let cluster = parts.as_ref().ok().and_then(|parts| cluster_of_run(parts, step, &changed));
        let reason = reads_of_run(context.config(), step, &changed).or(cluster).or(sensitive);
        let mut parts = match (reason, parts) {
            (Some(reason), Ok(parts)) => (parts.plugin, Parts::Deferred(reason)),
            (None, Ok(ManifestParts { plugin, inputs, env, role, .. })) => {
                (plugin, Parts::Known { inputs, env, role })
            }
            (reason, Err(detail)) => match context.plugin_of(step) {
                Some(plugin) => (plugin, Parts::Deferred(reason.unwrap_or(detail))),
                None => return Ok(Err(detail)),
            },
        };
        size += json!(parts.1).to_string().len();
        if size > INPUTS_BYTES {
            parts.1 = Parts::Deferred("the inputs of the run are too large for one job".into());
        }
        jobs.push(PlannedJob {
            name: name_of(&step.spec.target).to_owned(),
            kinds: match step.spec.operation {
                Operation::Apply | Operation::Destroy => {
                    vec![JobKind::Plan, context.apply_kind(step)]
                }
                Operation::Check => vec![JobKind::Plan],
                Operation::Execute => vec![JobKind::Action],
            },
            plugin: parts.0,
            artifacts: artifacts.values().map(artifact_ref).collect(),
            rendered: parts.1,
        });
    }
    let kind = JobKind::Preflight;
    let manifest = Manifest {
        version: 1,
        job,
        kind,
        class: kind.class(),
        plugin: PluginRef {
            name: PLUGIN.into(),
            version: PLUGIN_CONTRACT.into(),
            digest: None,
            artifact: None,
        },
        artifacts: vec![],
        inputs: json!(PreflightInputs { run, jobs }),
        env: Default::default(),
        role: None,
        limits: manifest::limits(),
        timeouts: manifest::timeouts(kind.class(), DEADLINE_MS),
        plan: None,
        state: None,
        secrets: vec![],
    };
    let origin = Origin::Preflight { install: install_id, run };
    Ok(Ok(Rendered::Work(manifest::store(app, &manifest, origin).await?)))
}

/// Returns true if the preflight checks the step. A requirement of an apply must not prevent a
/// removal.
fn is_checked(step: &Step) -> bool {
    match step.spec.operation {
        Operation::Apply | Operation::Execute => true,
        Operation::Destroy | Operation::Check => false,
    }
}

/// Returns the name of the component that the step applies.
fn applied(step: &Step) -> Option<&str> {
    match (step.spec.operation, &step.spec.target) {
        (Operation::Apply, Target::Sandbox { .. } | Target::Component { .. }) => {
            Some(name_of(&step.spec.target))
        }
        (Operation::Apply, Target::Action { .. })
        | (Operation::Destroy | Operation::Check | Operation::Execute, _) => None,
    }
}

fn name_of(target: &Target) -> &str {
    match target {
        Target::Sandbox { .. } => SANDBOX,
        Target::Component { name, .. } | Target::Action { name } => name,
    }
}

fn missing_plugins(config: &Config, steps: &[&Step]) -> Vec<Check> {
    let missing = steps.iter().filter_map(|step| {
        let name = applied(step)?;
        let message = config.app.lacks_plugin(name)?;
        let (component, status) = (Some(name.to_owned()), CheckStatus::Failed);
        Some(Check { component, check: "plugin".into(), status, message })
    });
    missing.collect()
}

/// Returns a reason if the inputs of the step depend on outputs that the run may change.
fn reads_of_run(config: &Config, step: &Step, changed: &BTreeSet<&str>) -> Option<String> {
    let after = |names: &[&str]| {
        let names = names.join(", ");
        (!names.is_empty()).then(|| format!("its inputs depend on outputs of {names}"))
    };
    let reads = match &step.spec.target {
        Target::Sandbox { .. } => &config.graph.sandbox,
        Target::Component { name, .. } => &config.graph.components.get(name)?.reads,
        // An action may read every output.
        Target::Action { .. } => return after(&changed.iter().copied().collect::<Vec<_>>()),
    };
    let own = name_of(&step.spec.target);
    let of_sandbox = !reads.sandbox.is_empty() || !config.graph.runner.sandbox.is_empty();
    let is_read = |name: &&&str| {
        **name != own
            && match **name {
                SANDBOX => of_sandbox,
                name => {
                    reads.all_components
                        || reads.components.contains_key(name)
                        || config.graph.runner.components.contains_key(name)
                }
            }
    };
    after(&changed.iter().filter(is_read).copied().collect::<Vec<_>>())
}

/// Returns a reason if the cluster of the step belongs to a component that the run may change.
fn cluster_of_run(parts: &ManifestParts, step: &Step, changed: &BTreeSet<&str>) -> Option<String> {
    let owner = parts.inputs.get(CLUSTER_INPUT)?.get("component")?.as_str()?;
    let is_changed = changed.contains(owner) && owner != name_of(&step.spec.target);
    is_changed.then(|| format!("its cluster depends on outputs of {owner}"))
}

/// Returns the artifacts of a step whose builds have succeeded.
async fn artifacts(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
) -> Result<Artifacts, Problem> {
    let mut artifacts = Artifacts::new();
    for (name, build) in step::builds(app, unit, run, step).await? {
        match &unit.load::<Build>(build).await?.state {
            BuildState::Succeeded { artifact } => drop(artifacts.insert(name, artifact.clone())),
            BuildState::NotCreated
            | BuildState::Requested
            | BuildState::Building { .. }
            | BuildState::Failed { .. } => {}
        }
    }
    Ok(artifacts)
}
