//! Preflight of a run: start, result, failure, and its effects on the steps.
use super::*;
use crate::check::Check;

pub const J0: JobId = JobId(ulid::Ulid(100));

fn checks(statuses: &[CheckStatus]) -> Vec<Check> {
    let check = |status: &CheckStatus| Check {
        component: Some("c1".into()),
        check: "terraform".into(),
        status: *status,
        message: "found none".into(),
    };
    statuses.iter().map(check).collect()
}

pub fn passed() -> RunEvent {
    RunEvent::PreflightPassed { job: J0, checks: checks(&[CheckStatus::Deferred]) }
}

pub fn failed() -> RunEvent {
    RunEvent::PreflightFailed {
        job: Some(J0),
        reason: PreflightFailure::ChecksFailed,
        detail: "1 of 1 checks failed".into(),
        checks: checks(&[CheckStatus::Failed]),
    }
}

pub fn record(job: JobId, statuses: &[CheckStatus]) -> RunCommand {
    RunCommand::RecordChecks { job, checks: checks(statuses) }
}

pub fn fail(job: Option<JobId>) -> RunCommand {
    let (reason, detail) = (PreflightFailure::JobFailed, "exit 1".into());
    RunCommand::FailPreflight { job, reason, detail, checks: vec![] }
}

fn job_failed(job: Option<JobId>, reason: PreflightFailure) -> RunEvent {
    RunEvent::PreflightFailed { job, reason, detail: "exit 1".into(), checks: vec![] }
}

pub fn running_run(steps: Vec<StepSpec>) -> Vec<RunEvent> {
    and(planned(steps), [RunEvent::PreflightStarted { job: J0 }])
}

pub fn passed_run(steps: Vec<StepSpec>) -> Vec<RunEvent> {
    and(running_run(steps), [passed()])
}

fn effects(history: Vec<RunEvent>) -> Vec<Effect> {
    crate::testing::replay::<Run>(history).effects()
}

fn all_skipped() -> Vec<RunEvent> {
    let steps = [SANDBOX, LEFT, RIGHT, TOP];
    steps.map(|step| skipped(step, Skip::PreflightFailed)).to_vec()
}

#[test]
fn a_preflight_starts_once_and_only_if_a_step_applies() {
    let start = |job| RunCommand::StartPreflight { job };
    let started = RunEvent::PreflightStarted { job: J0 };
    run(planned(diamond())).when(start(J0)).then([started]);
    run(running_run(diamond())).when(start(J0)).then_nothing();
    run(running_run(diamond())).when(start(J1)).then_rejected(RunError::WrongPreflightState);
    run(passed_run(diamond())).when(start(J1)).then_rejected(RunError::WrongPreflightState);
    run(vec![]).when(start(J0)).then_rejected(RunError::NotFound);
    run(finished()).when(start(J0)).then_rejected(TOO_LATE);
    let cancel = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    let cancelling = and(planned(diamond()), [cancel]);
    run(cancelling).when(start(J0)).then_rejected(RunError::Cancelling);

    let destroy = StepSpec { operation: Operation::Destroy, ..step(SANDBOX, &[]) };
    let removal = planned(vec![destroy.clone()]);
    run(removal.clone()).when(start(J0)).then_rejected(RunError::WrongPreflightState);
    assert_eq!(effects(removal), [Effect::Start(SANDBOX)]);
    let action = planned(vec![plan::action(TOP, "seed".into(), vec![])]);
    assert_eq!(effects(action), [Effect::Start(TOP)]);
    let mixed = planned(vec![destroy, step(LEFT, &[])]);
    let expected = [Effect::StartPreflight, Effect::Start(SANDBOX), Effect::Start(LEFT)];
    assert_eq!(effects(mixed), expected);
}

