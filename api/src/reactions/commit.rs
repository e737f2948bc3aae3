//! Executes the reactions of the policies to an event, each in its own commit, and handles
//! rejections.
use std::{panic::AssertUnwindSafe, str::FromStr};

use domain::{
    actor::Actor,
    app::App as AppState,
    build::Build,
    decider::Event,
    ids::{AppId, BuildId, EventId, InstallId, JobId, RunId},
    install::Install,
    job::{Job, Origin},
    policy::{self, PolicyEvent, Reaction},
    run::Run,
};
use event_log::{Meta, StoredEvent};
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{
    concurrent::MAX_CONCURRENT,
    failure_class::{FailureClass, classify},
    policies::PolicyConsumer,
};
use crate::{
    execute::Call,
    problem::{Code, Problem},
    state::App,
    usecases::{
        builds, runs, sources,
        steps::{self, complete},
    },
};

/// Maximum number of attempts at a commit that conflicts with other writers.
const MAX_CONFLICTS: u32 = 5;

/// One commit that an event requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReactionCommit {
    ResolveSources(AppId, u32),
    CompleteResolve(JobId),
    QueueBuild(BuildId),
    CompleteBuild(JobId, BuildId),
    Provision(InstallId),
    AdvanceRun(RunId),
    CompleteStep(JobId),
}

/// Returns the target of an event's reactions. Events with the same target are processed in the
/// order of the log. Returns `None` if there is no reaction.
pub(super) async fn target_of(app: &App, event: &StoredEvent) -> Option<String> {
    // If an error or a panic prevents finding the target, the reaction fails in the same way, and
    // its caller handles the failure.
    let unread = || Some(event.stream.to_string());
    let target = AssertUnwindSafe(target(app, event)).catch_unwind().await;
    target.ok().and_then(Result::ok).unwrap_or_else(unread)
}

async fn target(app: &App, event: &StoredEvent) -> Result<Option<String>, Problem> {
    let domain_events = domain_events(event)?;
    for (_, reaction) in domain_events.iter().flat_map(policy::react) {
        let target = match reaction {
            Reaction::ResolveSources(app, _) | Reaction::QueueBuildsOfVersion(app, _) => {
                Some(app.to_string())
            }
            Reaction::QueueBuild(build) | Reaction::ContinueRunsOfBuild(build) => {
                Some(build.to_string())
            }
            Reaction::Provision(install) | Reaction::ContinueRunsOfInstall(install) => {
                Some(install.to_string())
            }
            Reaction::AdvanceRun(run) => Some(run.to_string()),
            // A job has one origin, so two of these reactions to its end do nothing.
            Reaction::CompleteResolve(job) => match origin(app, job).await? {
                Some(Origin::Source { app, .. }) => Some(app.to_string()),
                Some(Origin::Build { .. } | Origin::Preflight { .. } | Origin::Step { .. })
                | None => None,
            },
            Reaction::CompleteBuild(job) => match origin(app, job).await? {
                Some(Origin::Build { build, .. }) => Some(build.to_string()),
                Some(Origin::Source { .. } | Origin::Preflight { .. } | Origin::Step { .. })
                | None => None,
            },
            Reaction::CompleteStep(job) => match origin(app, job).await? {
                Some(Origin::Preflight { run, .. } | Origin::Step { run, .. }) => {
                    Some(run.to_string())
                }
                Some(Origin::Source { .. } | Origin::Build { .. }) | None => None,
            },
        };
        if target.is_some() {
            return Ok(target);
        }
    }
    Ok(None)
}

/// Runs all reactions to an event. An internal error in one reaction does not prevent the others. A
/// panic is confined to its event.
pub(super) async fn react_to(
    app: &App,
    consumer: &PolicyConsumer,
    event: &StoredEvent,
) -> Result<(), Problem> {
    let reaction = AssertUnwindSafe(all(app, consumer, event)).catch_unwind();
    reaction.await.unwrap_or_else(|_| {
        Err(Problem::internal(format!(
            "reaction to the event at position {} panicked",
            event.position
        )))
    })
}

async fn all(app: &App, consumer: &PolicyConsumer, event: &StoredEvent) -> Result<(), Problem> {
    let commits = commits(app, event).await?;
    // Runs that one event wakes have no order among them, so they advance concurrently.
    let are_runs =
        commits.iter().all(|(_, commit)| matches!(commit, ReactionCommit::AdvanceRun(_)));
    let at_once = if are_runs { MAX_CONCURRENT } else { 1 };
    let each: Vec<_> = commits
        .into_iter()
        .map(|(name, commit)| run_commit(app, consumer, event, name, commit).boxed())
        .collect();
    let done: Vec<_> = stream::iter(each).buffer_unordered(at_once).collect().await;
    let mut failure = None;
    for problem in done.into_iter().filter_map(Result::err) {
        if classify(problem.code) == FailureClass::Transient {
            return Err(problem);
        }
        failure = Some(problem);
    }
    failure.map_or(Ok(()), Err)
}

