//! Types of an install's history.
use crate::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{BuildId, JobId, RunId, RunnerId},
    job, run,
};

/// History after one position and up to another.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Runs in the order in which they were requested.
    pub runs: Vec<RunHistory>,
    /// Events that belong to no run.
    pub other_events: Vec<EventSummary>,
    /// Position up to which the history is complete.
    pub complete_through: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunHistory {
    pub run: RunId,
    pub request: Option<run::Request>,
    pub requested_at: Option<Timestamp>,
    /// Outcome of the run. `None` before the run finished.
    pub outcome: Option<run::Outcome>,
    /// Time at which the run finished.
    pub ended_at: Option<Timestamp>,
    /// Interventions in the run. Also includes interventions before the range, for example the
    /// approval of an apply within the range.
    pub interventions: Vec<Intervention>,
    /// Jobs with an event within the range.
    pub jobs: Vec<JobHistory>,
    /// Components that the run changed or started to change, including the sandbox.
    pub components: Vec<ComponentHistory>,
    /// Events within the range.
    pub events: Vec<EventSummary>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Intervention {
    pub kind: InterventionKind,
    /// Name of the component, sandbox or action of the step, or `None` for the whole run.
    pub target: Option<String>,
    /// Digest of the plan that the decision covers, or `None` for other interventions.
    pub digest: Option<Digest>,
    pub by: Actor,
    pub reason: Option<String>,
    pub at: Timestamp,
    pub position: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterventionKind {
    Approved,
    Denied,
    /// A plan was not approved in time.
    Expired,
    /// An actor requested the cancellation of the run.
    CancelRequested,
    /// An actor requested a retry of a step, or its back-off elapsed.
    Retried,
    /// An actor resolved the unknown outcome of a job.
    Resolved,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JobHistory {
    pub job: JobId,
    pub kind: Option<job::JobKind>,
    /// Name of the component, sandbox or action of the job's step.
    pub target: Option<String>,
    /// Runner of the last execution.
    pub runner: Option<RunnerId>,
    /// Number of executions.
    pub attempts: u32,
    /// Outcome of the job. `None` before the job finished.
    pub outcome: Option<job::Outcome>,
    /// Explanation of the failure for users.
    pub detail: Option<String>,
    /// Time at which the job was first queued.
    pub queued_at: Option<Timestamp>,
    /// Time at which the job finished.
    pub ended_at: Option<Timestamp>,
}

/// History of a component or of the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentHistory {
    pub name: String,
    /// Version before the run. `None` if the component was not deployed.
    pub before: Option<Version>,
    /// Version after the run or at the end of the range. `None` if the component is not deployed.
    pub after: Option<Version>,
    /// True if the last apply is in progress or did not succeed, so the actual state is unknown.
    pub incomplete: bool,
}

/// Deployed version of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Config version of the deploy.
    pub config_version: u32,
    pub build: BuildId,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EventSummary {
    pub position: u64,
    pub at: Timestamp,
    /// Event type, in the form `aggregate.verb_past`.
    pub event_type: &'static str,
    /// Stream, in the form `<aggregate type>/<aggregate id>`.
    pub stream: String,
    pub actor: Actor,
    /// Reason in the event, if it has one.
    pub reason: Option<String>,
}

impl InterventionKind {
    /// Name in the API and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            InterventionKind::Approved => "approved",
            InterventionKind::Denied => "denied",
            InterventionKind::Expired => "expired",
            InterventionKind::CancelRequested => "cancel_requested",
            InterventionKind::Retried => "retried",
            InterventionKind::Resolved => "resolved",
        }
    }
}
