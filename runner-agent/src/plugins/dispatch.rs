//! Runs the steps of a job that are the same for every plugin.

use domain::image::COMPONENT_TYPES;
use schemas::{
    manifest::Manifest,
    runner::{Artifact, JobKind},
};

use super::{
    action::ActionPlugin,
    built_image,
    cluster::{self, ClusterAccess},
    contract::{JobContext, Outcome, PluginError, Sink, Stream},
    details,
    external::External,
    git::GitPlugin,
    image, missing_state, plans,
    plugin::{Halt, IoContext, Operation, Outputs, Plugin, Work},
    preflight,
    source::{self, SourceBuild},
    terraform::Terraform,
    transfer::BuildRegistry,
};
use crate::state::{ApplyEnd, StateMark, StateRefusal};

pub(crate) async fn run(
    manifest: &Manifest,
    job: &JobContext,
    sink: &mut dyn Sink,
) -> Result<Outcome, PluginError> {
    match work(manifest, job, sink).await {
        Ok(()) => Ok(Outcome::Succeeded),
        Err(Halt::Outcome(outcome)) => Ok(outcome),
        Err(Halt::Error(error)) => Err(error),
    }
}

async fn work(manifest: &Manifest, job: &JobContext, sink: &mut dyn Sink) -> Result<(), Halt> {
    let mut work = Work::new(manifest, job)?;
    match manifest.plugin.name.as_str() {
        _ if manifest.kind == JobKind::Preflight => preflight::run(&work, sink).await,
        "terraform_module" => drive(&mut Terraform::default(), &mut work, sink).await,
        name if COMPONENT_TYPES.contains(&name) => image::run(&work, sink).await,
        "action" => {
            let access = cluster::prepare(&work, sink).await?;
            work.kubeconfig = access.as_ref().map(ClusterAccess::kubeconfig);
            let mut plugin = ActionPlugin;
            tokio::select! {
                ended = drive(&mut plugin, &mut work, sink) => ended,
                never = ClusterAccess::keep_fresh(access.as_ref(), job) => match never {},
            }
        }
        _ if manifest.kind == JobKind::Resolve => drive(&mut GitPlugin, &mut work, sink).await,
        // Without a plugin that builds, the artifact is the unchanged source.
        _ if manifest.kind == JobKind::Build
            && manifest.plugin.digest.is_none()
            && manifest.plugin.artifact.is_none() =>
        {
            drive(&mut SourceBuild, &mut work, sink).await
        }
        _ => {
            let access = cluster::prepare(&work, sink).await?;
            work.kubeconfig = access.as_ref().map(ClusterAccess::kubeconfig);
            let mut plugin = External::start(&work, sink).await?;
            let builds = plugin.describe().kinds.contains(&JobKind::Build);
            let keep_fresh = ClusterAccess::keep_fresh(access.as_ref(), job);
            let ended = match manifest.kind == JobKind::Build && !builds {
                true => drive(&mut SourceBuild, &mut work, sink).await,
                false => tokio::select! {
                    ended = drive(&mut plugin, &mut work, sink) => ended,
                    never = keep_fresh => match never {},
                },
            };
            plugin.end(sink).await;
            ended
        }
    }
}

async fn drive<P: Plugin>(
    plugin: &mut P,
    work: &mut Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let kind = work.manifest.kind;
    let description = plugin.describe();
    if !description.kinds.contains(&kind) {
        return Err(description.unsupported(kind));
    }
    plugin.health(work, sink).await?;
    match kind {
        JobKind::Resolve => report(plugin.resolve(work, sink).await?, sink),
        JobKind::Build => build(plugin, work, sink).await,
        // `work` handles a preflight, which uses several plugins.
        JobKind::Preflight => Err(description.unsupported(kind)),
        JobKind::Plan => plan(plugin, work, sink).await,
        JobKind::Apply => apply(plugin, work, sink).await,
        // Only images have jobs of this kind.
        JobKind::Sync => Err(description.unsupported(kind)),
        JobKind::Action => {
            source::sync(work, sink).await?;
            let outputs = plugin.act(work, sink).await?;
            report(outputs, sink)
        }
    }
}

