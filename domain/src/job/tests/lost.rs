//! Loss of executions, resolution of unknown outcomes, and retries.
use super::*;

#[test]
fn a_lost_pure_job_is_tried_again_while_attempts_are_left() {
    given(silent(Pure)).when(lose(A, Disconnected)).then([again(Some(Disconnected))]);
    given(running(Pure)).when(lose(B, DeadlinePassed)).then_rejected(Fenced { held: Some(A) });
    given(requeued()).when(lose(A, Disconnected)).then_nothing();
    given(succeeded()).when(lose(A, Disconnected)).then_rejected(TOO_LATE);

    let last = and(requeued(), [claimed_by(B, 2)]);
    let lost = JobEvent::Lost { execution: B, loss_reason: DeadlinePassed };
    given(last.clone()).at(late()).when(lose(B, DeadlinePassed)).then([lost.clone()]);
    given(and(last, [lost])).when(lose(B, Disconnected)).then_nothing();
}

#[test]
fn a_deadline_that_is_ahead_has_not_passed() {
    let before = late() - chrono::TimeDelta::microseconds(1);
    for class in CLASSES {
        let ahead = DeadlineNotPassed { deadline: late() };
        given(running(class)).at(before).when(lose(A, DeadlinePassed)).then_rejected(ahead);
    }
}

#[test]
fn unreachable_is_not_dead() {
    for class in [Mutating, Unsafe] {
        given(silent(class)).when(lose(A, Disconnected)).then_rejected(MayStillRun);
        for loss_reason in [ExecutionNotInJournal, DeadlinePassed] {
            let unknown = JobEvent::OutcomeUnknown { execution: A, loss_reason };
            given(silent(class)).at(late()).when(lose(A, loss_reason)).then([unknown]);
        }
    }
    given(unknown(Mutating)).when(lose(A, ExecutionNotInJournal)).then_nothing();
}

#[test]
fn somebody_decides_what_became_of_an_unknown_outcome() {
    use Resolution::{Failed, Retry, Succeeded};
    let succeeded = JobEvent::Succeeded {
        execution: A,
        seq: None,
        exit_code: None,
        signed: None,
        not_ended: vec![],
    };
    let failed = JobEvent::Failed {
        execution: Some(A),
        seq: None,
        reason: FailureReason::Resolved,
        detail: "seen".into(),
        exit_code: None,
        signal: None,
        signed: None,
        not_ended: vec![],
    };
    let retried = and(unknown(Mutating), [resolved(Retry), again(None)]);
    given(unknown(Mutating)).when(resolve(A, Succeeded)).then([resolved(Succeeded), succeeded]);
    given(unknown(Mutating)).when(resolve(A, Failed)).then([resolved(Failed), failed.clone()]);
    given(unknown(Mutating)).when(resolve(A, Retry)).then([resolved(Retry), again(None)]);
    // A job that is being cancelled does not run again, but its outcome can be resolved.
    let doubt = JobEvent::OutcomeUnknown { execution: A, loss_reason: DeadlinePassed };
    let cancelled = and(running(Mutating), [cancel_requested(false), doubt]);
    given(cancelled.clone()).when(resolve(A, Retry)).then_rejected(Cancelling);
    given(cancelled).when(resolve(A, Failed)).then([resolved(Failed), failed]);
    given(running(Mutating)).when(resolve(A, Retry)).then_rejected(NothingToResolve);
    given(retried.clone()).when(resolve(A, Retry)).then_nothing();
    given(retried).when(resolve(A, Succeeded)).then_rejected(Fenced { held: None });
    given(super::succeeded()).when(resolve(A, Succeeded)).then_nothing();
    given(super::succeeded()).when(resolve(A, Failed)).then_rejected(TOO_LATE);
}

#[test]
fn unsafe_work_is_resolved_by_a_principal_only() {
    for resolution in [Resolution::Succeeded, Resolution::Failed, Resolution::Retry] {
        let by_policy = decide(A, policy(), resolution);
        given(unknown(Unsafe)).when(by_policy.clone()).then_rejected(PrincipalRequired);
        given(running(Unsafe)).when(by_policy).then_rejected(NothingToResolve);
        for class in CLASSES {
            let by_runner = decide(A, crate::actor::Actor::Runner(RUNNER), resolution);
            given(unknown(class)).when(by_runner).then_rejected(RunnerMayNotResolve);
        }
    }
    let retried = |by| [decided(A, by, Resolution::Retry), again(None)];
    given(unknown(Unsafe)).when(resolve(A, Resolution::Retry)).then(retried(ANN));
    given(unknown(Mutating)).when(resolve(A, Resolution::Retry)).then(retried(ANN));
    given(unknown(Mutating)).when(decide(A, policy(), Resolution::Retry)).then(retried(policy()));
}

