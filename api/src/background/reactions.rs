//! From a fact to what the policies want, one commit for each run, and what becomes of what is refused.
use std::{panic::AssertUnwindSafe, str::FromStr};

use domain::{
    actor::Actor,
    build::Build,
    decider::Event,
    ids::{BuildId, EventId, InstallId, JobId, RunId},
    install::Install,
    job::{Job, Origin},
    policy::{self, Fact, Reaction},
    run::Run,
};
use event_log::{Meta, Stored};
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{abreast::AT_ONCE, policies::Place};
use crate::{
    execute::Call,
    problem::{Code, Problem},
    state::App,
    usecases::{
        builds, runs,
        steps::{self, settle},
    },
};

/// How often a commit is tried that others were faster than.
const RACES: u32 = 5;

/// One commit that a fact wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    QueueBuild(BuildId),
    SettleBuild(JobId, BuildId),
    Provision(InstallId),
    GoOn(RunId),
    SettleStep(JobId),
}

/// What it means that a reaction was answered with a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// An aggregate's own word: the fact comes too late, or something else came first.
    Over,
    /// What is wanted cannot be done, now or later, as it is.
    Cannot,
    /// Not now: the database is away, the server stops, others were faster.
    Later,
    /// A mistake of ours, or damage: it may be mended.
    Broken,
}

/// What a problem means when a reaction is answered with it.
pub fn weigh(code: Code) -> Weight {
    match code {
        Code::Rejected
        | Code::NoChanges
        | Code::AlreadyFinished
        | Code::NoRunner
        | Code::Deprovisioned
        | Code::NameTaken
        | Code::RunInProgress
        | Code::ApprovalStale
        | Code::ClaimedByOther
        | Code::Fenced
        | Code::RunnerRevoked
        | Code::Cancelled
        | Code::Expired => Weight::Over,
        Code::NotFound | Code::TooLarge | Code::StatementInvalid | Code::Invalid => Weight::Cannot,
        Code::Conflict
        | Code::Unavailable
        | Code::Busy
        | Code::ShuttingDown
        | Code::ProjectionLag => Weight::Later,
        // The archive may be put back. Until then the event is a dead letter, and the others go on.
        Code::ArchiveMissing => Weight::Broken,
        // The rest is said to callers of an API; no reaction should meet it.
        Code::Internal
        | Code::LogStale
        | Code::CallerUnreadable
        | Code::BadRequest
        | Code::InvalidJson
        | Code::DigestMismatch
        | Code::InvalidCursor
        | Code::TokenMissing
        | Code::TokenUnknown
        | Code::TokenExpired
        | Code::TokenRevoked
        | Code::TokenTypeMismatch
        | Code::AssertionInvalid
        | Code::AssertionReplayed
        | Code::ClockSkew
        | Code::ExecutionSuperseded
        | Code::Forbidden
        | Code::NotOffered
        | Code::MethodNotAllowed
        | Code::EnrolmentUsed
        | Code::SessionSuperseded
        | Code::SessionUnknown
        | Code::SessionJournalRequired
        | Code::SeqGap
        | Code::SeqConflict
        | Code::LogDivergence
        | Code::LogMismatch
        | Code::UnsupportedMediaType
        | Code::LogGap
        | Code::RangeNotSatisfiable
        | Code::IdempotencyMismatch
        | Code::ProtocolUnsupported
        | Code::RateLimited
        | Code::UploadQuotaExceeded
        | Code::LogQuotaExceeded => Weight::Broken,
    }
}

/// What a fact's reactions are about, so that nothing else about it is done at the same moment. `None`: there is none.
pub async fn about(app: &App, event: &Stored) -> Option<String> {
    // What cannot be read now, or panics, does so again when it is reacted to, and is dealt with there.
    let unread = || Some(event.stream.to_string());
    let target = AssertUnwindSafe(target(app, event)).catch_unwind().await;
    target.ok().and_then(Result::ok).unwrap_or_else(unread)
}

async fn target(app: &App, event: &Stored) -> Result<Option<String>, Problem> {
    let facts = facts(event)?;
    for (_, reaction) in facts.iter().flat_map(policy::react) {
        let (of_build, job) = match reaction {
            Reaction::QueueBuild(build) | Reaction::WakeWaitersOfBuild(build) => {
                return Ok(Some(build.to_string()));
            }
            Reaction::Provision(install) | Reaction::WakeWaitersOf(install) => {
                return Ok(Some(install.to_string()));
            }
            Reaction::GoOn(run) => return Ok(Some(run.to_string())),
            Reaction::SettleBuild(job) => (true, job),
            Reaction::SettleStep(job) => (false, job),
        };
        match origin(app, job).await? {
            Some(Origin::Build { build, .. }) if of_build => return Ok(Some(build.to_string())),
            Some(Origin::Step { run, .. }) if !of_build => return Ok(Some(run.to_string())),
            Some(Origin::Build { .. } | Origin::Step { .. }) | None => {}
        }
    }
    Ok(None)
}

