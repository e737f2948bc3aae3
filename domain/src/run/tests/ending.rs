//! End of steps and runs, and retries of failed steps.
use super::*;

#[test]
fn a_step_is_complete_when_its_apply_is() {
    run(applying()).when(RunCommand::CompleteStep { job: J2 }).then([done(SANDBOX)]);
    run(and(applying(), [done(SANDBOX)])).when(RunCommand::CompleteStep { job: J2 }).then_nothing();
    let plan_only = RunCommand::CompleteStep { job: J1 };
    run(planning()).when(plan_only).then_rejected(RunError::NotWaitingForThat);
}

#[test]
fn a_failed_step_blocks_only_what_needs_it() {
    let sandbox_is_there = and(applying(), [done(SANDBOX), started(LEFT, J1), started(RIGHT, J2)]);
    run(sandbox_is_there.clone()).when(fail(LEFT, Some(J1))).then([failed(LEFT)]);
    let left_failed = and(sandbox_is_there, [failed(LEFT)]);
    run(left_failed.clone()).when(fail(LEFT, Some(J1))).then_nothing();
    run(left_failed).when(fail(RIGHT, Some(J2))).then([
        failed(RIGHT),
        skipped(TOP, Skip::Blocked),
        ended(Outcome::Failed),
    ]);
    run(planning()).when(fail(LEFT, Some(J1))).then_rejected(RunError::NotItsJob);
    run(planning()).when(fail(SANDBOX, None)).then_rejected(RunError::NotWaitingForThat);
}

#[test]
fn a_failed_step_is_tried_again_while_the_run_goes_on() {
    let retry = RunCommand::RetryStep { step: LEFT, by: ANN, reason: None };
    let working = and(applying(), [done(SANDBOX), started(LEFT, J1), started(RIGHT, J2)]);
    let left_failed = and(working.clone(), [failed(LEFT)]);
    let retried = RunEvent::StepRetried { step: LEFT, by: ANN, reason: None };
    run(left_failed.clone()).when(retry.clone()).then([retried.clone()]);
    run(and(left_failed, [retried])).when(retry.clone()).then_rejected(RunError::NotFailed);
    run(working).when(retry.clone()).then_rejected(RunError::NotFailed);
    run(over()).when(retry).then_rejected(TOO_LATE);
}

#[test]
fn a_step_that_is_tried_again_has_all_its_plans_before_it() {
    let (step, reason) = (SANDBOX, "state moved".to_string());
    let voided = RunEvent::PlanInvalidated { step, digest: digest(1), reason };
    let unstable = RunEvent::StepFailed {
        step,
        reason: StepFailure::PlanUnstable,
        detail: "state moved".into(),
    };
    let other = and(planned(vec![super::step(SANDBOX, &[]), super::step(LEFT, &[])]), []);
    let worn = and(other, [voided.clone(), voided.clone(), voided.clone(), unstable]);
    let again = and(worn, [RunEvent::StepRetried { step, by: ANN, reason: None }]);
    let going = [started(SANDBOX, J1), produced(SANDBOX, J1, 1), approved(SANDBOX, 1)];
    let going = and(and(again, going), [RunEvent::ApplyStarted { step, job: J2 }]);
    let void = RunCommand::InvalidatePlan { job: J2, reason: "state moved".into() };
    run(going).when(void).then([voided]);
}

#[test]
fn a_cancel_skips_what_has_not_begun_and_waits_for_what_has() {
    let cancel = RunCommand::RequestCancel { by: ANN, reason: "wrong day".into(), force: false };
    let asked = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    let waits = [
        asked.clone(),
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
        ended(Outcome::Cancelled),
    ]);
    run(over()).when(cancel).then_rejected(TOO_LATE);
    let hurry = |force| RunCommand::RequestCancel { by: ANN, reason: "at once".into(), force };
    let cancelling = and(planning(), [asked]);
    let forced = RunEvent::CancelRequested { by: ANN, reason: "at once".into(), force: true };
    let skips = [LEFT, RIGHT, TOP].map(|step| skipped(step, Skip::Cancelled));
    let hurried = [vec![forced.clone()], skips.to_vec()].concat();
    run(cancelling.clone()).when(hurry(true)).then(hurried);
    run(cancelling.clone()).when(hurry(false)).then_nothing();
    run(and(cancelling, [forced])).when(hurry(true)).then_nothing();
    let speechless = RunCommand::RequestCancel { by: ANN, reason: String::new(), force: false };
    run(planning()).when(speechless).then_rejected(RunError::NoReason);
}

#[test]
fn a_plan_that_beats_the_cancel_is_not_applied() {
    let cancel = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    let skips = [LEFT, RIGHT, TOP].map(|step| skipped(step, Skip::Cancelled));
    let history = and(and(planning(), [cancel]), skips);
    let decided = run(history).when(record(J1, plan(1, false)));
    decided.then([
        produced(SANDBOX, J1, 1),
        asked(SANDBOX, 1),
        skipped(SANDBOX, Skip::Cancelled),
        ended(Outcome::Cancelled),
    ]);
}

#[test]
fn a_run_ends_when_its_last_step_does() {
    let all = and(applying(), [done(SANDBOX), started(LEFT, J1), done(LEFT)]);
    let top = [started(RIGHT, J1), done(RIGHT), started(TOP, J1), produced(TOP, J1, 4)];
    let apply = RunEvent::ApplyStarted { step: TOP, job: JobId(ulid::Ulid(103)) };
    let last = and(and(all, top), [apply]);
    let complete = RunCommand::CompleteStep { job: JobId(ulid::Ulid(103)) };
    run(last).when(complete).then([done(TOP), ended(Outcome::Succeeded)]);
}

#[test]
fn what_a_run_left_undone_is_known_by_what_was_to_be_done() {
    let destroy = StepSpec { operation: Operation::Destroy, ..step(LEFT, &[]) };
    let actions = ["seed", "smoke"].map(|name| plan::action(TOP, name.into(), vec![]));
    let mut steps = vec![step(SANDBOX, &[]), destroy, step(RIGHT, &[])];
    steps.extend(actions);
    let state = crate::testing::replay::<Run>(and(planned(steps), [done(SANDBOX), failed(LEFT)]));
    let names = |name: &str| [name.to_string()].into();
    let undone = RemainingWork {
        sandbox: false,
        deploy: names("c3"),
        destroy: names("c2"),
        actions: vec!["seed".into(), "smoke".into()],
    };
    assert_eq!(state.remaining_work(), undone);
    assert!(crate::testing::replay::<Run>(over()).remaining_work().is_empty());
}
