//! Reports are recorded once and in order, even if the runner repeats them.
use super::*;
use crate::outputs::Outputs;

fn phase(phase: &str) -> Report {
    Report::Phase { phase: phase.into() }
}

#[test]
fn only_the_execution_that_holds_a_job_may_report() {
    given(claimed(Pure)).when(start(A)).then([JobEvent::Started {
        execution: A,
        seq: 1,
        isolation: None,
    }]);
    given(claimed(Pure)).when(start(B)).then_rejected(Fenced { held: Some(A) });
    given(running(Pure)).when(start(A)).then_nothing();
    given(succeeded()).when(start(A)).then_nothing();
    given(succeeded()).when(report(A, 3, phase("late"))).then_rejected(TOO_LATE);
    given([]).when(start(A)).then_rejected(NotFound);
}

#[test]
fn a_repeated_report_changes_nothing_and_must_be_identical() {
    let applying = and(running(Pure), [phase_at(2, "apply")]);
    given(running(Pure)).when(report(A, 2, phase("apply"))).then([phase_at(2, "apply")]);
    given(applying.clone()).when(report(A, 2, phase("apply"))).then_nothing();
    given(applying.clone()).when(report(A, 2, phase("init"))).then_rejected(SeqConflict { seq: 2 });
    given(and(applying, [succeeded_at(3)])).when(report(A, 2, phase("apply"))).then_nothing();
}

#[test]
fn a_report_is_rejected_before_the_earlier_ones() {
    given(running(Pure)).when(report(A, 3, phase("apply"))).then_rejected(SeqGap { expected: 2 });
    given(running(Pure)).when(report(A, 0, phase("apply"))).then_rejected(SeqGap { expected: 2 });
    given(claimed(Pure)).when(finish(A, 2, success())).then_rejected(SeqGap { expected: 1 });
}

#[test]
fn the_next_execution_counts_its_own_reports() {
    let second = and(requeued(), [claimed_by(B, 2)]);
    given(second.clone()).when(start(B)).then([JobEvent::Started {
        execution: B,
        seq: 1,
        isolation: None,
    }]);
    given(second).when(start(A)).then_rejected(Fenced { held: Some(B) });
}

#[test]
fn reports_are_recorded_in_order_also_while_the_outcome_is_unknown() {
    let unknown = JobEvent::OutcomeUnknown { execution: A, loss_reason: DeadlinePassed };
    let unreported = and(claimed(Mutating), [unknown]);
    let started = JobEvent::Started { execution: A, seq: 1, isolation: None };
    given(unreported.clone()).when(finish(A, 2, success())).then_rejected(SeqGap { expected: 1 });
    given(unreported.clone()).when(start(A)).then([started.clone()]);
    let reported = and(unreported, [started]);
    given(reported.clone()).when(finish(A, 2, success())).then([succeeded_at(2)]);
    given(reported).when(declare_lost(A, NeverSpawned)).then_rejected(AlreadyStarted);
}

#[test]
fn a_final_report_ends_the_job_once() {
    given(running(Pure)).when(finish(A, 2, success())).then([succeeded_at(2)]);
    given(claimed(Pure)).when(finish(A, 1, failure())).then([failed_at(1)]);
    given(claimed(Pure)).when(finish(A, 1, success())).then_rejected(NotStarted);
    given(succeeded()).when(finish(A, 2, success())).then_nothing();
    given(succeeded()).when(finish(A, 2, failure())).then_rejected(SeqConflict { seq: 2 });
    given(succeeded()).when(finish(A, 3, failure())).then_rejected(TOO_LATE);
}

#[test]
fn a_report_that_matches_the_resolution_is_accepted() {
    let resolved = JobEvent::Succeeded {
        execution: A,
        seq: None,
        exit_code: None,
        signed: None,
        not_ended: vec![],
    };
    let resolved_history = and(outcome_unknown(Mutating), [resolved]);
    given(resolved_history.clone()).when(finish(A, 2, success())).then_nothing();
    given(resolved_history).when(finish(A, 2, failure())).then_rejected(TOO_LATE);
}

#[test]
fn some_failure_reasons_are_reserved_for_the_server() {
    for reason in [FailureReason::QueueExpired, FailureReason::Resolved] {
        let result = ExecutionResult::Failed {
            reason,
            detail: "".into(),
            exit_code: None,
            signal: None,
            not_ended: vec![],
        };
        given(running(Pure)).when(finish(A, 2, result)).then_rejected(ReasonNotReportable);
    }
}