#[test]
fn checks_pass_or_fail_the_preflight() {
    let only_deferred = record(J0, &[CheckStatus::Deferred]);
    run(running_run(diamond())).when(only_deferred.clone()).then([passed()]);
    run(passed_run(diamond())).when(only_deferred.clone()).then_nothing();
    let other = record(J1, &[CheckStatus::Ok]);
    run(running_run(diamond())).when(other.clone()).then_rejected(RunError::WrongJob);
    run(planned(diamond())).when(other).then_rejected(RunError::WrongJob);
    run(vec![]).when(only_deferred.clone()).then_rejected(RunError::NotFound);

    let bad = record(J0, &[CheckStatus::Failed]);
    let over = [vec![failed()], all_skipped(), vec![run_finished(Outcome::Failed)]].concat();
    run(running_run(diamond())).when(bad.clone()).then(over.clone());
    let over = [running_run(diamond()), over].concat();
    run(over.clone()).when(bad).then_nothing();
    run(over).when(only_deferred).then_nothing();
}

#[test]
fn a_preflight_without_a_result_fails_the_run() {
    let over = |event| [vec![event], all_skipped(), vec![run_finished(Outcome::Failed)]].concat();
    let reason = PreflightFailure::JobFailed;
    run(running_run(diamond())).when(fail(Some(J0))).then(over(job_failed(Some(J0), reason)));
    run(planned(diamond())).when(fail(None)).then(over(job_failed(None, reason)));
    let failed_run = [planned(diamond()), over(job_failed(None, reason))].concat();
    run(failed_run).when(fail(None)).then_nothing();
    run(running_run(diamond())).when(fail(None)).then_rejected(RunError::WrongPreflightState);
    run(running_run(diamond())).when(fail(Some(J1))).then_rejected(RunError::WrongJob);
    run(passed_run(diamond())).when(fail(Some(J0))).then_nothing();
    run(vec![]).when(fail(Some(J0))).then_rejected(RunError::NotFound);
    run(finished()).when(fail(None)).then_rejected(TOO_LATE);
}

#[test]
fn plans_do_not_wait_for_the_preflight_but_changes_do() {
    let planning = and(running_run(diamond()), [started(SANDBOX, J1)]);
    let awaiting = and(planning, [produced(SANDBOX, J1, 1), approval_requested(SANDBOX, 1)]);
    let approved = and(awaiting, [approved(SANDBOX, 1)]);
    let apply = RunCommand::StartApply { step: SANDBOX, job: J2 };
    assert_eq!(effects(approved.clone()), []);
    run(approved.clone()).when(apply.clone()).then_rejected(RunError::PreflightNotPassed);
    let passed = and(approved, [passed()]);
    assert_eq!(effects(passed.clone()), [Effect::Apply(SANDBOX)]);
    run(passed).when(apply).then([RunEvent::ApplyStarted { step: SANDBOX, job: J2 }]);

    let steps = vec![step(SANDBOX, &[]), plan::action(TOP, "seed".into(), vec![SANDBOX])];
    let unchanged = RunEvent::StepSucceeded { step: SANDBOX, noop: true };
    let waits = and(running_run(steps), [started(SANDBOX, J1), unchanged]);
    assert_eq!(effects(waits.clone()), []);
    let start = RunCommand::StartStep { step: TOP, job: J2 };
    run(waits.clone()).when(start).then_rejected(RunError::NotReady);
    assert_eq!(effects(and(waits, [self::passed()])), [Effect::Start(TOP)]);
}

#[test]
fn a_run_without_changes_ends_after_its_preflight() {
    let only = || vec![step(SANDBOX, &[])];
    let planning = and(running_run(only()), [started(SANDBOX, J1)]);
    let noop = RunEvent::PlanProduced { step: SANDBOX, job: J1, plan: plan(1, true) };
    let unchanged = RunEvent::StepSucceeded { step: SANDBOX, noop: true };
    let expected = [noop.clone(), unchanged.clone()];
    run(planning.clone()).when(record_plan(true)).then(expected);
    let waits = and(planning, [noop, unchanged]);
    let ends = [passed(), run_finished(Outcome::Succeeded)];
    run(waits.clone()).when(record(J0, &[CheckStatus::Deferred])).then(ends);
    let fails = [failed(), run_finished(Outcome::Failed)];
    run(waits).when(record(J0, &[CheckStatus::Failed])).then(fails);
}

