//! Drift checks: plans that are never approved and never applied.
use super::*;

fn check(id: StepId) -> StepSpec {
    StepSpec { operation: Operation::Check, ..step(id, &[]) }
}

fn checking() -> Vec<RunEvent> {
    let started = |step, job| RunEvent::StepStarted { step, job };
    and(planned(vec![check(LEFT), check(RIGHT)]), [started(LEFT, J1), started(RIGHT, J2)])
}

fn result(step: StepId, noop: bool) -> RunEvent {
    RunEvent::StepSucceeded { step, noop }
}

#[test]
fn the_plan_of_a_check_ends_its_step() {
    let approvals = [
        Approval::Principal { expires_at: later() },
        // Even an install without approvals applies nothing.
        Approval::Automatic,
    ];
    for approval in approvals {
        let record = RunCommand::RecordPlan { job: J1, plan: plan(1, false), approval };
        run(checking()).when(record).then([produced(LEFT, J1, 1), result(LEFT, false)]);
    }
    let noop = RunEvent::PlanProduced { step: LEFT, job: J1, plan: plan(1, true) };
    run(checking()).when(record(J1, plan(1, true))).then([noop, result(LEFT, true)]);
    // repeated: the plan of a step that ended changes nothing
    let over = and(checking(), [produced(LEFT, J1, 1), result(LEFT, false)]);
    run(over).when(record(J1, plan(1, false))).then_nothing();
}

#[test]
fn no_command_approves_or_applies_a_check() {
    // Also at the point between the events of one commit.
    let between = and(checking(), [produced(LEFT, J1, 1)]);
    let over = and(between.clone(), [result(LEFT, false)]);
    for history in [checking(), between, over] {
        let approve = RunCommand::Approve(decision(LEFT, 1));
        run(history.clone()).when(approve).then_rejected(RunError::NothingToApprove);
        let apply = RunCommand::StartApply { step: LEFT, job: JobId(ulid::Ulid(103)) };
        run(history.clone()).when(apply).then_rejected(RunError::WrongStepState);
        let mut state = Run::default();
        history.into_iter().for_each(|event| state.evolve(event));
        let applies = |effect: &Effect| matches!(effect, Effect::Apply(_));
        assert!(!state.effects().iter().any(applies));
    }
}

#[test]
fn a_part_that_cannot_be_checked_does_not_prevent_the_other_checks() {
    let failed_left = and(checking(), [failed(LEFT)]);
    run(failed_left).when(record(J2, plan(1, false))).then([
        produced(RIGHT, J2, 1),
        result(RIGHT, false),
        run_finished(Outcome::Failed),
    ]);
}

#[test]
fn a_check_is_cancelled_like_other_steps() {
    let cancel = RunCommand::RequestCancel { by: ANN, reason: "enough".into(), force: false };
    let requested = RunEvent::CancelRequested { by: ANN, reason: "enough".into(), force: false };
    let waiting = planned(vec![check(LEFT), check(RIGHT)]);
    run(waiting).when(cancel.clone()).then([
        requested.clone(),
        skipped(LEFT, Skip::Cancelled),
        skipped(RIGHT, Skip::Cancelled),
        run_finished(Outcome::Cancelled),
    ]);
    run(checking()).when(cancel).then([requested]);
}

#[test]
fn a_retry_checks_the_parts_without_a_result() {
    let mut state = Run::default();
    let ended = [failed(LEFT), produced(RIGHT, J2, 1), result(RIGHT, false)];
    and(checking(), ended).into_iter().for_each(|event| state.evolve(event));
    let remaining = state.remaining_work();
    assert_eq!(remaining.deploy.into_iter().collect::<Vec<_>>(), ["c2"]);
    assert!(remaining.destroy.is_empty() && !remaining.sandbox);
}
