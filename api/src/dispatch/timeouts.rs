//! Commands for elapsed timeouts. The commands are collected under the lock of the dispatcher, and
//! handled after its release.
use std::time::Duration;

use domain::{
    decider::Timestamp,
    ids::{ExecutionId, JobId, RunnerId},
    job::{Contact, JobClass, JobCommand, LossReason, State},
};
use event_log::SessionGuard;

use super::{
    Dispatch, Moment, Timing, convert,
    job_table::{OpenLog, TrackedJob},
    lease::{ContactState, LivenessTransition, transition},
    session::{RunnerEntry, Session},
};

/// Command caused by an elapsed timeout.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TimeoutCommand {
    /// Command to a job. If the command concerns lost contact, the guard ensures that only the
    /// owner of the session applies it.
    Job {
        job: JobId,
        command: Box<JobCommand>,
        /// Session that this server must still own.
        guard: Option<SessionGuard>,
    },
    /// A runner has been disconnected for [`Timing::runner_disconnected`].
    RunnerDisconnected {
        runner: RunnerId,
        /// Time of the runner's last contact.
        since: Timestamp,
        /// Session that this server must still own.
        guard: SessionGuard,
    },
    /// This server has not seen a log grow for [`Timing::log_quiet`]. The log may be arriving at
    /// another server, so it is finalized only if it still has this length in the database.
    FinalizeLog {
        job: JobId,
        execution: ExecutionId,
        /// Length that this server knows, in bytes.
        length: u64,
    },
}

impl Dispatch {
    /// Returns all commands that are due now. Returns a command again until the log contains its
    /// event.
    pub(crate) fn due(&self, now: Moment) -> Vec<TimeoutCommand> {
        let (state, timing) = (self.state(), self.timing());
        let owned = |runner| {
            let epoch = state.runners.get(runner)?.epoch?;
            Some(SessionGuard {
                runner: RunnerId::to_string(&runner),
                server: self.server().to_string(),
                server_epoch: epoch,
            })
        };
        let mut due = Vec::new();
        let is_replaced =
            |runner| state.runners.get(runner).is_some_and(|entry| entry.runner.replaced);
        for (job, tracked) in state.jobs.all() {
            if let Some(held) = tracked.active_execution()
                && is_replaced(held.runner)
            {
                let (execution, loss_reason) = (held.id, LossReason::HostReplaced);
                let command = JobCommand::DeclareLost { execution, loss_reason };
                due.push(TimeoutCommand::Job { job, command: command.into(), guard: None });
            } else if let Some(held) = tracked.active_execution()
                && let Some(guard) = owned(held.runner)
                && let Some(command) = liveness_command(tracked, now, timing)
            {
                due.push(TimeoutCommand::Job { job, command: command.into(), guard: Some(guard) });
            }
            due.extend(overdue(job, tracked, now, timing));
        }
        for (runner, entry) in state.runners.all() {
            if let Some(since) = disconnected_since(entry, now, timing)
                && let Some(guard) = owned(runner)
            {
                due.push(TimeoutCommand::RunnerDisconnected { runner, since, guard });
            }
        }
        due
    }
}

/// Returns the command to a job whose execution lost contact or passed its deadline.
fn liveness_command(tracked: &TrackedJob, now: Moment, timing: &Timing) -> Option<JobCommand> {
    let held = tracked.active_execution()?;
    let contact = ContactState {
        since_contact: now.instant.saturating_duration_since(tracked.last_contact),
        overdue: elapsed_on_both_clocks(tracked, now, held.deadline),
        disconnected: held.contact == Contact::Disconnected,
        pure: tracked.job.class() == JobClass::Pure,
    };
    let execution = held.id;
    Some(match transition(contact, timing)? {
        LivenessTransition::Disconnected => JobCommand::Disconnect { execution },
        LivenessTransition::ContactTimeout => {
            JobCommand::DeclareLost { execution, loss_reason: LossReason::Disconnected }
        }
        LivenessTransition::DeadlinePassed => {
            JobCommand::DeclareLost { execution, loss_reason: LossReason::DeadlinePassed }
        }
    })
}