#[test]
fn work_that_never_spawned_is_tried_again_whatever_its_class() {
    for class in CLASSES {
        let back = and(claimed(class), [again(Some(NeverSpawned))]);
        given(claimed(class)).when(lose(A, NeverSpawned)).then([again(Some(NeverSpawned))]);
        given(back.clone()).when(lose(A, NeverSpawned)).then_nothing();

        let last = and(back, [claimed_by(B, 2)]);
        let lost = JobEvent::Lost { execution: B, loss_reason: NeverSpawned };
        given(last.clone()).when(lose(B, NeverSpawned)).then([lost.clone()]);
        given(and(last, [lost])).when(lose(B, NeverSpawned)).then_nothing();
    }
}

#[test]
fn started_work_may_have_spawned() {
    for class in CLASSES {
        given(running(class)).when(lose(A, NeverSpawned)).then_rejected(AlreadyStarted);
        given(silent(class)).when(lose(A, NeverSpawned)).then_rejected(AlreadyStarted);
        given(running(class)).when(lose(B, NeverSpawned)).then_rejected(Fenced { held: Some(A) });
    }
    given(unknown(Mutating)).when(lose(A, NeverSpawned)).then_rejected(AlreadyStarted);
    given(succeeded()).when(lose(A, NeverSpawned)).then_rejected(TOO_LATE);
}

#[test]
fn a_journal_that_shows_no_child_settles_the_doubt() {
    let doubt = JobEvent::OutcomeUnknown { execution: A, loss_reason: DeadlinePassed };
    for class in [Mutating, Unsafe] {
        let in_doubt = and(claimed(class), [doubt.clone()]);
        given(in_doubt).when(lose(A, NeverSpawned)).then([again(Some(NeverSpawned))]);
    }
}

#[test]
fn a_job_to_be_cancelled_is_not_tried_again() {
    let lost = JobEvent::Lost { execution: A, loss_reason: DeadlinePassed };
    given(cancelling(false)).at(late()).when(lose(A, DeadlinePassed)).then([lost]);
    for class in CLASSES {
        let lost = JobEvent::Lost { execution: A, loss_reason: NeverSpawned };
        let cancelling = and(claimed(class), [cancel_requested(false)]);
        given(cancelling).when(lose(A, NeverSpawned)).then([lost]);
    }
}

#[test]
fn only_what_is_known_never_to_have_run_touched_nothing() {
    let touched_nothing =
        |history: Vec<JobEvent>| crate::testing::replay::<Job>(history).changed_nothing();
    let failed = |seq, reason| JobEvent::Failed {
        execution: Some(A),
        seq,
        reason,
        detail: "no".into(),
        exit_code: None,
        signal: None,
        signed: None,
        not_ended: vec![],
    };
    let refused = failed(Some(1), FailureReason::Refused);
    let stale = failed(Some(2), FailureReason::PlanStale);
    let cancelled = JobEvent::Cancelled {
        execution: None,
        seq: None,
        forced: false,
        signed: None,
        not_ended: vec![],
    };
    let expired = JobEvent::Failed {
        execution: None,
        seq: None,
        reason: FailureReason::QueueExpired,
        detail: "no runner".into(),
        exit_code: None,
        signal: None,
        signed: None,
        not_ended: vec![],
    };
    let lost = |execution| JobEvent::Lost { execution, loss_reason: NeverSpawned };
    let never = and(claimed(Mutating), [again(Some(NeverSpawned))]);
    let second = and(never.clone(), [claimed_by(B, 2)]);
    for yes in [
        and(queued(Mutating), [cancelled.clone()]),
        and(queued(Mutating), [expired]),
        and(claimed(Mutating), [refused.clone()]),
        and(claimed(Mutating), [failed(Some(1), FailureReason::SpawnFailed)]),
        and(claimed(Mutating), [lost(A)]),
        and(running(Mutating), [stale.clone()]),
        // For example, an apply does not begin without disk space for its state.
        and(running(Mutating), [failed(Some(2), FailureReason::Refused)]),
        // Both executions certainly started no process.
        and(never, [cancelled.clone()]),
        and(second.clone(), [lost(B)]),
        and(second.clone(), [refused.clone()]),
        and(second.clone(), [stale.clone()]),
    ] {
        assert!(touched_nothing(yes.clone()), "{yes:?}");
    }
    let decided = failed(None, FailureReason::Resolved);
    let retried = and(unknown(Mutating), [resolved(Resolution::Retry), again(None)]);
    for no in [
        running(Mutating),
        and(running(Mutating), [succeeded_at(2)]),
        and(running(Mutating), [failed_at(2)]),
        and(running(Mutating), [cancelled_at(2)]),
        and(unknown(Mutating), [decided]),
        and(running(Mutating), [failed(Some(2), FailureReason::SpawnFailed)]),
        // The final report may have arrived without the start report.
        and(claimed(Mutating), [failed(Some(1), FailureReason::Internal)]),
        and(claimed(Mutating), [failed(Some(1), FailureReason::TimedOut)]),
        and(claimed(Mutating), [failed_at(1)]),
        and(claimed(Mutating), [cancelled_at(1)]),
        // The lost execution may have run without a report, whatever the next execution reports.
        and(retried.clone(), [cancelled]),
        and(retried, [claimed_by(B, 2), stale]),
        and(second, [failed(Some(1), FailureReason::Internal)]),
    ] {
        assert!(!touched_nothing(no.clone()), "{no:?}");
    }
}
