//! What the clock has to say: collected in one look at the desk, said outside of its lock.
use std::time::Duration;

use domain::{
    decider::Timestamp,
    ids::{ExecutionId, JobId, RunnerId},
    job::{Contact, JobClass, JobCommand, LossReason, State},
};
use event_log::SessionGuard;

use super::{
    Dispatch, Moment, Timing,
    board::{OpenLog, Tracked},
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
        command: Box<JobCommand>,
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
    /// This server has not seen a log grow for a while. It may arrive at another server, so the database decides whether
    /// it is quiet: only a log that still has this length is finalized without its end.
    Seal {
        /// Whose job.
        job: JobId,
        /// Whose log.
        execution: ExecutionId,
        /// Its length, as far as this server knows.
        length: u64,
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
                due.push(Due::Job { job, command: command.into(), guard: Some(guard) });
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
        overdue: both(tracked, now, held.deadline),
        disconnected: held.contact == Contact::Disconnected,
        pure: tracked.job.class() == JobClass::Pure,
    };
    let execution = held.id;
    Some(match edge(silence, timing)? {
        Edge::Disconnected => JobCommand::Disconnect { execution },
        Edge::SilentTooLong => {
            JobCommand::DeclareLost { execution, loss_reason: LossReason::Disconnected }
        }
        Edge::DeadlinePassed => {
            JobCommand::DeclareLost { execution, loss_reason: LossReason::DeadlinePassed }
        }
    })
}

/// For how long a moment is over on both clocks; `None` before. A clock that is set forward by an hour
/// ends nothing that has an hour left, and one that is set back ends nothing early.
fn both(tracked: &Tracked, now: Moment, moment: Timestamp) -> Option<Duration> {
    let world = (now.wall - moment).to_std().ok()?;
    Some(world.min(now.instant.checked_duration_since(tracked.over_at)?))
}

/// What does not depend on who is silent: waits that are over.
fn overdue(job: JobId, tracked: &Tracked, now: Moment, timing: &Timing) -> Vec<Due> {
    let mut due = Vec::new();
    let passed = |since| now.instant.saturating_duration_since(since);
    if let State::Queued { attempt } = tracked.job.state
        && let Some(patience) = tracked.patience()
        && let Some(until) = tracked.queued_at.checked_add_signed(patience)
        && both(tracked, now, until).is_some()
    {
        let command = JobCommand::Expire { attempt }.into();
        due.push(Due::Job { job, command, guard: None });
    }
    if let Some(held) = tracked.alive()
        && let (Some(asked), Some(since)) = (&held.cancel, tracked.cancel_since)
    {
        let grace = words::grace_s(tracked.job.class(), asked.force);
        let patience = Duration::from_secs(grace) + timing.cancel_confirm;
        if !asked.unconfirmed && passed(since) >= patience {
            let command = JobCommand::DeclareCancelUnconfirmed { execution: held.id };
            due.push(Due::Job { job, command: command.into(), guard: None });
        }
    }
    let late = tracked.unsealed.iter().filter(|open| passed(open.quiet_since) >= timing.seal);
    due.extend(late.map(|open| {
        let OpenLog { execution, length, quiet_since: _ } = *open;
        Due::Seal { job, execution, length }
    }));
    due
}