/// Do everything that the policies want because of a fact. One reaction that fails for a reason of ours keeps no other
/// from being done, and one that panics does not end the policies of every install: it is a mistake in one fact.
pub async fn to(app: &App, place: &Place, event: &Stored) -> Result<(), Problem> {
    let reaction = AssertUnwindSafe(all(app, place, event)).catch_unwind();
    reaction.await.unwrap_or_else(|_| {
        Err(Problem::internal(format!("a reaction to position {} panicked", event.position)))
    })
}

async fn all(app: &App, place: &Place, event: &Stored) -> Result<(), Problem> {
    let wanted = wanted(app, event).await?;
    // Of the runs that were woken none is before another.
    let are_runs = wanted.iter().all(|(_, wanted)| matches!(wanted, Wanted::GoOn(_)));
    let at_once = if are_runs { AT_ONCE } else { 1 };
    let each: Vec<_> = wanted
        .into_iter()
        .map(|(name, wanted)| one(app, place, event, name, wanted).boxed())
        .collect();
    let done: Vec<_> = stream::iter(each).buffer_unordered(at_once).collect().await;
    let mut broken = None;
    for problem in done.into_iter().filter_map(Result::err) {
        if weigh(problem.code) == Weight::Later {
            return Err(problem);
        }
        broken = Some(problem);
    }
    broken.map_or(Ok(()), Err)
}

async fn one(
    app: &App,
    place: &Place,
    event: &Stored,
    name: &'static str,
    wanted: Wanted,
) -> Result<(), Problem> {
    let guard = call(name, event, place);
    let Err(problem) = done(app, place, &guard, wanted).await else { return Ok(()) };
    let (position, detail) = (event.position, &problem.detail);
    match weigh(problem.code) {
        Weight::Later | Weight::Broken => return Err(problem),
        Weight::Over => {
            tracing::info!(policy = name, position, reason = %detail, "Reaction rejected");
        }
        Weight::Cannot => {
            tracing::warn!(policy = name, position, reason = %detail, "{name} cannot be done at {position}: {detail}");
        }
    }
    let _alone = place.turn.write().await;
    give_up(app, &guard, wanted, &problem).await
}

fn call(name: &str, event: &Stored, place: &Place) -> Call {
    let id = EventId(event.event_id).to_string();
    let mut meta = Meta::new(Actor::Policy(name.into()), id.clone());
    meta.causation_id = Some(id);
    meta.correlation_id = event.meta().ok().and_then(|meta| meta.correlation_id);
    Call { consumer: Some(place.guard()), ..Call::of(meta) }
}

/// What the policies want, as commits. A wake is one for each run: a build that thousands wait for is
/// no larger commit than one that nobody waits for, and nobody's refusal is anybody else's.
async fn wanted(app: &App, event: &Stored) -> Result<Vec<(&'static str, Wanted)>, Problem> {
    let log = app.engine.log();
    let mut all = vec![];
    for (name, reaction) in facts(event)?.iter().flat_map(policy::react) {
        match reaction {
            Reaction::QueueBuild(build) => all.push((name, Wanted::QueueBuild(build))),
            Reaction::Provision(install) => all.push((name, Wanted::Provision(install))),
            Reaction::GoOn(run) => all.push((name, Wanted::GoOn(run))),
            // A job is for a build or for a step.
            Reaction::SettleBuild(job) => {
                if let Some(Origin::Build { build, .. }) = origin(app, job).await? {
                    all.push((name, Wanted::SettleBuild(job, build)));
                }
            }
            Reaction::SettleStep(job) => {
                if let Some(Origin::Step { .. }) = origin(app, job).await? {
                    all.push((name, Wanted::SettleStep(job)));
                }
            }
            Reaction::WakeWaitersOfBuild(build) => {
                let build = log.reload::<Build>(&build.to_string()).await?;
                all.extend(build.state.waiters.iter().map(|run| (name, Wanted::GoOn(*run))));
            }
            Reaction::WakeWaitersOf(install) => {
                let install = log.reload::<Install>(&install.to_string()).await?;
                all.extend(install.state.runs.keys().map(|run| (name, Wanted::GoOn(*run))));
            }
        }
    }
    Ok(all)
}

