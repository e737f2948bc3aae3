//! One job from its manifest to its outcome: what is the same for every plugin.

use schemas::{
    manifest::Manifest,
    runner::{Artifact, JobKind},
};

use super::{
    action::Scripts,
    contract::{JobContext, Outcome, PluginError, Sink, Stream},
    external::External,
    lost, plans,
    plugin::{Doing, Halt, Operation, Outputs, Plugin, Work},
    source::{self, AsItIs},
    terraform::Terraform,
};
use crate::state::{ApplyEnd, Outdated, StateMark};

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
    let work = Work::new(manifest, job)?;
    match manifest.plugin.name.as_str() {
        "terraform_module" => drive(&mut Terraform::default(), &work, sink).await,
        "action" => drive(&mut Scripts, &work, sink).await,
        // A vendor's plugin may check its source; without one, the source is packed as it is.
        _ if manifest.kind == JobKind::Build && manifest.plugin.digest.is_none() => {
            drive(&mut AsItIs, &work, sink).await
        }
        _ => {
            let mut plugin = External::start(&work, sink).await?;
            let ended = drive(&mut plugin, &work, sink).await;
            plugin.end(sink).await;
            ended
        }
    }
}

async fn drive<P: Plugin>(
    plugin: &mut P,
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let kind = work.manifest.kind;
    let description = plugin.describe();
    if !description.kinds.contains(&kind) {
        return Err(description.lacks(kind));
    }
    plugin.health(work, sink).await?;
    match kind {
        JobKind::Build => build(plugin, work, sink).await,
        JobKind::Plan => plan(plugin, work, sink).await,
        JobKind::Apply => apply(plugin, work, sink).await,
        JobKind::Action => {
            source::sync(work, sink).await?;
            let outputs = plugin.act(work, sink).await?;
            report(outputs, sink)
        }
    }
}

async fn build<P: Plugin>(
    plugin: &mut P,
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let repository = source::fetch(work, sink).await?;
    sink.phase("build");
    plugin.build(work, sink).await?;
    let (digest, size_bytes) = source::push(work, &repository, sink).await?;
    sink.line(Stream::Runner, format!("pushed {repository}@{digest}").as_bytes());
    let artifact = Artifact { repository, digest, size_bytes };
    sink.artifact(artifact).doing(|| "cannot journal an artifact".into())?;
    Ok(())
}

async fn plan<P: Plugin>(plugin: &mut P, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    source::sync(work, sink).await?;
    work.state.require_resolved()?;
    // The mark is taken first: whoever writes while we plan makes this plan stale.
    let state = plugin.state(work, sink).await?;
    lost::check(work, &state)?;
    accept(work, &state, sink)?;
    let planned = plugin.plan(work, sink).await?;
    lost::remember(work, &state)?;
    let record = plans::keep(work, planned, state.clone())?;
    let told = match record.noop {
        true => format!("nothing would change: plan {}", record.digest),
        false => format!(
            "{} to add, {} to change, {} to destroy: plan {}",
            record.add, record.change, record.destroy, record.digest
        ),
    };
    sink.line(Stream::Runner, told.as_bytes());
    let nothing_to_apply = record.noop && work.operation == Operation::Apply;
    if state.lineage.is_some() {
        sink.state(work.name, &state).doing(|| "cannot journal the state's version".into())?;
    }
    sink.plan(record).doing(|| "cannot journal a plan".into())?;
    if nothing_to_apply {
        // An apply may have ended before it could say what it gives to others, and no other will come.
        sink.phase("outputs");
        report(plugin.outputs(work, sink).await?, sink)?;
    }
    Ok(())
}