/// Time since both clocks passed `moment`, or `None` if one of them has not. A jump of the wall
/// clock therefore ends nothing early.
fn elapsed_on_both_clocks(
    tracked: &TrackedJob,
    now: Moment,
    moment: Timestamp,
) -> Option<Duration> {
    let world = (now.wall - moment).to_std().ok()?;
    Some(world.min(now.instant.checked_duration_since(tracked.expires_at)?))
}

/// Returns the commands for timeouts that do not depend on lost contact.
fn overdue(job: JobId, tracked: &TrackedJob, now: Moment, timing: &Timing) -> Vec<TimeoutCommand> {
    let mut due = Vec::new();
    let passed = |since| now.instant.saturating_duration_since(since);
    if let State::Queued { attempt } = tracked.job.state
        && let Some(queue_ttl) = tracked.queue_ttl()
        && let Some(until) = tracked.queued_at.checked_add_signed(queue_ttl)
        && elapsed_on_both_clocks(tracked, now, until).is_some()
    {
        let command = JobCommand::Expire { attempt }.into();
        due.push(TimeoutCommand::Job { job, command, guard: None });
    }
    if let Some(held) = tracked.active_execution()
        && let (Some(cancel), Some(since)) = (&held.cancel, tracked.cancel_since)
    {
        let grace = convert::grace_s(tracked.job.class(), cancel.force);
        let timeout = Duration::from_secs(grace) + timing.cancel_confirm;
        if !cancel.unconfirmed && passed(since) >= timeout {
            let command = JobCommand::DeclareCancelUnconfirmed { execution: held.id };
            due.push(TimeoutCommand::Job { job, command: command.into(), guard: None });
        }
    }
    let quiet =
        tracked.open_logs.iter().filter(|open| passed(open.quiet_since) >= timing.log_quiet);
    due.extend(quiet.map(|open| {
        let OpenLog { execution, length, quiet_since: _ } = *open;
        TimeoutCommand::FinalizeLog { job, execution, length }
    }));
    due
}