fn record_plan(noop: bool) -> RunCommand {
    super::record(J1, plan(1, noop))
}

#[test]
fn a_failed_preflight_stops_plans_and_starts_nothing() {
    let planning = and(running_run(diamond()), [started(SANDBOX, J1)]);
    let skips = [LEFT, RIGHT, TOP].map(|step| skipped(step, Skip::PreflightFailed));
    let stopping = [vec![failed()], skips.to_vec()].concat();
    run(planning.clone()).when(record(J0, &[CheckStatus::Failed])).then(stopping.clone());
    let stopping = [planning, stopping].concat();
    assert_eq!(effects(stopping.clone()), [Effect::CancelJob(J1)]);
    let retry = RunCommand::RetryStep { step: SANDBOX, by: ANN, reason: None };
    run(stopping.clone()).when(retry).then_rejected(RunError::PreflightFailed);
    let start = RunCommand::StartStep { step: LEFT, job: J2 };
    run(stopping.clone()).when(start).then_rejected(RunError::WrongStepState);

    // A plan that was ready before the cancel is not applied.
    run(stopping.clone()).when(record_plan(false)).then([
        produced(SANDBOX, J1, 1),
        approval_requested(SANDBOX, 1),
        skipped(SANDBOX, Skip::PreflightFailed),
        run_finished(Outcome::Failed),
    ]);
    let reason = StepFailure::JobCancelled;
    let confirm = RunCommand::FailStep {
        step: SANDBOX,
        job: Some(J1),
        reason,
        detail: "asked".into(),
        may_retry: true,
    };
    run(stopping).when(confirm).then([
        RunEvent::StepFailed { step: SANDBOX, reason, detail: "asked".into() },
        run_finished(Outcome::Failed),
    ]);
}

#[test]
fn a_cancel_also_cancels_the_preflight() {
    let cancel = RunCommand::RequestCancel { by: ANN, reason: "wrong day".into(), force: false };
    let requested = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    let skips = [SANDBOX, LEFT, RIGHT, TOP].map(|step| skipped(step, Skip::Cancelled));
    let cancelling = [vec![requested.clone()], skips.to_vec()].concat();
    run(running_run(diamond())).when(cancel.clone()).then(cancelling.clone());
    let history = [running_run(diamond()), cancelling].concat();
    assert_eq!(effects(history.clone()), [Effect::CancelJob(J0)]);
    let reason = PreflightFailure::JobCancelled;
    let confirm = RunCommand::FailPreflight {
        job: Some(J0),
        reason,
        detail: "exit 1".into(),
        checks: vec![],
    };
    let ends = [job_failed(Some(J0), reason), run_finished(Outcome::Cancelled)];
    run(history.clone()).when(confirm.clone()).then(ends);
    // A result that was ready before the cancel ends the run, too.
    let ends = [passed(), run_finished(Outcome::Cancelled)];
    run(history).when(record(J0, &[CheckStatus::Deferred])).then(ends);

    // Without a cancel of the run, the cancel of the job cancels the run.
    let expected =
        [vec![job_failed(Some(J0), reason)], all_skipped(), vec![run_finished(Outcome::Cancelled)]];
    run(running_run(diamond())).when(confirm).then(expected.concat());
    // A run that has not started its preflight is cancelled at once.
    let skips = [requested, skips[0].clone(), skips[1].clone(), skips[2].clone(), skips[3].clone()];
    let at_once = [skips.to_vec(), vec![run_finished(Outcome::Cancelled)]].concat();
    run(planned(diamond())).when(cancel).then(at_once);
}