#[test]
fn a_plan_is_reported_once_and_only_by_a_job_that_plans() {
    let plans = |work: Work| and(vec![JobEvent::Queued(work)], [claimed_by(A, 1)]);
    let started =
        |work| and(plans(work), [JobEvent::Started { execution: A, seq: 1, isolation: None }]);
    let produced = JobEvent::PlanProduced { execution: A, seq: 2, plan: plan() };
    let (once, twice) = (report(A, 2, Report::Plan(plan())), report(A, 3, Report::Plan(plan())));
    let builds = started(Work { kind: JobKind::Build, ..work(Pure) });
    given(running(Pure)).when(once.clone()).then([produced.clone()]);
    given(and(running(Pure), [produced.clone()])).when(once.clone()).then_nothing();
    given(and(running(Pure), [produced]))
        .when(twice)
        .then_rejected(AlreadyReported { what: "a plan" });
    given(builds.clone()).when(once).then_rejected(NotThisKind { what: "a plan" });

    let pushed = JobEvent::ArtifactPushed { execution: A, seq: 2, artifact: artifact() };
    let push = |seq| report(A, seq, Report::Artifact(artifact()));
    given(builds.clone()).when(push(2)).then([pushed.clone()]);
    given(and(builds, [pushed]))
        .when(push(3))
        .then_rejected(AlreadyReported { what: "an artifact" });
    given(running(Pure)).when(push(2)).then_rejected(NotThisKind { what: "an artifact" });
    given(claimed(Pure)).when(report(A, 1, Report::Plan(plan()))).then_rejected(NotStarted);
}

#[test]
fn checks_are_reported_once_and_only_by_a_preflight() {
    let preflight = Work { kind: JobKind::Preflight, ..work(Pure) };
    let claimed_preflight = and(vec![JobEvent::Queued(preflight)], [claimed_by(A, 1)]);
    let started = and(
        claimed_preflight.clone(),
        [JobEvent::Started { execution: A, seq: 1, isolation: None }],
    );
    let reported = JobEvent::ChecksReported { execution: A, seq: 2, checks: checks() };
    let send = |seq| report(A, seq, Report::Checks { checks: checks() });
    given(started.clone()).when(send(2)).then([reported.clone()]);
    given(and(started.clone(), [reported.clone()])).when(send(2)).then_nothing();
    given(and(started.clone(), [reported]))
        .when(send(3))
        .then_rejected(AlreadyReported { what: "checks" });
    given(running(Pure)).when(send(2)).then_rejected(NotThisKind { what: "checks" });
    given(claimed_preflight).when(send(1)).then_rejected(NotStarted);
    given(and(started, [succeeded_at(2)])).when(send(3)).then_rejected(TOO_LATE);
}

#[test]
fn outputs_are_recorded() {
    let outputs = Outputs::from([("url".to_string(), "x".into())]);
    let reported = JobEvent::OutputsReported { execution: A, seq: 2, outputs: outputs.clone() };
    let report_outputs = |seq| report(A, seq, Report::Outputs { outputs: outputs.clone() });
    given(running(Pure)).when(report_outputs(2)).then([reported.clone()]);
    given(and(running(Pure), [reported])).when(report_outputs(2)).then_nothing();
    given(claimed(Pure)).when(report_outputs(1)).then_rejected(NotStarted);
    given(succeeded()).when(report_outputs(3)).then_rejected(TOO_LATE);
}

#[test]
fn the_number_of_phases_is_limited() {
    let mut history = running(Pure);
    history.extend((0..PHASES as u64).map(|n| phase_at(n + 2, "p")));
    let next = PHASES as u64 + 2;
    given(history.clone())
        .when(report(A, next, phase("p")))
        .then_rejected(TooManyPhases { most: 64 });
    given(history).when(finish(A, next, success())).then([succeeded_at(next)]);
}

#[test]
fn a_signature_is_stored_and_does_not_make_a_report_different() {
    let signed = |key: &str| {
        let (statement, signature) = ("{}".into(), "c2ln".into());
        Some(SignedResult { statement, key: key.into(), signature })
    };
    let finish = |signed| {
        let (execution, report) = (A, Report::Finished(success()));
        JobCommand::Report { execution, seq: 2, report, signed }
    };
    let end = |signed| JobEvent::Succeeded {
        execution: A,
        seq: Some(2),
        exit_code: Some(0),
        signed,
        not_ended: vec![],
    };
    given(running(Pure)).when(finish(signed("aa"))).then([end(signed("aa"))]);
    // After a key replacement, the runner signs a repeated report with the new key. The stored
    // event does not change.
    let ended = and(running(Pure), [end(signed("aa"))]);
    given(ended.clone()).when(finish(signed("bb"))).then_nothing();
    given(ended).when(finish(None)).then_nothing();
    // A late result keeps its signature, too.
    let resolved = JobEvent::Succeeded {
        execution: A,
        seq: None,
        exit_code: None,
        signed: None,
        not_ended: vec![],
    };
    let (execution, seq, result) = (A, 2, failure());
    let record = JobCommand::RecordLateResult { execution, seq, result, signed: signed("aa") };
    let mut late = late_result(A, 2);
    if let JobEvent::LateResultReported { signed: stored, .. } = &mut late {
        *stored = signed("aa");
    }
    given(and(outcome_unknown(Mutating), [resolved])).when(record).then([late]);
}
