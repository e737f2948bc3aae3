//! What happened between two positions, by run: who asked, who decided, what ran, what became another version.
//!
//! Read from the log alone: the events of the install, of the runs that were admitted there, and of their jobs, each
//! stream by its index. A history that is too long for one answer says up to where it goes.
use domain::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{BuildId, InstallId, JobId, RunId, RunnerId},
    install::Install,
    job, run,
};
use event_log::{EventLog, LogError};

use crate::{Fact, Recorded, fact::streams};

mod components;
mod story;
#[cfg(test)]
mod tests;

/// The most events of one kind that one answer is made of.
pub const EVENTS: u32 = 10_000;
/// What is read of a job also where it is older: what it was for, who had it, and how it ended.
const OF_JOBS: [&str; 6] =
    ["job.queued", "job.claimed", "job.succeeded", "job.failed", "job.cancelled", "job.lost"];

/// What happened after a position and not after another.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// By run, in the order in which they were asked for.
    pub runs: Vec<RunHistory>,
    /// What belongs to no run.
    pub others: Vec<Happened>,
    /// Everything up to here is told.
    pub until: u64,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHistory {
    /// Which.
    pub run: RunId,
    /// What was asked, by whom and why.
    pub request: Option<run::Request>,
    /// When it was.
    pub requested_at: Option<Timestamp>,
    /// How it ended, if it had.
    pub outcome: Option<run::Outcome>,
    /// When it did.
    pub ended_at: Option<Timestamp>,
    /// What people, and rules in their place, said to it: also before the first position, because a plan that was
    /// approved on Monday may be applied on Tuesday.
    pub words: Vec<Word>,
    /// The jobs of which something happened.
    pub jobs: Vec<JobHistory>,
    /// The components and the sandbox that it changed, or began to.
    pub components: Vec<ComponentHistory>,
    /// What happened.
    pub events: Vec<Happened>,
}

/// What somebody said.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// What.
    pub said: Said,
    /// Of which step, by the name of what it changes; none of the whole run.
    pub of: Option<String>,
    /// The plan that was meant.
    pub digest: Option<Digest>,
    /// Who.
    pub by: Actor,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
    /// Where in the log.
    pub position: u64,
}

/// What can be said to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Yes to a plan.
    Approved,
    /// No to a plan.
    Denied,
    /// Nothing, in time.
    Expired,
    /// That it is to end.
    CancelRequested,
    /// That a step is to be tried again.
    Retried,
    /// What became of a job of which nobody could say.
    Resolved,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobHistory {
    /// Which.
    pub job: JobId,
    /// What it was.
    pub kind: Option<job::JobKind>,
    /// What its step changes.
    pub of: Option<String>,
    /// Who had it last.
    pub runner: Option<RunnerId>,
    /// How often it was tried.
    pub attempts: u32,
    /// How it ended, if it had.
    pub outcome: Option<job::Outcome>,
    /// Why it failed, in words.
    pub detail: Option<String>,
    /// When it was queued.
    pub queued_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What became of a component, or of the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentHistory {
    /// By name.
    pub name: String,
    /// What was there before the run; none if nothing was.
    pub before: Option<Version>,
    /// What is there after it, or at the second position; none if nothing is.
    pub after: Option<Version>,
    /// Whether nobody can say what of it is there: an apply goes on, or has failed.
    pub incomplete: bool,
}

/// What of a component is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The config version it was brought by.
    pub config_version: u32,
    /// What was brought.
    pub build: BuildId,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Happened {
    /// Where in the log.
    pub position: u64,
    /// When.
    pub at: Timestamp,
    /// `aggregate.verb_past`.
    pub event_type: &'static str,
    /// `<aggregate type>/<aggregate id>`.
    pub stream: String,
    /// Who did it.
    pub actor: Actor,
    /// Why, where the event says so.
    pub reason: Option<String>,
}

impl Said {
    /// As it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Said::Approved => "approved",
            Said::Denied => "denied",
            Said::Expired => "expired",
            Said::CancelRequested => "cancel_requested",
            Said::Retried => "retried",
            Said::Resolved => "resolved",
        }
    }
}

