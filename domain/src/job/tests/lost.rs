//! Loss of executions, resolution of unknown outcomes, and retries.
use super::*;

#[test]
fn a_lost_pure_job_is_requeued_while_attempts_are_left() {
    given(disconnected(Pure))
        .when(declare_lost(A, Disconnected))
        .then([requeued_event(Some(Disconnected))]);
    given(running(Pure))
        .when(declare_lost(B, DeadlinePassed))
        .then_rejected(Fenced { held: Some(A) });
    given(requeued()).when(declare_lost(A, Disconnected)).then_nothing();
    given(succeeded()).when(declare_lost(A, Disconnected)).then_rejected(TOO_LATE);

    let last = and(requeued(), [claimed_by(B, 2)]);
    let lost = JobEvent::Lost { execution: B, loss_reason: DeadlinePassed };
    given(last.clone()).at(deadline()).when(declare_lost(B, DeadlinePassed)).then([lost.clone()]);
    given(and(last, [lost])).when(declare_lost(B, Disconnected)).then_nothing();
}

#[test]
fn a_job_is_not_lost_before_its_deadline() {
    let before = deadline() - chrono::TimeDelta::microseconds(1);
    for class in CLASSES {
        let expected = DeadlineNotPassed { deadline: deadline() };
        given(running(class))
            .at(before)
            .when(declare_lost(A, DeadlinePassed))
            .then_rejected(expected);
    }
}

#[test]
fn a_disconnected_job_that_changes_something_is_not_lost() {
    for class in [Mutating, Unsafe] {
        given(disconnected(class)).when(declare_lost(A, Disconnected)).then_rejected(MayStillRun);
        for loss_reason in [ExecutionNotInJournal, DeadlinePassed] {
            let unknown = JobEvent::OutcomeUnknown { execution: A, loss_reason };
            given(disconnected(class))
                .at(deadline())
                .when(declare_lost(A, loss_reason))
                .then([unknown]);
        }
    }
    given(outcome_unknown(Mutating)).when(declare_lost(A, ExecutionNotInJournal)).then_nothing();
}

#[test]
fn an_actor_resolves_an_unknown_outcome() {
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
    let retried = and(outcome_unknown(Mutating), [resolved(Retry), requeued_event(None)]);
    given(outcome_unknown(Mutating))
        .when(resolve(A, Succeeded))
        .then([resolved(Succeeded), succeeded]);
    given(outcome_unknown(Mutating))
        .when(resolve(A, Failed))
        .then([resolved(Failed), failed.clone()]);
    given(outcome_unknown(Mutating))
        .when(resolve(A, Retry))
        .then([resolved(Retry), requeued_event(None)]);
    // A job that is being cancelled does not run again, but its outcome can be resolved.
    let unknown = JobEvent::OutcomeUnknown { execution: A, loss_reason: DeadlinePassed };
    let cancelled = and(running(Mutating), [cancel_requested(false), unknown]);
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
        let by_policy = resolve_by(A, policy(), resolution);
        given(outcome_unknown(Unsafe)).when(by_policy.clone()).then_rejected(PrincipalRequired);
        given(running(Unsafe)).when(by_policy).then_rejected(NothingToResolve);
        for class in CLASSES {
            let by_runner = resolve_by(A, crate::actor::Actor::Runner(RUNNER), resolution);
            given(outcome_unknown(class)).when(by_runner).then_rejected(RunnerMayNotResolve);
        }
    }
    let retried = |by| [resolved_by(A, by, Resolution::Retry), requeued_event(None)];
    given(outcome_unknown(Unsafe)).when(resolve(A, Resolution::Retry)).then(retried(ANN));
    given(outcome_unknown(Mutating)).when(resolve(A, Resolution::Retry)).then(retried(ANN));
    given(outcome_unknown(Mutating))
        .when(resolve_by(A, policy(), Resolution::Retry))
        .then(retried(policy()));
}