fn silent_since(known: &Known, now: Moment, timing: &Timing) -> Option<Timestamp> {
    let silent = now.instant.saturating_duration_since(known.heard);
    let parked = known.session.as_ref().is_some_and(Session::is_parked);
    let told = known.runner.silent_since.is_some() || known.runner.revoked;
    (!parked && !told && silent >= timing.runner_silent).then(|| now.wall - silent)
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
    use crate::dispatch::{Fact, SessionRefusal};

    const HOUR: u64 = 3_600;
    const JOB: JobId = JobId(Ulid(7));
    const EXECUTION: ExecutionId = ExecutionId(Ulid(8));
    const RUNNER: RunnerId = RunnerId(Ulid(9));

    /// A dispatcher whose clock of the world is set by hand.
    fn dispatch() -> (Dispatch, Arc<AtomicI64>) {
        let seconds = Arc::new(AtomicI64::new(0));
        let read = Arc::clone(&seconds);
        let clock = move || Timestamp::UNIX_EPOCH + TimeDelta::seconds(read.load(SeqCst));
        let dispatch = Dispatch::new("here", Timing::default(), Arc::new(clock));
        let now = dispatch.moment().instant;
        dispatch.desk().roster.meet(RUNNER, Runner::default(), 1, now).owned = Some(1);
        happens(
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

    fn happens(dispatch: &Dispatch, sequence: u64, event: JobEvent) {
        let (now, recorded_at) = (dispatch.moment(), dispatch.moment().wall);
        let fact = Fact {
            job: JOB,
            sequence: (sequence, 0),
            position: sequence,
            recorded_at,
            event,
            claim: None,
        };
        dispatch.desk().on_job(fact, now, dispatch.timing());
    }

    fn is_claimed(dispatch: &Dispatch) {
        let deadline = dispatch.moment().wall + Duration::from_secs(HOUR);
        let (session, claim_id) = (SessionId(Ulid(1)), "c".into());
        let (execution, runner, attempt) = (EXECUTION, RUNNER, 1);
        let claimed = JobEvent::Claimed { execution, runner, session, claim_id, attempt, deadline };
        happens(dispatch, 2, claimed);
    }

    fn said(dispatch: &Dispatch) -> Vec<JobCommand> {
        let job = |due| match due {
            Due::Job { command, .. } => Some(*command),
            Due::Silent { .. } | Due::Seal { .. } => None,
        };
        dispatch.due(dispatch.moment()).into_iter().filter_map(job).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_ends_no_execution() {
        // given an execution with an hour left
        let (dispatch, clock) = dispatch();
        is_claimed(&dispatch);
        // when the world's clock is set forward by two hours
        clock.fetch_add(2 * HOUR.cast_signed(), SeqCst);
        // then nothing is lost
        assert_eq!(said(&dispatch), []);
        // but when the hour and the time to stop have really passed, it is
        advance(Duration::from_secs(HOUR + 600)).await;
        dispatch.touch_execution(RUNNER, JOB, EXECUTION);
        let (execution, loss_reason) = (EXECUTION, LossReason::DeadlinePassed);
        assert_eq!(said(&dispatch), [JobCommand::DeclareLost { execution, loss_reason }]);
        // and a clock that is set back only waits
        clock.store(0, SeqCst);
        assert_eq!(said(&dispatch), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_ends_nobodys_patience() {
        let (dispatch, clock) = dispatch();
        clock.fetch_add(2 * HOUR.cast_signed(), SeqCst);
        assert_eq!(said(&dispatch), []);
        advance(Duration::from_secs(HOUR)).await;
        assert_eq!(said(&dispatch), [JobCommand::Expire { attempt: 1 }]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_still_comes_in_is_not_sealed_without_its_end() {
        // given an execution that has ended and whose log is late
        let (dispatch, _clock) = dispatch();
        is_claimed(&dispatch);
        let execution = EXECUTION;
        happens(
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
        let seals = || -> Vec<(ExecutionId, u64)> {
            let seal = |due| match due {
                Due::Seal { execution, length, .. } => Some((execution, length)),
                Due::Job { .. } | Due::Silent { .. } => None,
            };
            dispatch.due(dispatch.moment()).into_iter().filter_map(seal).collect()
        };
        // when it comes in slowly, for longer than a silent one is waited for, then it is waited for
        let seal = dispatch.timing().seal;
        for length in 1..=3 {
            advance(seal - Duration::from_secs(1)).await;
            assert_eq!(seals(), []);
            dispatch.log_grew(JOB, EXECUTION, length);
        }
        // and when it is silent, then until then
        advance(seal - Duration::from_secs(1)).await;
        assert_eq!(seals(), []);
        advance(Duration::from_secs(1)).await;
        assert_eq!(seals(), [(EXECUTION, 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_holds_an_execution_renews_its_lease() {
        let (dispatch, _clock) = dispatch();
        is_claimed(&dispatch);
        advance(Duration::from_secs(61)).await;
        dispatch.touch_execution(RunnerId(Ulid(10)), JOB, EXECUTION);
        assert_eq!(said(&dispatch), [JobCommand::Disconnect { execution: EXECUTION }]);
        dispatch.touch_execution(RUNNER, JOB, EXECUTION);
        assert_eq!(said(&dispatch), []);
    }

    #[tokio::test(start_paused = true)]
    async fn who_polls_without_a_word_of_its_work_is_asked_what_became_of_it() {
        // given a runner that claimed a job and then only polls, as if it had nothing
        let (dispatch, _clock) = dispatch();
        is_claimed(&dispatch);
        let now = dispatch.moment().instant;
        let session = Session { slots: 1, ..Session::new(SessionId(Ulid(1)), 1, 1) };
        dispatch.desk().seat(RUNNER, session, now);
        let silent = Poll {
            session_id: SessionId(Ulid(1)),
            generation: 1,
            free_slots: 1,
            ack: vec![],
            running: vec![],
            pressure: None,
            disabled: None,
        };
        let running = vec![Running { job: JOB, execution: EXECUTION, phase: None, log_len: 0 }];
        let speaks = Poll { running, ..silent.clone() };
        advance(Duration::from_secs(59)).await;
        assert!(dispatch.touch(RUNNER, &silent).is_ok(), "it may be about to start it");
        // when a minute is over, then it is asked, once a minute
        advance(Duration::from_secs(1)).await;
        assert_eq!(dispatch.touch(RUNNER, &silent), Err(SessionRefusal::Unsure));
        assert!(dispatch.touch(RUNNER, &silent).is_ok(), "its answer is on its way");
        advance(Duration::from_secs(60)).await;
        assert!(dispatch.touch(RUNNER, &speaks).is_ok());
        assert!(dispatch.touch(RUNNER, &silent).is_ok(), "it has just spoken of it");
    }
}