async fn run_commit(
    app: &App,
    consumer: &PolicyConsumer,
    event: &StoredEvent,
    name: &'static str,
    commit: ReactionCommit,
) -> Result<(), Problem> {
    let guard = call(name, event, consumer);
    let Err(problem) = attempt_until_no_conflict(app, consumer, &guard, commit).await else {
        return Ok(());
    };
    let (position, detail) = (event.position, &problem.detail);
    match classify(problem.code) {
        FailureClass::Transient | FailureClass::Internal => return Err(problem),
        FailureClass::Obsolete => {
            tracing::info!(policy = name, position, error = %detail, "Reaction rejected");
        }
        FailureClass::Impossible => {
            tracing::warn!(policy = name, position, error = %detail, "Cannot commit a reaction; the server does not retry it");
        }
    }
    let _alone = consumer.reaction_lock.write().await;
    give_up(app, &guard, commit, &problem).await
}

fn call(name: &str, event: &StoredEvent, consumer: &PolicyConsumer) -> Call {
    let id = EventId(event.event_id).to_string();
    let mut meta = Meta::new(Actor::Policy(name.into()), id.clone());
    meta.causation_id = Some(id);
    meta.correlation_id = event.meta().ok().and_then(|meta| meta.correlation_id);
    Call { consumer: Some(consumer.guard()), ..Call::of(meta) }
}

/// Returns the reactions to an event as commits. Waking up runs takes one commit per run. So the
/// size of a commit does not depend on the number of waiting runs, and a rejection affects only its
/// own run.
async fn commits(
    app: &App,
    event: &StoredEvent,
) -> Result<Vec<(&'static str, ReactionCommit)>, Problem> {
    let log = app.engine.log();
    let mut all = vec![];
    for (name, reaction) in domain_events(event)?.iter().flat_map(policy::react) {
        match reaction {
            Reaction::QueueBuild(build) => all.push((name, ReactionCommit::QueueBuild(build))),
            Reaction::Provision(install) => all.push((name, ReactionCommit::Provision(install))),
            Reaction::AdvanceRun(run) => all.push((name, ReactionCommit::AdvanceRun(run))),
            Reaction::ResolveSources(of, version) => {
                all.push((name, ReactionCommit::ResolveSources(of, version)));
            }
            Reaction::QueueBuildsOfVersion(of, version) => {
                let of = log.reload::<AppState>(&of.to_string()).await?;
                let published = of.state.versions.get(&version);
                let components = published.into_iter().flat_map(|one| &one.components);
                let from_git = components.filter(|component| component.git.is_some());
                all.extend(
                    from_git.map(|component| (name, ReactionCommit::QueueBuild(component.build))),
                );
            }
            // A job belongs to a source, a build, a preflight or a step.
            Reaction::CompleteResolve(job) => {
                if let Some(Origin::Source { .. }) = origin(app, job).await? {
                    all.push((name, ReactionCommit::CompleteResolve(job)));
                }
            }
            Reaction::CompleteBuild(job) => {
                if let Some(Origin::Build { build, .. }) = origin(app, job).await? {
                    all.push((name, ReactionCommit::CompleteBuild(job, build)));
                }
            }
            Reaction::CompleteStep(job) => {
                if let Some(Origin::Preflight { .. } | Origin::Step { .. }) =
                    origin(app, job).await?
                {
                    all.push((name, ReactionCommit::CompleteStep(job)));
                }
            }
            Reaction::ContinueRunsOfBuild(build) => {
                let build = log.reload::<Build>(&build.to_string()).await?;
                all.extend(
                    build.state.waiters.iter().map(|run| (name, ReactionCommit::AdvanceRun(*run))),
                );
            }
            Reaction::ContinueRunsOfInstall(install) => {
                let install = log.reload::<Install>(&install.to_string()).await?;
                all.extend(
                    install.state.runs.keys().map(|run| (name, ReactionCommit::AdvanceRun(*run))),
                );
            }
        }
    }
    Ok(all)
}

async fn origin(app: &App, job: JobId) -> Result<Option<Origin>, Problem> {
    let (log, job) = (app.engine.log(), job.to_string());
    let known = log.load::<Job>(&job).await?.state;
    // The origin of a job never changes. Only a cached state without an origin may be outdated.
    let job = if known.work.is_some() { known } else { log.reload::<Job>(&job).await?.state };
    Ok(job.work.as_ref().map(|work| work.origin.clone()))
}