#[test]
fn work_that_never_spawned_is_requeued_in_every_class() {
    for class in CLASSES {
        let requeued = and(claimed(class), [requeued_event(Some(NeverSpawned))]);
        given(claimed(class))
            .when(declare_lost(A, NeverSpawned))
            .then([requeued_event(Some(NeverSpawned))]);
        given(requeued.clone()).when(declare_lost(A, NeverSpawned)).then_nothing();

        let last = and(requeued, [claimed_by(B, 2)]);
        let lost = JobEvent::Lost { execution: B, loss_reason: NeverSpawned };
        given(last.clone()).when(declare_lost(B, NeverSpawned)).then([lost.clone()]);
        given(and(last, [lost])).when(declare_lost(B, NeverSpawned)).then_nothing();
    }
}

#[test]
fn started_work_may_have_spawned() {
    for class in CLASSES {
        given(running(class)).when(declare_lost(A, NeverSpawned)).then_rejected(AlreadyStarted);
        given(disconnected(class))
            .when(declare_lost(A, NeverSpawned))
            .then_rejected(AlreadyStarted);
        given(running(class))
            .when(declare_lost(B, NeverSpawned))
            .then_rejected(Fenced { held: Some(A) });
    }
    given(outcome_unknown(Mutating))
        .when(declare_lost(A, NeverSpawned))
        .then_rejected(AlreadyStarted);
    given(succeeded()).when(declare_lost(A, NeverSpawned)).then_rejected(TOO_LATE);
}

#[test]
fn a_journal_without_a_process_determines_an_unknown_outcome() {
    let unknown = JobEvent::OutcomeUnknown { execution: A, loss_reason: DeadlinePassed };
    for class in [Mutating, Unsafe] {
        let history = and(claimed(class), [unknown.clone()]);
        given(history)
            .when(declare_lost(A, NeverSpawned))
            .then([requeued_event(Some(NeverSpawned))]);
    }
}

#[test]
fn a_cancelled_job_is_not_requeued() {
    let lost = JobEvent::Lost { execution: A, loss_reason: DeadlinePassed };
    given(cancelling(false)).at(deadline()).when(declare_lost(A, DeadlinePassed)).then([lost]);
    for class in CLASSES {
        let lost = JobEvent::Lost { execution: A, loss_reason: NeverSpawned };
        let cancelling = and(claimed(class), [cancel_requested(false)]);
        given(cancelling).when(declare_lost(A, NeverSpawned)).then([lost]);
    }
}

#[test]
fn only_work_that_never_ran_certainly_changed_nothing() {
    let changed_nothing =
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
    let never_spawned = and(claimed(Mutating), [requeued_event(Some(NeverSpawned))]);
    let second = and(never_spawned.clone(), [claimed_by(B, 2)]);
    for history in [
        and(queued(Mutating), [cancelled.clone()]),
        and(queued(Mutating), [expired]),
        and(claimed(Mutating), [refused.clone()]),
        and(claimed(Mutating), [failed(Some(1), FailureReason::SpawnFailed)]),
        and(claimed(Mutating), [lost(A)]),
        and(running(Mutating), [stale.clone()]),
        // For example, an apply does not begin without disk space for its state.
        and(running(Mutating), [failed(Some(2), FailureReason::Refused)]),
        // The first execution started no process.
        and(never_spawned, [cancelled.clone()]),
        and(second.clone(), [lost(B)]),
        and(second.clone(), [refused.clone()]),
        and(second.clone(), [stale.clone()]),
    ] {
        assert!(changed_nothing(history.clone()), "{history:?}");
    }
    let resolved_failed = failed(None, FailureReason::Resolved);
    let retried =
        and(outcome_unknown(Mutating), [resolved(Resolution::Retry), requeued_event(None)]);
    for history in [
        running(Mutating),
        and(running(Mutating), [succeeded_at(2)]),
        and(running(Mutating), [failed_at(2)]),
        and(running(Mutating), [cancelled_at(2)]),
        and(outcome_unknown(Mutating), [resolved_failed]),
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
        assert!(!changed_nothing(history.clone()), "{history:?}");
    }
}