async fn build<P: Plugin>(
    plugin: &mut P,
    work: &mut Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    // A build that may not push is refused before it starts.
    BuildRegistry::of(work)?;
    let repository = source::fetch(work, sink).await?;
    sink.phase("build");
    plugin.build(work, sink).await?;
    let (digest, size_bytes) = match plugin.built_image() {
        Some(image) => built_image::push(work, &repository, image, sink).await?,
        None => source::push(work, &repository, sink).await?,
    };
    sink.line(Stream::Runner, format!("pushed {repository}@{digest}").as_bytes());
    let artifact = Artifact { repository, digest, size_bytes, upstream: None };
    sink.artifact(artifact).doing(|| "cannot report an artifact".into())?;
    Ok(())
}

async fn plan<P: Plugin>(
    plugin: &mut P,
    work: &mut Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    source::sync(work, sink).await?;
    let work = &*work;
    work.state.require_resolved()?;
    plugin.open(work, sink).await?;
    match work.operation {
        Operation::Apply => plugin.preflight(work, sink).await?,
        // A missing requirement of an apply, for example a quota, must not prevent a destroy.
        Operation::Destroy => {}
    }
    // Read the version of the state before the plan: a write during the plan then makes the plan
    // stale.
    let state = plugin.state(work, sink).await?;
    missing_state::check(work, &state)?;
    accept_state(work, &state, sink)?;
    let mut planned = plugin.plan(work, sink).await?;
    missing_state::record_first_apply(work, &state)?;
    let details = planned.changes.details.take();
    let details = details.and_then(|details| details::prepare(details, sink));
    let record = plans::store(work, planned, details, state.clone())?;
    let line = match record.noop {
        true => format!("no changes: plan {}", record.digest),
        false => format!(
            "{} to add, {} to change, {} to destroy: plan {}",
            record.add, record.change, record.destroy, record.digest
        ),
    };
    sink.line(Stream::Runner, line.as_bytes());
    let nothing_to_apply = record.noop && work.operation == Operation::Apply;
    if state.lineage.is_some() {
        let digest = plugin.digest().await;
        let context = || "cannot record the version of the state".to_owned();
        sink.state(work.name, &state, digest).doing(context)?;
    }
    sink.plan(record).doing(|| "cannot report a plan".into())?;
    if nothing_to_apply {
        // An earlier apply may have ended before it reported its outputs, and no other apply will
        // follow.
        sink.phase("outputs");
        report(plugin.outputs(work, sink).await?, sink)?;
    }
    Ok(())
}

async fn apply<P: Plugin>(
    plugin: &mut P,
    work: &mut Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let Some(digest) = &work.manifest.plan else {
        return Err(
            PluginError::Refused("cannot apply: the manifest has no approved plan".into()).into()
        );
    };
    let (approved, reads) = plans::find(work, digest)?;
    source::sync(work, sink).await?;
    let work = &*work;
    work.state.require_resolved()?;
    plugin.open(work, sink).await?;
    let state = plugin.state(work, sink).await?;
    // A state that changed since the plan makes the plan stale. The next plan checks whether the
    // state is outdated.
    reads.same_state(&state)?;
    accept_state(work, &state, sink)?;
    plugin.prepare(work, &approved, sink).await?;
    if work.job.cancel.requested.is_cancelled() {
        return Err(Halt::cancelled(false));
    }
    work.state.begin_apply(work.job.execution, &work.source, plugin.uses_state_file())?;
    if let Err(error) = approved.begin(work) {
        work.state.end_apply(ApplyEnd::Unchanged)?;
        return Err(error.into());
    }
    let applied = match approved.operation {
        Operation::Apply => plugin.apply(work, &approved, sink).await,
        Operation::Destroy => plugin.destroy(work, &approved, sink).await,
    };
    plugin.settle().await;
    let applied = end_apply(plugin, work, applied, sink);
    // A plugin that was stopped may not respond any more, but its state file can be read.
    if applied.is_ok() || plugin.uses_state_file() {
        report_state(plugin, work, applied.is_ok(), sink).await;
    }
    applied?;
    approved.remove();
    sink.phase("outputs");
    let outputs = plugin.outputs(work, sink).await.map_err(output_error_to_failure)?;
    report(outputs, sink)
}