async fn apply<P: Plugin>(
    plugin: &mut P,
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let Some(digest) = &work.manifest.plan else {
        return Err(PluginError::Refused("an apply without an approved plan".into()).into());
    };
    let (approved, reads) = plans::find(work, digest)?;
    source::sync(work, sink).await?;
    work.state.require_resolved()?;
    let state = plugin.state(work, sink).await?;
    // A state that changed since the plan makes it stale: the next plan says whether the state is an older one.
    reads.same_state(&state)?;
    accept(work, &state, sink)?;
    plugin.prepare(work, &approved, sink).await?;
    if work.job.cancel.asked.is_cancelled() {
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
    let applied = end_apply(plugin, work, applied, sink);
    // A plugin that was stopped may not answer any more; the state file does.
    if applied.is_ok() || plugin.uses_state_file() {
        report_state(plugin, work, applied.is_ok(), sink).await;
    }
    applied?;
    approved.forget();
    sink.phase("outputs");
    let outputs = plugin.outputs(work, sink).await.map_err(after_the_apply)?;
    report(outputs, sink)
}

/// Makes sure that the state is complete before anything else happens to the component.
fn end_apply<P: Plugin>(
    plugin: &P,
    work: &Work<'_>,
    applied: Result<(), Halt>,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let unchanged =
        plugin.changed_nothing() || matches!(&applied, Err(halt) if says_unchanged(halt));
    let end = if unchanged { ApplyEnd::Unchanged } else { ApplyEnd::Changed };
    let applied = applied.map_err(|halt| if unchanged { halt } else { after_it_began(halt) });
    match (applied, work.state.end_apply(end)) {
        (applied, Ok(())) => {
            for file in work.state.unresolved().unwrap_or_default() {
                let told = format!(
                    "the state could not be written and was rescued to {}; `stead-runner state resolve {}` on the \
                     runner's host makes it the current one",
                    file.display(),
                    work.name
                );
                sink.line(Stream::Runner, told.as_bytes());
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

/// Refuses a state that is older than what is known, or of another lineage, unless the vendor's log has a decision about it.
fn accept(work: &Work<'_>, state: &StateMark, sink: &mut dyn Sink) -> Result<(), Halt> {
    let (own, log) = (&work.job.known_state, work.manifest.state.as_ref());
    let checked = work.state.check_known(state, own, log);
    let accepted = checked.map_err(|Outdated(why)| PluginError::Refused(why))?;
    if let Some(accepted) = accepted {
        let context = || "cannot journal the decision about the state".to_owned();
        sink.state_accepted(work.name, &accepted).doing(context)?;
    }
    Ok(())
}

/// Journals and reports the state that an apply left. The work is done, whether this succeeds or not.
async fn report_state<P: Plugin>(
    plugin: &mut P,
    work: &Work<'_>,
    succeeded: bool,
    sink: &mut dyn Sink,
) {
    let Ok(state) = plugin.state(work, sink).await else { return };
    if (state.lineage.is_some() || succeeded)
        && let Err(error) = sink.state(work.name, &state)
    {
        let told = format!("the version of the state could not be journalled: {error}");
        sink.line(Stream::Runner, told.as_bytes());
    }
}

/// Errors by which a plugin reports that it did not begin.
fn says_unchanged(halt: &Halt) -> bool {
    match halt {
        Halt::Error(PluginError::PlanStale(_) | PluginError::ToolMissing(_)) => true,
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

/// Reports a refusal of an apply that began as a failure: of a refused job the server records that nothing changed.
fn after_it_began(halt: Halt) -> Halt {
    match halt {
        Halt::Error(PluginError::Refused(why)) => {
            PluginError::PluginFailed(format!("refused: {why}")).into()
        }
        Halt::Error(error) => Halt::Error(error),
        Halt::Outcome(outcome) => Halt::Outcome(outcome),
    }
}

/// The same for the outputs of an apply, where also a stale plan would mean that nothing changed.
fn after_the_apply(halt: Halt) -> Halt {
    match halt {
        Halt::Error(PluginError::PlanStale(why) | PluginError::Refused(why)) => {
            PluginError::PluginFailed(format!("outputs: {why}")).into()
        }
        Halt::Error(error) => Halt::Error(error),
        Halt::Outcome(outcome) => Halt::Outcome(outcome),
    }
}

fn report(outputs: Outputs, sink: &mut dyn Sink) -> Result<(), Halt> {
    for name in &outputs.withheld {
        let told = format!("the output {name} is sensitive: it stays here and is not reported");
        sink.line(Stream::Runner, told.as_bytes());
    }
    sink.outputs(outputs.plain).doing(|| "cannot journal outputs".into())?;
    Ok(())
}
