//! Topics to which a webhook can subscribe, and the events that belong to them.
use std::{fmt, str::FromStr};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    ids::{JobId, RunId, RunnerId, StepId},
    job::JobEvent,
    recorded::DomainEvent,
    run::{Outcome, Run, RunEvent, RunKind, StepState},
    runner::RunnerEvent,
};

/// Kind of event that a webhook sends.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Topic {
    /// A plan waits for an approval.
    #[serde(rename = "run.approval_requested")]
    ApprovalRequested,
    /// A run ended without success: it failed, or was cancelled, denied or not approved in time.
    #[serde(rename = "run.failed")]
    RunFailed,
    /// A run that changes an install succeeded.
    #[serde(rename = "run.succeeded")]
    RunSucceeded,
    /// A drift check found changes.
    #[serde(rename = "run.drift_found")]
    DriftFound,
    /// The outcome of a job is unknown, and a user must resolve it.
    #[serde(rename = "job.outcome_unknown")]
    OutcomeUnknown,
    /// A runner is disconnected, and did not announce it.
    #[serde(rename = "runner.disconnected")]
    RunnerDisconnected,
    /// A disconnected runner called again.
    #[serde(rename = "runner.reconnected")]
    RunnerReconnected,
}

impl Topic {
    /// All topics.
    pub const ALL: [Topic; 7] = [
        Topic::ApprovalRequested,
        Topic::RunFailed,
        Topic::RunSucceeded,
        Topic::DriftFound,
        Topic::OutcomeUnknown,
        Topic::RunnerDisconnected,
        Topic::RunnerReconnected,
    ];

    /// Name of the topic, which is also the type of the message.
    pub fn name(self) -> &'static str {
        match self {
            Topic::ApprovalRequested => "run.approval_requested",
            Topic::RunFailed => "run.failed",
            Topic::RunSucceeded => "run.succeeded",
            Topic::DriftFound => "run.drift_found",
            Topic::OutcomeUnknown => "job.outcome_unknown",
            Topic::RunnerDisconnected => "runner.disconnected",
            Topic::RunnerReconnected => "runner.reconnected",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Text that is no topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a topic: use one of {}", Topic::ALL.map(Topic::name).join(", "))]
pub struct UnknownTopic {
    found: String,
}

impl FromStr for Topic {
    type Err = UnknownTopic;

    fn from_str(text: &str) -> Result<Topic, UnknownTopic> {
        let topic = Topic::ALL.into_iter().find(|topic| topic.name() == text);
        topic.ok_or_else(|| UnknownTopic { found: text.to_owned() })
    }
}

/// Event that may belong to a topic. The topic of a finished run depends on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Of(Topic, About),
    /// A run finished: [`Notice::of_finished`] returns its topic.
    Finished(RunId, Outcome),
}

/// Aggregate that a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Step(RunId, StepId),
    Job(JobId),
    Runner(RunnerId),
}

impl Notice {
    /// Returns the notice of an event, if the event can belong to a topic.
    pub fn of(event: &DomainEvent) -> Option<Notice> {
        match event {
            DomainEvent::Run(run, RunEvent::ApprovalRequested { step, .. }) => {
                Some(Notice::Of(Topic::ApprovalRequested, About::Step(*run, *step)))
            }
            DomainEvent::Run(run, RunEvent::Finished { outcome }) => {
                Some(Notice::Finished(*run, *outcome))
            }
            DomainEvent::Job(job, JobEvent::OutcomeUnknown { .. }) => {
                Some(Notice::Of(Topic::OutcomeUnknown, About::Job(*job)))
            }
            DomainEvent::Runner(runner, RunnerEvent::Disconnected { stopped: false, .. }) => {
                Some(Notice::Of(Topic::RunnerDisconnected, About::Runner(*runner)))
            }
            DomainEvent::Runner(runner, RunnerEvent::Reconnected) => {
                Some(Notice::Of(Topic::RunnerReconnected, About::Runner(*runner)))
            }
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Install(..)
            | DomainEvent::Job(..)
            | DomainEvent::Name(..)
            | DomainEvent::Plugin(..)
            | DomainEvent::Run(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..)
            | DomainEvent::Webhook(..) => None,
        }
    }

    /// Returns the topic of a finished run. A drift check without drift has none.
    pub fn of_finished(run: &Run, outcome: Outcome) -> Option<Topic> {
        let is_drift = run.request.as_ref().is_some_and(|request| request.kind == RunKind::Drift);
        match outcome {
            Outcome::Failed | Outcome::Cancelled | Outcome::Denied | Outcome::Expired => {
                Some(Topic::RunFailed)
            }
            Outcome::Succeeded if is_drift => {
                let changes = StepState::Succeeded { noop: false };
                run.steps.iter().any(|step| step.state == changes).then_some(Topic::DriftFound)
            }
            Outcome::Succeeded => Some(Topic::RunSucceeded),
        }
    }
}
