//! End of steps and runs, and retries of failed steps.
use super::*;

#[test]
fn a_step_is_complete_when_its_apply_is() {
    run(applying()).when(RunCommand::CompleteStep { job: J2 }).then([succeeded(SANDBOX)]);
    run(and(applying(), [succeeded(SANDBOX)]))
        .when(RunCommand::CompleteStep { job: J2 })
        .then_nothing();
    let plan_only = RunCommand::CompleteStep { job: J1 };
    run(planning()).when(plan_only).then_rejected(RunError::WrongStepState);
}

#[test]
fn a_failed_step_blocks_only_its_dependents() {
    let sandbox_succeeded =
        and(applying(), [succeeded(SANDBOX), started(LEFT, J1), started(RIGHT, J2)]);
    run(sandbox_succeeded.clone()).when(fail(LEFT, Some(J1))).then([failed(LEFT)]);
    let left_failed = and(sandbox_succeeded, [failed(LEFT)]);
    run(left_failed.clone()).when(fail(LEFT, Some(J1))).then_nothing();
    run(left_failed).when(fail(RIGHT, Some(J2))).then([
        failed(RIGHT),
        skipped(TOP, Skip::Blocked),
        run_finished(Outcome::Failed),
    ]);
    run(planning()).when(fail(LEFT, Some(J1))).then_rejected(RunError::WrongJob);
    run(planning()).when(fail(SANDBOX, None)).then_rejected(RunError::WrongStepState);
}

#[test]
fn a_failed_step_is_retried_while_the_run_is_in_progress() {
    let retry = RunCommand::RetryStep { step: LEFT, by: ANN, reason: None };
    let working = and(applying(), [succeeded(SANDBOX), started(LEFT, J1), started(RIGHT, J2)]);
    let left_failed = and(working.clone(), [failed(LEFT)]);
    let retried = RunEvent::StepRetried { step: LEFT, by: ANN, reason: None };
    run(left_failed.clone()).when(retry.clone()).then([retried.clone()]);
    run(and(left_failed, [retried])).when(retry.clone()).then_rejected(RunError::NotFailed);
    run(working).when(retry.clone()).then_rejected(RunError::NotFailed);
    run(finished()).when(retry).then_rejected(TOO_LATE);
}

#[test]
fn a_retried_step_has_the_full_number_of_plans() {
    let (step, reason) = (SANDBOX, "state moved".to_string());
    let invalidated = RunEvent::PlanInvalidated { step, digest: digest(1), reason };
    let unstable = RunEvent::StepFailed {
        step,
        reason: StepFailure::PlanUnstable,
        detail: "state moved".into(),
    };
    let other = and(planned(vec![super::step(SANDBOX, &[]), super::step(LEFT, &[])]), []);
    let unstable_run =
        and(other, [invalidated.clone(), invalidated.clone(), invalidated.clone(), unstable]);
    let retried_run = and(unstable_run, [RunEvent::StepRetried { step, by: ANN, reason: None }]);
    let second_apply = [started(SANDBOX, J1), produced(SANDBOX, J1, 1), approved(SANDBOX, 1)];
    let second_apply =
        and(and(retried_run, second_apply), [RunEvent::ApplyStarted { step, job: J2 }]);
    let invalidate = RunCommand::InvalidatePlan { job: J2, reason: "state moved".into() };
    run(second_apply).when(invalidate).then([invalidated]);
}

#[test]
fn a_cancel_skips_waiting_steps_and_waits_for_running_jobs() {
    let cancel = RunCommand::RequestCancel { by: ANN, reason: "wrong day".into(), force: false };
    let requested = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    let waits = [
        requested.clone(),
        skipped(LEFT, Skip::Cancelled),
        skipped(RIGHT, Skip::Cancelled),
        skipped(TOP, Skip::Cancelled),
    ];
    run(planning()).when(cancel.clone()).then(waits.clone());
    let cancelling = and(planning(), waits);
    run(cancelling.clone()).when(cancel.clone()).then_nothing();
    let state = crate::testing::replay::<Run>(cancelling.clone());
    assert_eq!(state.effects(), [Effect::CancelJob(J1)]);
    let reason = StepFailure::JobCancelled;
    let confirm = RunCommand::FailStep {
        step: SANDBOX,
        job: Some(J1),
        reason,
        detail: "asked".into(),
        may_retry: false,
    };
    run(cancelling).when(confirm).then([
        RunEvent::StepFailed { step: SANDBOX, reason, detail: "asked".into() },
        run_finished(Outcome::Cancelled),
    ]);
    run(finished()).when(cancel).then_rejected(TOO_LATE);
    let request = |force| RunCommand::RequestCancel { by: ANN, reason: "at once".into(), force };
    let cancelling = and(planning(), [requested]);
    let forced = RunEvent::CancelRequested { by: ANN, reason: "at once".into(), force: true };
    let skips = [LEFT, RIGHT, TOP].map(|step| skipped(step, Skip::Cancelled));
    let expected = [vec![forced.clone()], skips.to_vec()].concat();
    run(cancelling.clone()).when(request(true)).then(expected);
    run(cancelling.clone()).when(request(false)).then_nothing();
    run(and(cancelling, [forced])).when(request(true)).then_nothing();
    let without_reason = RunCommand::RequestCancel { by: ANN, reason: String::new(), force: false };
    run(planning()).when(without_reason).then_rejected(RunError::NoReason);
}

#[test]
fn a_plan_that_beats_the_cancel_is_not_applied() {
    let cancel = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    let skips = [LEFT, RIGHT, TOP].map(|step| skipped(step, Skip::Cancelled));
    let history = and(and(planning(), [cancel]), skips);
    let decided = run(history).when(record(J1, plan(1, false)));
    decided.then([
        produced(SANDBOX, J1, 1),
        approval_requested(SANDBOX, 1),
        skipped(SANDBOX, Skip::Cancelled),
        run_finished(Outcome::Cancelled),
    ]);
}

#[test]
fn a_run_ends_when_its_last_step_does() {
    let all = and(applying(), [succeeded(SANDBOX), started(LEFT, J1), succeeded(LEFT)]);
    let top_planned =
        [started(RIGHT, J1), succeeded(RIGHT), started(TOP, J1), produced(TOP, J1, 4)];
    let apply = RunEvent::ApplyStarted { step: TOP, job: JobId(ulid::Ulid(103)) };
    let last = and(and(all, top_planned), [apply]);
    let complete = RunCommand::CompleteStep { job: JobId(ulid::Ulid(103)) };
    run(last).when(complete).then([succeeded(TOP), run_finished(Outcome::Succeeded)]);
}

#[test]
fn remaining_work_has_the_steps_that_did_not_succeed() {
    let destroy = StepSpec { operation: Operation::Destroy, ..step(LEFT, &[]) };
    let actions = ["seed", "smoke"].map(|name| plan::action(TOP, name.into(), vec![]));
    let mut steps = vec![step(SANDBOX, &[]), destroy, step(RIGHT, &[])];
    steps.extend(actions);
    let state =
        crate::testing::replay::<Run>(and(planned(steps), [succeeded(SANDBOX), failed(LEFT)]));
    let names = |name: &str| [name.to_string()].into();
    let remaining = RemainingWork {
        sandbox: false,
        deploy: names("c3"),
        destroy: names("c2"),
        actions: vec!["seed".into(), "smoke".into()],
    };
    assert_eq!(state.remaining_work(), remaining);
    assert!(crate::testing::replay::<Run>(finished()).remaining_work().is_empty());
}