async fn origin(app: &App, job: JobId) -> Result<Option<Origin>, Problem> {
    let (log, job) = (app.engine.log(), job.to_string());
    let known = log.load::<Job>(&job).await?.state;
    // Where a job comes from never changes; only that it is not there may be of yesterday.
    let job = if known.work.is_some() { known } else { log.reload::<Job>(&job).await?.state };
    Ok(job.work.as_ref().map(|work| work.origin.clone()))
}

/// Do it, as often as others are faster. Hundreds of runs may tell one build that they wait for it: whoever loses against
/// them goes on alone, and then loses against callers only.
async fn done(app: &App, place: &Place, call: &Call, wanted: Wanted) -> Result<(), Problem> {
    {
        let _beside = place.turn.read().await;
        match attempt(app, call, wanted).await {
            Err(problem) if problem.code == Code::Conflict => {}
            done => return done,
        }
    }
    let _alone = place.turn.write().await;
    let mut races = 1;
    loop {
        match attempt(app, call, wanted).await {
            Err(problem) if problem.code == Code::Conflict && races < RACES => races += 1,
            done => return done,
        }
    }
}

async fn attempt(app: &App, call: &Call, wanted: Wanted) -> Result<(), Problem> {
    let done = match wanted {
        Wanted::QueueBuild(build) => builds::queue(app, call, build).await,
        Wanted::SettleBuild(job, _) => builds::settle(app, call, job).await,
        Wanted::Provision(install) => runs::provision(app, call, install).await,
        Wanted::GoOn(run) => steps::go_on(app, call, run).await,
        Wanted::SettleStep(job) => settle::settle(app, call, job).await,
    };
    done.map(|_| ())
}

/// It was refused. If it is over, nothing is left to be said; if not, whoever waits for it is told.
async fn give_up(
    app: &App,
    guard: &Call,
    wanted: Wanted,
    problem: &Problem,
) -> Result<(), Problem> {
    let said = match wanted {
        Wanted::GoOn(run) => return by_steps(app, guard, run).await,
        Wanted::SettleStep(job) => settle::give_up(app, guard, job, &problem.detail).await,
        Wanted::QueueBuild(build) | Wanted::SettleBuild(_, build)
            if weigh(problem.code) == Weight::Cannot =>
        {
            builds::give_up(app, guard, build, &problem.detail).await
        }
        // Nothing stands still: a person may ask for the run that did not come about.
        Wanted::QueueBuild(_) | Wanted::SettleBuild(..) | Wanted::Provision(_) => return Ok(()),
    };
    last_word(said.map(|_| ()))
}

/// Do what a run wants one thing at a time: the step that cannot be done fails, the others go on.
async fn by_steps(app: &App, guard: &Call, run: RunId) -> Result<(), Problem> {
    let state = app.engine.log().reload::<Run>(&run.to_string()).await?.state;
    for next in state.next() {
        let Err(problem) = steps::go_on_with(app, guard, run, next).await else { continue };
        match weigh(problem.code) {
            Weight::Later | Weight::Broken => return Err(problem),
            Weight::Over | Weight::Cannot => {
                let said = steps::give_up(app, guard, run, next, &problem.detail).await;
                last_word(said.map(|_| ()))?;
            }
        }
    }
    Ok(())
}

/// That it is over by now is an answer; that it cannot even be given up is a mistake of ours.
fn last_word(said: Result<(), Problem>) -> Result<(), Problem> {
    match said {
        Err(problem) => match weigh(problem.code) {
            Weight::Over => Ok(()),
            Weight::Cannot => Err(Problem::internal(problem.detail)),
            Weight::Later | Weight::Broken => Err(problem),
        },
        Ok(()) => Ok(()),
    }
}

fn facts(event: &Stored) -> Result<Vec<Fact>, Problem> {
    Ok(match event.stream.aggregate_type.as_str() {
        "build" => happened(event, Fact::Build)?,
        "install" => happened(event, Fact::Install)?,
        "job" => happened(event, Fact::Job)?,
        "run" => happened(event, Fact::Run)?,
        _ => vec![],
    })
}

fn happened<I: FromStr + Copy, E: Event>(
    event: &Stored,
    of: fn(I, E) -> Fact,
) -> Result<Vec<Fact>, Problem> {
    let named = |_| Problem::internal(format!("{} names nothing", event.stream));
    let id: I = event.stream.aggregate_id.parse().map_err(named)?;
    Ok(event.decode()?.into_iter().map(|fact| of(id, fact)).collect())
}

#[cfg(test)]
mod tests;