/// Ends the apply in the state store, and logs the names of rescued files.
fn end_apply<P: Plugin>(
    plugin: &P,
    work: &Work<'_>,
    applied: Result<(), Halt>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let unchanged =
        plugin.changed_nothing() || matches!(&applied, Err(halt) if means_unchanged(halt));
    let end = if unchanged { ApplyEnd::Unchanged } else { ApplyEnd::Changed };
    let applied = applied.map_err(|halt| if unchanged { halt } else { refusal_to_failure(halt) });
    match (applied, work.state.end_apply(end)) {
        (applied, Ok(())) => {
            for file in work.state.unresolved().unwrap_or_default() {
                let line = format!(
                    "cannot write the state: the runner saved it to {}; on the runner's host, select the current state with \
                     `stead-runner state resolve {} --reason TEXT` and one of --restore FILE, --keep-current and \
                     --nothing-exists",
                    file.display(),
                    work.name
                );
                sink.line(Stream::Runner, line.as_bytes());
            }
            applied
        }
        (Ok(()), Err(error)) => Err(PluginError::PluginFailed(error.to_string()).into()),
        (Err(halt), Err(error)) => {
            sink.line(Stream::Runner, error.to_string().as_bytes());
            Err(halt)
        }
    }
}

/// Refuses a state that is older than the known one or has another lineage, unless the vendor's log
/// has a decision about it.
fn accept_state(work: &Work<'_>, state: &StateMark, sink: &mut dyn Sink) -> Result<(), Halt> {
    let (own, log) = (&work.job.known_state, work.manifest.state.as_ref());
    let checked = work.state.check_known(state, own, log);
    let accepted = checked.map_err(|StateRefusal(why)| PluginError::Refused(why))?;
    if let Some(accepted) = accepted {
        let context = || "cannot record the decision about the state in the journal".to_owned();
        sink.state_accepted(work.name, &accepted).doing(context)?;
    }
    Ok(())
}

/// Journals and reports the state after an apply. An error here does not change the result of the
/// apply.
async fn report_state<P: Plugin>(
    plugin: &mut P,
    work: &Work<'_>,
    succeeded: bool,
    sink: &mut dyn Sink,
) {
    let Ok(state) = plugin.state(work, sink).await else { return };
    if (state.lineage.is_some() || succeeded)
        && let Err(error) = sink.state(work.name, &state, plugin.digest().await)
    {
        let line = format!("cannot record the version of the state: {error}");
        sink.line(Stream::Runner, line.as_bytes());
    }
}

/// Returns whether an error means that the plugin did not begin the apply, so nothing changed.
fn means_unchanged(halt: &Halt) -> bool {
    match halt {
        Halt::Error(
            PluginError::PlanStale(_) | PluginError::ToolMissing(_) | PluginError::Unverified(_),
        ) => true,
        Halt::Error(
            PluginError::Refused(_)
            | PluginError::ArtifactUnavailable(_)
            | PluginError::PluginFailed(_)
            | PluginError::SpawnFailed { .. }
            | PluginError::TimedOut(_)
            | PluginError::Io { .. },
        )
        | Halt::Outcome(_) => false,
    }
}

/// Turns the refusal of an apply that began into a failure. For a refused job the server records
/// that nothing changed.
fn refusal_to_failure(halt: Halt) -> Halt {
    match halt {
        Halt::Error(PluginError::Refused(why)) => {
            PluginError::PluginFailed(format!("it refused the apply: {why}")).into()
        }
        Halt::Error(error) => Halt::Error(error),
        Halt::Outcome(outcome) => Halt::Outcome(outcome),
    }
}

/// Turns a refusal or a stale plan in the outputs call after an apply into a failure. The server
/// would otherwise record that nothing changed.
fn output_error_to_failure(halt: Halt) -> Halt {
    match halt {
        Halt::Error(PluginError::PlanStale(why) | PluginError::Refused(why)) => {
            PluginError::PluginFailed(format!("it refused to read the outputs: {why}")).into()
        }
        Halt::Error(error) => Halt::Error(error),
        Halt::Outcome(outcome) => Halt::Outcome(outcome),
    }
}

pub(super) fn report(outputs: Outputs, sink: &mut dyn Sink) -> Result<(), Halt> {
    for name in &outputs.withheld {
        let line = format!("output {name} is sensitive and is not reported");
        sink.line(Stream::Runner, line.as_bytes());
    }
    sink.outputs(outputs.plain, outputs.sensitive).doing(|| "cannot report the outputs".into())?;
    Ok(())
}