/// What happened to an install after a position and not after another; `only`: what one run did.
///
/// # Errors
/// [`LogError`].
pub async fn of_install(
    log: &EventLog,
    install: InstallId,
    (from, to): (u64, u64),
    only: Option<RunId>,
) -> Result<History, LogError> {
    let before = log.load_as_of::<Install>(&install.to_string(), from).await?;
    let mut read = Read { log, from, until: to };
    let own = read.streams("install", &[install.to_string()], &[]).await?;
    let mut runs: Vec<RunId> = before.state.runs.keys().copied().collect();
    runs.extend(own.iter().filter_map(story::admitted));
    if let Some(only) = only {
        runs = vec![only];
    }
    // Whole: what was asked and approved before belongs to what ran then.
    let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let all = Read { log, from: 0, until: read.until };
    let (of_runs, cut) = all.whole("run", &ids).await?;
    read.until = cut;
    let jobs: Vec<String> =
        of_runs.iter().filter_map(story::job).map(|id| id.to_string()).collect();
    let of_jobs = read.streams("job", &jobs, &OF_JOBS).await?;
    let mut events = [own, of_runs, of_jobs].concat();
    events.retain(|event| event.position <= read.until);
    events.sort_by_key(|event| event.position);
    let mut history = story::tell(&before.state, from, &events);
    if let Some(only) = only {
        history.runs.retain(|told| told.run == only);
        history.others.clear();
    }
    Ok(History { until: read.until, ..history })
}

/// What happened to a run, and what it did to its install.
///
/// # Errors
/// [`LogError`].
pub async fn of_run(
    log: &EventLog,
    run: RunId,
    (from, to): (u64, u64),
) -> Result<History, LogError> {
    let state = log.load_as_of::<run::Run>(&run.to_string(), to).await?;
    match &state.state.request {
        Some(request) => of_install(log, request.install, (from, to), Some(run)).await,
        None => Ok(History { runs: vec![], others: vec![], until: to }),
    }
}

/// What happened in one stream.
///
/// # Errors
/// [`LogError`].
pub async fn of_stream(
    log: &EventLog,
    (aggregate, id): (&str, &str),
    (from, to): (u64, u64),
) -> Result<History, LogError> {
    let mut read = Read { log, from, until: to };
    let events = read.streams(aggregate, &[id.to_owned()], &[]).await?;
    let others = events.iter().map(story::happened).collect();
    Ok(History { runs: vec![], others, until: read.until })
}

struct Read<'a> {
    log: &'a EventLog,
    from: u64,
    /// Where the reading was cut so far: an answer tells everything up to one position, or nothing after it.
    until: u64,
}

impl Read<'_> {
    /// The events of these streams in between, and those of these types before.
    async fn streams(
        &mut self,
        aggregate: &str,
        ids: &[String],
        older: &[&str],
    ) -> Result<Vec<Recorded>, LogError> {
        let mut connection = self.log.pool().acquire().await?;
        let (range, of) = ((self.from, self.until), (aggregate, ids));
        let found = streams::many(&mut connection, of, range, older, EVENTS).await?;
        if let Some((_, position)) = found.last.filter(|_| found.full) {
            self.until = position;
        }
        Ok(found.events)
    }

    /// All events of these streams, and up to where they are all.
    async fn whole(
        mut self,
        aggregate: &str,
        ids: &[String],
    ) -> Result<(Vec<Recorded>, u64), LogError> {
        let events = self.streams(aggregate, ids, &[]).await?;
        Ok((events, self.until))
    }
}

/// Why, where the event says so.
fn reason(fact: &Fact) -> Option<String> {
    let said = match fact {
        Fact::Access(_, event) => serde_json::to_value(event),
        Fact::App(_, event) => serde_json::to_value(event),
        Fact::Build(_, event) => serde_json::to_value(event),
        Fact::Component(_, event) => serde_json::to_value(event),
        Fact::Enrolment(_, event) => serde_json::to_value(event),
        Fact::Install(_, event) => serde_json::to_value(event),
        Fact::Job(_, event) => serde_json::to_value(event),
        Fact::Name(_, event) => serde_json::to_value(event),
        Fact::Run(_, event) => serde_json::to_value(event),
        Fact::Runner(_, event) => serde_json::to_value(event),
    };
    said.ok()?.get("reason")?.as_str().map(str::to_owned)
}
