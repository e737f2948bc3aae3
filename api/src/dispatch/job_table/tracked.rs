//! Job with its dispatch data.
use chrono::TimeDelta;
use domain::{
    decider::Timestamp,
    ids::{ExecutionId, RunnerId},
    job::{Execution, Job, JobKind, Origin, State, Work},
};
use event_log::StoredEvent;
use tokio::time::Instant;

use super::Target;
use crate::dispatch::Moment;

/// Job with dispatch data that its events do not contain.
#[derive(Debug)]
pub(crate) struct TrackedJob {
    /// State folded from the job's events.
    pub job: Job,
    /// Sequence of the stored event that was applied last, and index of its domain event that was
    /// applied last.
    pub sequence: (u64, usize),
    /// Order in the queue: the position of the event that queued the job.
    pub order: u64,
    /// Time at which the job was queued, by the log's clock.
    pub queued_at: Timestamp,
    /// Time at which the queue TTL or the deadline elapses, by the monotonic clock.
    pub expires_at: Instant,
    /// Last contact from the runner that holds the job. A takeover sets it to a future time, so
    /// that the runner can reconnect.
    pub last_contact: Instant,
    /// Last time the server requested the runner's journal, because a poll did not name this
    /// execution.
    pub journal_requested_at: Option<Instant>,
    /// Start of the timeout of the pending cancellation.
    pub cancel_since: Option<Instant>,
    /// Stored event of the last claim, if this server has seen it.
    pub claim: Option<Box<StoredEvent>>,
    /// Runner of the last claim, if this server knows it.
    pub last_runner: Option<RunnerId>,
    /// Logs that are not finalized, of executions that ended or have an unknown outcome.
    pub open_logs: Vec<OpenLog>,
    /// True while an offer of the job is open, so that the job is not offered twice.
    pub offered: bool,
}

/// Log that is not finalized and may still be arriving at any server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenLog {
    /// Execution that writes the log.
    pub execution: ExecutionId,
    /// Time of the last growth that this server saw, or of the end of the execution.
    pub quiet_since: Instant,
    /// Length at `quiet_since`, in bytes.
    pub length: u64,
}

impl TrackedJob {
    /// Creates the entry of a loaded job.
    pub(crate) fn loaded(
        job: Job,
        sequence: u64,
        order: u64,
        queued_at: Timestamp,
        (last_contact, now): (Instant, Moment),
    ) -> Self {
        let mut tracked = TrackedJob {
            job,
            sequence: (sequence, usize::MAX),
            order,
            queued_at,
            expires_at: now.instant,
            last_contact,
            journal_requested_at: None,
            cancel_since: None,
            claim: None,
            last_runner: None,
            open_logs: Vec::new(),
            offered: false,
        };
        let over = match &tracked.job.state {
            State::Queued { .. } => {
                tracked.queue_ttl().and_then(|wait| queued_at.checked_add_signed(wait))
            }
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => {
                Some(held.deadline)
            }
            State::NotCreated | State::Ended { .. } => None,
        };
        let remaining = over.and_then(|over| (over - now.wall).to_std().ok()).unwrap_or_default();
        tracked.expires_at = now.instant + remaining;
        let cancel = tracked.execution().and_then(|held| held.cancel.as_ref());
        tracked.cancel_since = cancel.filter(|cancel| !cancel.unconfirmed).map(|_| last_contact);
        tracked.last_runner = tracked.execution().map(|held| held.runner);
        let over = tracked.job.lost.iter().map(|lost| lost.id).chain(match &tracked.job.state {
            State::OutcomeUnknown(held) => Some(held.id),
            State::Ended { execution, .. } => *execution,
            State::NotCreated | State::Queued { .. } | State::Claimed(_) | State::Running(_) => {
                None
            }
        });
        let not_finalized: Vec<_> = over.filter(|over| !tracked.is_log_finalized(*over)).collect();
        let open = |execution| OpenLog { execution, quiet_since: last_contact, length: 0 };
        tracked.open_logs = not_finalized.into_iter().map(open).collect();
        tracked
    }

    pub(crate) fn work(&self) -> Option<&Work> {
        self.job.work.as_ref()
    }

    /// Execution that holds the job and may still report.
    pub(crate) fn execution(&self) -> Option<&Execution> {
        self.job.execution()
    }

    /// Execution whose contact is monitored: it is neither ended nor of unknown outcome.
    pub(crate) fn active_execution(&self) -> Option<&Execution> {
        match &self.job.state {
            State::Claimed(held) | State::Running(held) => Some(held),
            State::OutcomeUnknown(_)
            | State::NotCreated
            | State::Queued { .. }
            | State::Ended { .. } => None,
        }
    }

    pub(crate) fn target(&self) -> Option<Target> {
        self.work().map(|work| match work.origin {
            Origin::Build { .. } | Origin::Source { .. } => Target::Build,
            Origin::Preflight { install, .. } | Origin::Step { install, .. } => {
                Target::Install(install)
            }
        })
    }

    /// Queue in which the job waits.
    pub(super) fn queue(&self) -> Option<(Target, JobKind)> {
        Some((self.target()?, self.work()?.kind))
    }

    /// Longest time that the job may wait for a runner.
    pub(crate) fn queue_ttl(&self) -> Option<TimeDelta> {
        self.work().map(|work| TimeDelta::milliseconds(work.queue_ttl_ms.cast_signed()))
    }

    pub(crate) fn is_log_finalized(&self, execution: ExecutionId) -> bool {
        self.job.logs.iter().any(|log| log.execution == execution)
    }

    pub(super) fn is_complete(&self) -> bool {
        match &self.job.state {
            State::NotCreated | State::Ended { .. } => self.open_logs.is_empty(),
            State::Queued { .. }
            | State::Claimed(_)
            | State::Running(_)
            | State::OutcomeUnknown(_) => false,
        }
    }
}
