//! One job from its manifest to its outcome: what is the same for every plugin.

use schemas::{
    manifest::Manifest,
    runner::{ArtifactReport, JobKind},
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
    let artifact = ArtifactReport { repository, digest, size_bytes };
    sink.artifact(artifact).doing(|| "cannot journal an artifact".into())?;
    Ok(())
}

async fn plan<P: Plugin>(plugin: &mut P, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    source::sync(work, sink).await?;
    // The mark is taken first: whoever writes while we plan makes this plan stale.
    let state = plugin.state(work, sink).await?;
    lost::check(work, &state)?;
    let planned = plugin.plan(work, sink).await?;
    lost::remember(work, &state)?;
    let record = plans::keep(work, planned, state)?;
    let told = match record.noop {
        true => format!("nothing would change: plan {}", record.digest),
        false => format!(
            "{} to add, {} to change, {} to destroy: plan {}",
            record.add, record.change, record.destroy, record.digest
        ),
    };
    sink.line(Stream::Runner, told.as_bytes());
    let nothing_to_apply = record.noop && work.operation == Operation::Apply;
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
    reads.same_state(&plugin.state(work, sink).await?)?;
    approved.begin(work)?;
    match approved.operation {
        Operation::Apply => plugin.apply(work, &approved, sink).await?,
        Operation::Destroy => plugin.destroy(work, &approved, sink).await?,
    }
    lost::forget(work);
    approved.forget();
    sink.phase("outputs");
    let outputs = plugin.outputs(work, sink).await.map_err(after_the_apply)?;
    report(outputs, sink)
}

/// Of a stale plan the vendor believes that nothing was touched, and here it was.
fn after_the_apply(halt: Halt) -> Halt {
    match halt {
        Halt::Error(PluginError::PlanIsStale(why)) => {
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
