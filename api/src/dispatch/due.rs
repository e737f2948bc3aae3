//! What the clock has to say: collected in one look at the desk, said outside of its lock.
use domain::{
    decider::Timestamp,
    ids::{ExecutionId, JobId, RunnerId},
    job::{Class, Contact, JobCommand, Proof, State},
};
use event_log::SessionGuard;

use super::{
    Dispatch, Moment, Timing,
    board::Tracked,
    lease::{Edge, Silence, edge},
    session::{Known, Session},
    words,
};

/// One thing to say to the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Due {
    /// To a job. Guarded, when it is about a silence, by whose silence it was to notice.
    Job {
        /// Which.
        job: JobId,
        /// What.
        command: JobCommand,
        /// The session that must still be this server's.
        guard: Option<SessionGuard>,
    },
    /// A runner has not called for minutes.
    Silent {
        /// Which.
        runner: RunnerId,
        /// Since when.
        since: Timestamp,
        /// The session that must still be this server's.
        guard: SessionGuard,
    },
    /// Nobody sends the rest of a log any more.
    Seal {
        /// Whose job.
        job: JobId,
        /// Whose log.
        execution: ExecutionId,
    },
}

impl Dispatch {
    /// Everything that is due now. Looking twice is harmless: each is said until the log has it.
    pub fn due(&self, now: Moment) -> Vec<Due> {
        let (desk, timing) = (self.desk(), self.timing());
        let owned = |runner| {
            let epoch = desk.roster.get(runner)?.owned?;
            Some(SessionGuard {
                runner: RunnerId::to_string(&runner),
                server: self.server().to_string(),
                server_epoch: epoch,
            })
        };
        let mut due = Vec::new();
        for (job, tracked) in desk.board.all() {
            if let Some(held) = tracked.alive()
                && let Some(guard) = owned(held.runner)
                && let Some(command) = silence(tracked, now, timing)
            {
                due.push(Due::Job { job, command, guard: Some(guard) });
            }
            due.extend(overdue(job, tracked, now, timing));
        }
        for (runner, known) in desk.roster.all() {
            if let Some(since) = silent_since(known, now, timing)
                && let Some(guard) = owned(runner)
            {
                due.push(Due::Silent { runner, since, guard });
            }
        }
        due
    }
}

/// What the silence of an execution means to its job.
fn silence(tracked: &Tracked, now: Moment, timing: &Timing) -> Option<JobCommand> {
    let held = tracked.alive()?;
    let silence = Silence {
        silent: now.instant.saturating_duration_since(tracked.heard),
        overdue: (now.wall - held.deadline).to_std().ok(),
        disconnected: held.contact == Contact::Disconnected,
        pure: tracked.job.class() == Class::Pure,
    };
    let execution = held.id;
    Some(match edge(silence, timing)? {
        Edge::Disconnected => JobCommand::Disconnect { execution },
        Edge::SilentTooLong => JobCommand::DeclareLost { execution, proof: Proof::SilentTooLong },
        Edge::DeadlinePassed => JobCommand::DeclareLost { execution, proof: Proof::DeadlinePassed },
    })
}

/// What does not depend on who is silent: waits that are over.
fn overdue(job: JobId, tracked: &Tracked, now: Moment, timing: &Timing) -> Vec<Due> {
    let mut due = Vec::new();
    let passed = |since| now.instant.saturating_duration_since(since);
    if let State::Queued { attempt } = tracked.job.state
        && let Some(work) = tracked.work()
        && (now.wall - tracked.queued_at).num_milliseconds() >= work.queue_ttl_ms.cast_signed()
    {
        due.push(Due::Job { job, command: JobCommand::Expire { attempt }, guard: None });
    }
    if let Some(held) = tracked.alive()
        && let (Some(asked), Some(since)) = (&held.cancel, tracked.cancel_since)
    {
        let grace = words::grace_s(tracked.job.class(), asked.force);
        let patience = std::time::Duration::from_secs(grace) + timing.cancel_confirm;
        if !asked.unconfirmed && passed(since) >= patience {
            let command = JobCommand::DeclareCancelUnconfirmed { execution: held.id };
            due.push(Due::Job { job, command, guard: None });
        }
    }
    let late = tracked.unsealed.iter().filter(|(_, since)| passed(*since) >= timing.seal);
    due.extend(late.map(|(execution, _)| Due::Seal { job, execution: *execution }));
    due
}

fn silent_since(known: &Known, now: Moment, timing: &Timing) -> Option<Timestamp> {
    let silent = now.instant.saturating_duration_since(known.heard);
    let parked = known.session.as_ref().is_some_and(Session::is_parked);
    let told = known.runner.silent_since.is_some() || known.runner.revoked;
    (!parked && !told && silent >= timing.runner_silent).then(|| now.wall - silent)
}