/// Attempts a commit, and repeats it after a conflict. Hundreds of runs may register with one build
/// at the same time. After its first conflict, a commit repeats while no other reaction runs, so no
/// reaction can conflict with it.
async fn attempt_until_no_conflict(
    app: &App,
    consumer: &PolicyConsumer,
    call: &Call,
    commit: ReactionCommit,
) -> Result<(), Problem> {
    {
        let _beside = consumer.reaction_lock.read().await;
        match attempt(app, call, commit).await {
            Err(problem) if problem.code == Code::Conflict => {}
            done => return done,
        }
    }
    let _alone = consumer.reaction_lock.write().await;
    let mut races = 1;
    loop {
        match attempt(app, call, commit).await {
            Err(problem) if problem.code == Code::Conflict && races < MAX_CONFLICTS => races += 1,
            done => return done,
        }
    }
}

async fn attempt(app: &App, call: &Call, commit: ReactionCommit) -> Result<(), Problem> {
    let done = match commit {
        ReactionCommit::ResolveSources(of, version) => {
            sources::resolve(app, call, of, version).await
        }
        ReactionCommit::CompleteResolve(job) => sources::complete(app, call, job).await,
        ReactionCommit::QueueBuild(build) => builds::queue(app, call, build).await,
        ReactionCommit::CompleteBuild(job, _) => builds::complete(app, call, job).await,
        ReactionCommit::Provision(install) => runs::provision(app, call, install).await,
        ReactionCommit::AdvanceRun(run) => steps::go_on(app, call, run).await,
        ReactionCommit::CompleteStep(job) => complete::complete(app, call, job).await,
    };
    done.map(|_| ())
}

/// Handles an obsolete or impossible reaction: fails the step, build or source that waits for the
/// reaction, if there is one.
async fn give_up(
    app: &App,
    guard: &Call,
    commit: ReactionCommit,
    problem: &Problem,
) -> Result<(), Problem> {
    let result = match commit {
        ReactionCommit::AdvanceRun(run) => return advance_by_effect(app, guard, run).await,
        ReactionCommit::CompleteStep(job) => {
            complete::give_up(app, guard, job, &problem.detail).await
        }
        ReactionCommit::QueueBuild(build) | ReactionCommit::CompleteBuild(_, build)
            if classify(problem.code) == FailureClass::Impossible =>
        {
            builds::give_up(app, guard, build, &problem.detail).await
        }
        // Otherwise the version would remain in the state `resolving`.
        ReactionCommit::ResolveSources(of, version) => {
            sources::fail_open_references(app, guard, of, version, &problem.detail).await
        }
        ReactionCommit::CompleteResolve(job) => {
            sources::fail_job_reference(app, guard, job, &problem.detail).await
        }
        // No step waits for these reactions. A principal can start a missing run.
        ReactionCommit::QueueBuild(_)
        | ReactionCommit::CompleteBuild(..)
        | ReactionCommit::Provision(_) => return Ok(()),
    };
    ignore_obsolete(result.map(|_| ()))
}

/// Executes the effects of a run one at a time, so that only the impossible step fails.
async fn advance_by_effect(app: &App, guard: &Call, run: RunId) -> Result<(), Problem> {
    let state = app.engine.log().reload::<Run>(&run.to_string()).await?.state;
    for next in state.effects() {
        let Err(problem) = steps::go_on_with(app, guard, run, next).await else { continue };
        match classify(problem.code) {
            FailureClass::Transient | FailureClass::Internal => return Err(problem),
            FailureClass::Obsolete | FailureClass::Impossible => {
                let result = steps::give_up(app, guard, run, next, &problem.detail).await;
                ignore_obsolete(result.map(|_| ()))?;
            }
        }
    }
    Ok(())
}

/// Converts the result of [`give_up`]. A rejection as obsolete counts as success. An impossible
/// command is an internal error.
fn ignore_obsolete(result: Result<(), Problem>) -> Result<(), Problem> {
    match result {
        Err(problem) => match classify(problem.code) {
            FailureClass::Obsolete => Ok(()),
            FailureClass::Impossible => Err(Problem::internal(problem.detail)),
            FailureClass::Transient | FailureClass::Internal => Err(problem),
        },
        Ok(()) => Ok(()),
    }
}

fn domain_events(event: &StoredEvent) -> Result<Vec<PolicyEvent>, Problem> {
    Ok(match event.stream.aggregate_type.as_str() {
        "app" => decoded(event, PolicyEvent::App)?,
        "build" => decoded(event, PolicyEvent::Build)?,
        "install" => decoded(event, PolicyEvent::Install)?,
        "job" => decoded(event, PolicyEvent::Job)?,
        "run" => decoded(event, PolicyEvent::Run)?,
        _ => vec![],
    })
}

fn decoded<I: FromStr + Copy, E: Event>(
    event: &StoredEvent,
    of: fn(I, E) -> PolicyEvent,
) -> Result<Vec<PolicyEvent>, Problem> {
    let named = |_| {
        Problem::internal(format!(
            "cannot read the event: {} has an invalid stream id",
            event.stream
        ))
    };
    let id: I = event.stream.aggregate_id.parse().map_err(named)?;
    Ok(event.decode()?.into_iter().map(|domain_event| of(id, domain_event)).collect())
}

#[cfg(test)]
mod tests;