fn disconnected_since(entry: &RunnerEntry, now: Moment, timing: &Timing) -> Option<Timestamp> {
    let since_contact = now.instant.saturating_duration_since(entry.effective_contact);
    let parked = entry.session.as_ref().is_some_and(Session::has_long_poll);
    let recorded = entry.runner.disconnected_since.is_some() || entry.runner.revoked;
    (!parked && !recorded && since_contact >= timing.runner_disconnected)
        .then(|| now.wall - since_contact)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    };

    use chrono::TimeDelta;
    use domain::{
        ids::{AppId, BuildId, ComponentId, SessionId},
        job::{JobEvent, JobKind, Origin, Work},
        runner::Runner,
    };
    use schemas::runner::{Poll, Running};
    use tokio::time::advance;
    use ulid::Ulid;

    use super::*;
    use crate::dispatch::{SessionError, job_table::JobEventRecord};

    const HOUR: u64 = 3_600;
    const JOB: JobId = JobId(Ulid(7));
    const EXECUTION: ExecutionId = ExecutionId(Ulid(8));
    const RUNNER: RunnerId = RunnerId(Ulid(9));

    /// Creates a dispatcher whose wall clock the test sets.
    fn dispatch() -> (Dispatch, Arc<AtomicI64>) {
        let seconds = Arc::new(AtomicI64::new(0));
        let read = Arc::clone(&seconds);
        let clock = move || Timestamp::UNIX_EPOCH + TimeDelta::seconds(read.load(SeqCst));
        let dispatch = Dispatch::new("here", Timing::default(), Arc::new(clock));
        let now = dispatch.moment().instant;
        dispatch.state().runners.meet(RUNNER, Runner::default(), 1, now).epoch = Some(1);
        apply_event(
            &dispatch,
            1,
            JobEvent::Queued(Work {
                kind: JobKind::Build,
                class: JobClass::Pure,
                attempts: 3,
                manifest: format!("sha256:{:064x}", 1).parse().unwrap(),
                origin: Origin::Build {
                    app: AppId(Ulid(1)),
                    component: ComponentId(Ulid(2)),
                    build: BuildId(Ulid(3)),
                },
                deadline_ms: HOUR * 1_000,
                queue_ttl_ms: HOUR * 1_000,
            }),
        );
        (dispatch, seconds)
    }

    fn apply_event(dispatch: &Dispatch, sequence: u64, event: JobEvent) {
        let (now, recorded_at) = (dispatch.moment(), dispatch.moment().wall);
        let domain_event = JobEventRecord {
            job: JOB,
            sequence: (sequence, 0),
            position: sequence,
            recorded_at,
            event,
            claim: None,
        };
        dispatch.state().on_job(domain_event, now, dispatch.timing());
    }

    fn claim(dispatch: &Dispatch) {
        let deadline = dispatch.moment().wall + Duration::from_secs(HOUR);
        let (session, claim_id) = (SessionId(Ulid(1)), "c".into());
        let (execution, runner, attempt) = (EXECUTION, RUNNER, 1);
        let claimed = JobEvent::Claimed { execution, runner, session, claim_id, attempt, deadline };
        apply_event(dispatch, 2, claimed);
    }

    fn job_commands(dispatch: &Dispatch) -> Vec<JobCommand> {
        let job = |due| match due {
            TimeoutCommand::Job { command, .. } => Some(*command),
            TimeoutCommand::RunnerDisconnected { .. } | TimeoutCommand::FinalizeLog { .. } => None,
        };
        dispatch.due(dispatch.moment()).into_iter().filter_map(job).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn clock_jump_does_not_end_an_execution() {
        // given an execution with an hour left
        let (dispatch, clock) = dispatch();
        claim(&dispatch);
        // when the wall clock jumps ahead by two hours
        clock.fetch_add(2 * HOUR.cast_signed(), SeqCst);
        // then the execution is not lost
        assert_eq!(job_commands(&dispatch), []);
        // but the execution is lost once the hour and the overtime have passed on both clocks
        advance(Duration::from_secs(HOUR + 600)).await;
        dispatch.record_execution_contact(RUNNER, JOB, EXECUTION);
        let (execution, loss_reason) = (EXECUTION, LossReason::DeadlinePassed);
        assert_eq!(job_commands(&dispatch), [JobCommand::DeclareLost { execution, loss_reason }]);
        // and a wall clock that jumps back only delays the loss
        clock.store(0, SeqCst);
        assert_eq!(job_commands(&dispatch), []);
    }

    #[tokio::test(start_paused = true)]
    async fn execution_of_a_replaced_host_is_lost_also_without_its_session() {
        let (dispatch, _clock) = dispatch();
        claim(&dispatch);
        let replace = |replaced, epoch| {
            let (runner, now) =
                (Runner { replaced, revoked: true, ..Runner::default() }, dispatch.moment());
            let mut state = dispatch.state();
            let entry = state.runners.meet(RUNNER, runner.clone(), 2, now.instant);
            (entry.runner, entry.epoch) = (runner, epoch);
        };
        // A revoked runner may finish its jobs.
        replace(false, Some(1));
        assert_eq!(job_commands(&dispatch), []);
        for epoch in [Some(1), None] {
            replace(true, epoch);
            let (execution, loss_reason) = (EXECUTION, LossReason::HostReplaced);
            let lost = JobCommand::DeclareLost { execution, loss_reason };
            assert_eq!(job_commands(&dispatch), [lost]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_jump_does_not_expire_a_queued_job() {
        let (dispatch, clock) = dispatch();
        clock.fetch_add(2 * HOUR.cast_signed(), SeqCst);
        assert_eq!(job_commands(&dispatch), []);
        advance(Duration::from_secs(HOUR)).await;
        assert_eq!(job_commands(&dispatch), [JobCommand::Expire { attempt: 1 }]);
    }

    #[tokio::test(start_paused = true)]
    async fn growing_log_is_not_finalized() {
        // given a finished execution whose log is still arriving
        let (dispatch, _clock) = dispatch();
        claim(&dispatch);
        let execution = EXECUTION;
        apply_event(
            &dispatch,
            3,
            JobEvent::Succeeded {
                execution,
                seq: Some(1),
                exit_code: None,
                signed: None,
                not_ended: vec![],
            },
        );
        let finalized_logs = || -> Vec<(ExecutionId, u64)> {
            let finalized = |due| match due {
                TimeoutCommand::FinalizeLog { execution, length, .. } => Some((execution, length)),
                TimeoutCommand::Job { .. } | TimeoutCommand::RunnerDisconnected { .. } => None,
            };
            dispatch.due(dispatch.moment()).into_iter().filter_map(finalized).collect()
        };
        // when the log keeps growing for longer than the timeout, then it is not finalized
        let log_quiet = dispatch.timing().log_quiet;
        for length in 1..=3 {
            advance(log_quiet - Duration::from_secs(1)).await;
            assert_eq!(finalized_logs(), []);
            dispatch.log_grew(JOB, EXECUTION, length);
        }
        // and when the log stops growing, it is finalized after the timeout
        advance(log_quiet - Duration::from_secs(1)).await;
        assert_eq!(finalized_logs(), []);
        advance(Duration::from_secs(1)).await;
        assert_eq!(finalized_logs(), [(EXECUTION, 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_holder_of_an_execution_renews_its_lease() {
        let (dispatch, _clock) = dispatch();
        claim(&dispatch);
        advance(Duration::from_secs(61)).await;
        dispatch.record_execution_contact(RunnerId(Ulid(10)), JOB, EXECUTION);
        assert_eq!(job_commands(&dispatch), [JobCommand::Disconnect { execution: EXECUTION }]);
        dispatch.record_execution_contact(RUNNER, JOB, EXECUTION);
        assert_eq!(job_commands(&dispatch), []);
    }

    #[tokio::test(start_paused = true)]
    async fn poll_that_omits_an_execution_requires_the_journal() {
        // given a runner that claimed a job and then polls without naming the job
        let (dispatch, _clock) = dispatch();
        claim(&dispatch);
        let now = dispatch.moment().instant;
        let session = Session { slots: 1, ..Session::new(SessionId(Ulid(1)), 1, 1) };
        dispatch.state().open_session(RUNNER, session, now);
        let without_jobs = Poll {
            session_id: SessionId(Ulid(1)),
            generation: 1,
            free_slots: 1,
            ack: vec![],
            running: vec![],
            pressure: None,
            disabled: None,
        };
        let running = vec![Running { job: JOB, execution: EXECUTION, phase: None, log_len: 0 }];
        let with_jobs = Poll { running, ..without_jobs.clone() };
        advance(Duration::from_secs(59)).await;
        assert!(
            dispatch.apply_poll(RUNNER, &without_jobs).is_ok(),
            "the runner may be about to start the job"
        );
        // after a minute the server requests the runner's journal, at most once a minute
        advance(Duration::from_secs(1)).await;
        assert_eq!(dispatch.apply_poll(RUNNER, &without_jobs), Err(SessionError::JournalRequired));
        assert!(
            dispatch.apply_poll(RUNNER, &without_jobs).is_ok(),
            "the journal may be on its way"
        );
        advance(Duration::from_secs(60)).await;
        assert!(dispatch.apply_poll(RUNNER, &with_jobs).is_ok());
        assert!(
            dispatch.apply_poll(RUNNER, &without_jobs).is_ok(),
            "the runner has just named the execution"
        );
    }
}
