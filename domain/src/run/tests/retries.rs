//! Automatic retries of failed steps.
use chrono::TimeDelta;

use super::*;
use crate::testing::NOW;

/// Returns a run with one step that is being planned and has this limit of automatic retries.
fn with_retries(max_auto_retries: u32) -> Vec<RunEvent> {
    let mut only = step(SANDBOX, &[]);
    only.options.max_auto_retries = max_auto_retries;
    and(planned(vec![only]), [started(SANDBOX, J1)])
}

fn retry(attempt: u32, after_s: i64) -> RunEvent {
    RunEvent::StepRetryScheduled {
        step: SANDBOX,
        attempt,
        reason: StepFailure::JobFailed,
        detail: "exit 1".into(),
        not_before: NOW + TimeDelta::seconds(after_s),
    }
}

fn retried() -> RunEvent {
    RunEvent::StepRetried { step: SANDBOX, by: Actor::Timer("auto_retry".into()), reason: None }
}

pub fn scheduled() -> Vec<RunEvent> {
    and(with_retries(2), [retry(1, 5)])
}

#[test]
fn a_failed_job_is_retried_up_to_the_limit_with_doubled_back_off() {
    run(with_retries(2)).when(fail(SANDBOX, Some(J1))).then([retry(1, 5)]);
    let second = and(scheduled(), [retried(), started(SANDBOX, J2)]);
    run(second.clone()).when(fail(SANDBOX, Some(J2))).then([retry(2, 10)]);
    let third = and(second, [retry(2, 10), retried(), started(SANDBOX, JobId(ulid::Ulid(103)))]);
    let job = Some(JobId(ulid::Ulid(103)));
    run(third).when(fail(SANDBOX, job)).then([failed(SANDBOX), run_finished(Outcome::Failed)]);
    // The default limit is 0.
    let expected = [failed(SANDBOX), run_finished(Outcome::Failed)];
    run(with_retries(0)).when(fail(SANDBOX, Some(J1))).then(expected);
}

#[test]
fn a_failure_with_an_unknown_result_is_never_retried_automatically() {
    let reason = StepFailure::JobFailed;
    let unknown = RunCommand::FailStep {
        step: SANDBOX,
        job: Some(J1),
        reason,
        detail: "exit 1".into(),
        may_retry: false,
    };
    run(with_retries(5)).when(unknown).then([failed(SANDBOX), run_finished(Outcome::Failed)]);
}

#[test]
fn a_retry_starts_when_it_is_due_and_once() {
    let start = |attempt| RunCommand::StartRetry { step: SANDBOX, attempt };
    let due = NOW + TimeDelta::seconds(5);
    run(scheduled()).when(start(1)).then_nothing();
    run(scheduled()).at(due).when(start(1)).then([retried()]);
    run(scheduled()).at(due).when(start(2)).then_nothing();
    run(and(scheduled(), [retried()])).at(due).when(start(1)).then_nothing();
    run(finished()).at(due).when(start(1)).then_nothing();
    // A repeated report of the failure changes nothing.
    run(scheduled()).when(fail(SANDBOX, Some(J1))).then_nothing();
}

#[test]
fn a_user_may_retry_before_the_back_off_is_over_and_after_the_last_retry() {
    let retried_by_user = RunEvent::StepRetried { step: SANDBOX, by: ANN, reason: None };
    let command = RunCommand::RetryStep { step: SANDBOX, by: ANN, reason: None };
    run(scheduled()).when(command).then([retried_by_user.clone()]);
    // A user's retry of a step that waits for an automatic retry does not reset the number of
    // automatic retries.
    let retried_history = and(scheduled(), [retried_by_user, started(SANDBOX, J2)]);
    run(retried_history).when(fail(SANDBOX, Some(J2))).then([retry(2, 10)]);
}

#[test]
fn a_cancel_ends_a_scheduled_retry_and_schedules_no_other() {
    let command = RunCommand::RequestCancel { by: ANN, reason: "wrong day".into(), force: false };
    let requested = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    run(scheduled()).when(command).then([
        requested.clone(),
        skipped(SANDBOX, Skip::Cancelled),
        run_finished(Outcome::Cancelled),
    ]);
    let cancelling = and(with_retries(2), [requested]);
    let expected = [failed(SANDBOX), run_finished(Outcome::Failed)];
    run(cancelling).when(fail(SANDBOX, Some(J1))).then(expected);
}

#[test]
fn a_plan_without_changes_ends_its_step_unless_the_config_applies_such_plans() {
    let mut only = step(SANDBOX, &[]);
    only.options.applies_noops = true;
    let applies = and(planned(vec![only]), [started(SANDBOX, J1)]);
    let produced_noop = RunEvent::PlanProduced { step: SANDBOX, job: J1, plan: plan(1, true) };
    run(applies)
        .when(record(J1, plan(1, true)))
        .then([produced_noop.clone(), approval_requested(SANDBOX, 1)]);
    run(with_retries(0)).when(record(J1, plan(1, true))).then([
        produced_noop,
        RunEvent::StepSucceeded { step: SANDBOX, noop: true },
        run_finished(Outcome::Succeeded),
    ]);
}
