//! What a history is made of.
use domain::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{BuildId, JobId, RunId, RunnerId},
    job, run,
};

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
