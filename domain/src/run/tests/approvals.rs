//! Approval, denial and expiry of plans.
use super::*;

#[test]
fn a_plan_with_changes_waits_for_approval() {
    let events = [produced(SANDBOX, J1, 1), approval_requested(SANDBOX, 1)];
    run(planning()).when(record(J1, plan(1, false))).then(events);
    run(awaiting()).when(record(J1, plan(1, false))).then_nothing();
    run(planning()).when(record(J2, plan(1, false))).then_rejected(RunError::WrongJob);
    run(applying()).when(record(J2, plan(1, false))).then_rejected(RunError::WrongStepState);
    run(vec![]).when(record(J1, plan(1, false))).then_rejected(RunError::NotFound);
}

#[test]
fn a_plan_without_changes_needs_no_approval_and_no_apply() {
    let noop = RunEvent::PlanProduced { step: SANDBOX, job: J1, plan: plan(1, true) };
    let succeeded = RunEvent::StepSucceeded { step: SANDBOX, noop: true };
    run(planning()).when(record(J1, plan(1, true))).then([noop, succeeded]);
}

#[test]
fn auto_approve_approves_a_plan() {
    let automatic =
        RunCommand::RecordPlan { job: J1, plan: plan(1, false), approval: Approval::Automatic };
    let approved = RunEvent::Approved {
        step: SANDBOX,
        digest: digest(1),
        by: Actor::Policy("auto_approve".into()),
        reason: "the install applies plans without approval".into(),
    };
    run(planning()).when(automatic).then([produced(SANDBOX, J1, 1), approved]);
}

#[test]
fn only_a_provision_is_approved_in_advance() {
    let first = || RunCommand::RecordPlan {
        job: J1,
        plan: plan(1, false),
        approval: Approval::FirstProvision,
    };
    let run_of = |kind| {
        let mut history = planning();
        if let Some(RunEvent::Requested { kind: requested, .. }) = history.first_mut() {
            *requested = kind;
        }
        run(history)
    };
    let approved = RunEvent::Approved {
        step: SANDBOX,
        digest: digest(1),
        by: Actor::Policy("auto_approve_first".into()),
        reason: "the first provision was approved in advance".into(),
    };
    run_of(RunKind::Provision).when(first()).then([produced(SANDBOX, J1, 1), approved]);
    for kind in [RunKind::Reprovision, RunKind::Deploy, RunKind::Upgrade, RunKind::Teardown] {
        run_of(kind).when(first()).then_rejected(RunError::NotAProvision);
    }
}

#[test]
fn a_decision_covers_exactly_the_waiting_plan() {
    let another = RunError::AnotherPlan { waiting: digest(1) };
    run(awaiting()).when(RunCommand::Approve(decision(SANDBOX, 1))).then([approved(SANDBOX, 1)]);
    run(awaiting()).when(RunCommand::Approve(decision(SANDBOX, 2))).then_rejected(another.clone());
    run(awaiting()).when(RunCommand::Deny(decision(SANDBOX, 2))).then_rejected(another);
    run(applying()).when(RunCommand::Approve(decision(SANDBOX, 1))).then_nothing();
    let approve = || RunCommand::Approve(decision(SANDBOX, 1));
    run(planning()).when(approve()).then_rejected(RunError::NothingToApprove);
    run(finished()).when(approve()).then_rejected(TOO_LATE);
    let without_reason = PlanDecision { reason: " ".into(), ..decision(SANDBOX, 1) };
    run(awaiting())
        .when(RunCommand::Approve(without_reason.clone()))
        .then_rejected(RunError::NoReason);
    run(awaiting()).when(RunCommand::Deny(without_reason)).then_rejected(RunError::NoReason);
}

#[test]
fn a_denied_plan_blocks_its_dependents_and_ends_the_run() {
    let (step, by, reason) = (SANDBOX, ANN, "looks right".to_string());
    let denied = RunEvent::Denied { step, digest: digest(1), by, reason };
    run(awaiting()).when(RunCommand::Deny(decision(SANDBOX, 1))).then([
        denied,
        skipped(SANDBOX, Skip::Denied),
        skipped(LEFT, Skip::Blocked),
        skipped(RIGHT, Skip::Blocked),
        skipped(TOP, Skip::Blocked),
        run_finished(Outcome::Denied),
    ]);
    run(applying())
        .when(RunCommand::Deny(decision(SANDBOX, 1)))
        .then_rejected(RunError::NothingToApprove);
}

#[test]
fn an_approval_request_expires() {
    let expire = |n| RunCommand::ExpireApproval { step: SANDBOX, digest: digest(n) };
    let one = and(planned(vec![step(SANDBOX, &[])]), [started(SANDBOX, J1)]);
    let one = and(one, [produced(SANDBOX, J1, 1), approval_requested(SANDBOX, 1)]);
    run(one.clone()).when(expire(1)).then([
        RunEvent::ApprovalExpired { step: SANDBOX, digest: digest(1) },
        skipped(SANDBOX, Skip::Expired),
        run_finished(Outcome::Expired),
    ]);
    run(one).when(expire(2)).then_nothing();
    run(applying()).when(expire(1)).then_nothing();
    run(finished()).when(expire(1)).then_rejected(TOO_LATE);
}

#[test]
fn an_approval_counts_until_the_request_expires() {
    let approve = || RunCommand::Approve(decision(SANDBOX, 1));
    let before = later() - chrono::TimeDelta::microseconds(1);
    run(awaiting()).at(before).when(approve()).then([approved(SANDBOX, 1)]);
    let expired = RunError::ApprovalExpired { at: later() };
    run(awaiting()).at(later()).when(approve()).then_rejected(expired);
    // An approval that was given in time stays valid.
    run(applying()).at(later()).when(approve()).then_nothing();
}

#[test]
fn only_an_approved_plan_is_applied() {
    let apply = RunCommand::StartApply { step: SANDBOX, job: J2 };
    let started = RunEvent::ApplyStarted { step: SANDBOX, job: J2 };
    let approved_plan = and(awaiting(), [approved(SANDBOX, 1)]);
    run(approved_plan).when(apply.clone()).then([started]);
    run(applying()).when(apply.clone()).then_nothing();
    run(awaiting()).when(apply.clone()).then_rejected(RunError::WrongStepState);
    run(finished()).when(apply).then_rejected(TOO_LATE);
}

#[test]
fn a_stale_plan_is_planned_again_up_to_a_limit() {
    let invalidate = RunCommand::InvalidatePlan { job: J2, reason: "state moved".into() };
    let (step, reason) = (SANDBOX, "state moved".to_string());
    let invalidated = RunEvent::PlanInvalidated { step, digest: digest(1), reason };
    run(applying()).when(invalidate.clone()).then([invalidated.clone()]);
    run(and(applying(), [invalidated.clone()])).when(invalidate.clone()).then_nothing();
    let mut at_limit = applying();
    at_limit.splice(2..2, [invalidated.clone(), invalidated.clone()]);
    let (reason, detail) = (StepFailure::PlanUnstable, "state moved".to_string());
    run(at_limit).when(invalidate).then([
        invalidated,
        RunEvent::StepFailed { step, reason, detail },
        skipped(LEFT, Skip::Blocked),
        skipped(RIGHT, Skip::Blocked),
        skipped(TOP, Skip::Blocked),
        run_finished(Outcome::Failed),
    ]);
    let invalidate = RunCommand::InvalidatePlan { job: J1, reason: "x".into() };
    run(planning()).when(invalidate).then_rejected(RunError::WrongStepState);
}
