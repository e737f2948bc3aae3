//! Runs that make their plans before their first change.
use std::collections::{BTreeMap, HashSet};

use super::*;
use crate::testing::replay;

/// Digest by which a step was last approved, since its last plan.
type Approvals = BTreeMap<StepId, Digest>;

fn plan_all(mut history: Vec<RunEvent>) -> Vec<RunEvent> {
    if let Some(RunEvent::Requested { plan_all, .. }) = history.first_mut() {
        *plan_all = true;
    }
    history
}

/// Returns the start of a run with `plan_all`: SANDBOX and RIGHT need nothing, LEFT needs SANDBOX,
/// and TOP needs LEFT.
fn passed() -> Vec<RunEvent> {
    let steps =
        vec![step(SANDBOX, &[]), step(RIGHT, &[]), step(LEFT, &[SANDBOX]), step(TOP, &[LEFT])];
    plan_all(preflights::passed_run(steps))
}

/// SANDBOX is approved, and RIGHT is being planned.
fn approved_too_early() -> Vec<RunEvent> {
    let plans = [started(SANDBOX, J1), started(RIGHT, J2), produced(SANDBOX, J1, 1)];
    and(passed(), [&plans[..], &[approval_requested(SANDBOX, 1), approved(SANDBOX, 1)]].concat())
}

fn and(history: Vec<RunEvent>, then: impl IntoIterator<Item = RunEvent>) -> Vec<RunEvent> {
    history.into_iter().chain(then).collect()
}

fn later(history: Vec<RunEvent>) -> Vec<StepId> {
    let state = replay::<Run>(history);
    let later = state.steps.iter().filter(|at| state.is_approved_later(at));
    later.map(|at| at.spec.step).collect()
}

#[test]
fn the_first_change_waits_for_every_plan_that_depends_on_no_change() {
    let apply = || RunCommand::StartApply { step: SANDBOX, job: JobId(ulid::Ulid(103)) };
    let apply_started = RunEvent::ApplyStarted { step: SANDBOX, job: JobId(ulid::Ulid(103)) };
    run(approved_too_early()).when(apply()).then_rejected(RunError::PlansMissing);
    assert_eq!(replay::<Run>(approved_too_early()).effects(), []);

    // The other plan exists: its approval may come later.
    let all = [produced(RIGHT, J2, 2), approval_requested(RIGHT, 2)];
    let all = and(approved_too_early(), all);
    run(all.clone()).when(apply()).then([apply_started.clone()]);
    assert_eq!(replay::<Run>(all).effects(), [Effect::Apply(SANDBOX)]);
    // The other plan failed.
    let failed = and(approved_too_early(), [failed(RIGHT)]);
    run(failed).when(apply()).then([apply_started.clone()]);

    // Without `plan_all`, an apply waits for no other plan.
    let mut history = approved_too_early();
    if let Some(RunEvent::Requested { plan_all, .. }) = history.first_mut() {
        *plan_all = false;
    }
    run(history).when(apply()).then([apply_started]);
}

#[test]
fn a_step_behind_an_unchanged_dependency_is_planned_now_and_behind_a_change_later() {
    // SANDBOX has no changes, so LEFT is planned before the first change.
    let noop = RunEvent::PlanProduced { step: SANDBOX, job: J1, plan: plan(1, true) };
    let unchanged = RunEvent::StepSucceeded { step: SANDBOX, noop: true };
    let plans = [produced(RIGHT, J2, 2), approval_requested(RIGHT, 2), approved(RIGHT, 2)];
    let history = and(passed(), [started(SANDBOX, J1), started(RIGHT, J2), noop, unchanged]);
    let history = and(history, plans);
    assert!(replay::<Run>(history.clone()).awaits_plans());
    assert_eq!(replay::<Run>(history.clone()).effects(), [Effect::Start(LEFT)]);
    assert_eq!(later(history.clone()), []);

    // LEFT changes, so TOP is planned after the change of LEFT.
    let job = JobId(ulid::Ulid(103));
    let planned = [started(LEFT, job), produced(LEFT, job, 3), approval_requested(LEFT, 3)];
    let history = and(history, planned);
    assert!(!replay::<Run>(history.clone()).awaits_plans());
    assert_eq!(replay::<Run>(history.clone()).effects(), [Effect::Apply(RIGHT)]);
    assert_eq!(later(history.clone()), [TOP]);

    // After the first change, steps continue as in other runs.
    let job = JobId(ulid::Ulid(104));
    let changed = [RunEvent::ApplyStarted { step: RIGHT, job }, approved(LEFT, 3)];
    assert_eq!(replay::<Run>(and(history, changed)).effects(), [Effect::Apply(LEFT)]);
}

#[test]
fn no_approval_comes_later_if_the_step_is_blocked_or_the_run_stops() {
    let changes = [started(SANDBOX, J1), produced(SANDBOX, J1, 1), approval_requested(SANDBOX, 1)];
    let changes = and(passed(), changes);
    assert_eq!(later(changes.clone()), [LEFT, TOP]);
    assert_eq!(later(and(changes.clone(), [failed(SANDBOX)])), []);
    let cancel = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false };
    assert_eq!(later(and(changes, [cancel])), []);
    assert_eq!(later(passed()), [], "the plan of the sandbox may have no changes");
}

#[test]
fn dependencies_are_searched_once_not_once_per_path() {
    // 2⁶³ paths lead from the first step to the last one, whose state a search of each path never returns.
    let ids: Vec<StepId> = (0..64_u128).map(|n| StepId(ulid::Ulid(1_000 + n))).collect();
    let steps = (0..ids.len()).map(|n| step(ids[n], &ids[..n])).collect();
    let history = and(plan_all(preflights::passed_run(steps)), [started(ids[0], J1)]);
    assert_eq!(later(history.clone()), []);
    let changes = [produced(ids[0], J1, 1), approval_requested(ids[0], 1)];
    assert_eq!(later(and(history, changes)), ids[1..]);
}

#[test]
fn a_run_without_plans_to_approve_cannot_plan_all() {
    for (kind, can) in [(RunKind::Action, false), (RunKind::Drift, false), (RunKind::Upgrade, true)]
    {
        let request = Request { kind, plan_all: true, ..request() };
        let command = RunCommand::Request { request, steps: diamond(), position: 7 };
        match can {
            true => assert!(replay::<Run>(vec![]).decide(command, crate::testing::NOW).is_ok()),
            false => run(vec![]).when(command).then_rejected(RunError::NothingToPlan { kind }),
        }
    }
}

/// Input of the exhaustive test. A decision names the step whose plan digest it uses.
#[derive(Clone, Copy)]
enum Input {
    Start(StepId),
    Plan { step: StepId, noop: bool },
    Approve { step: StepId, digest_of: StepId },
    Deny(StepId),
    Apply(StepId),
    Stale(StepId),
    Complete(StepId),
    Fail(StepId),
}

fn inputs() -> Vec<Input> {
    let steps = [SANDBOX, RIGHT, LEFT];
    let of = |step| {
        [
            Input::Start(step),
            Input::Plan { step, noop: false },
            Input::Plan { step, noop: true },
            Input::Deny(step),
            Input::Apply(step),
            Input::Stale(step),
            Input::Complete(step),
            Input::Fail(step),
        ]
    };
    let approve = |step| steps.map(|digest_of| Input::Approve { step, digest_of });
    steps.into_iter().flat_map(|step| of(step).into_iter().chain(approve(step))).collect()
}

/// Number that differs for each job and plan of the run.
fn number(state: &Run, step: StepId) -> u8 {
    let jobs = state.step(step).map_or(0, |at| at.jobs.len());
    u8::try_from(step.0.0).unwrap() * 20 + u8::try_from(jobs).unwrap()
}

/// Digest of the step's current plan, or of a plan that does not exist.
fn digest_of(state: &Run, step: StepId) -> Digest {
    if let Some(
        StepState::AwaitingApproval { plan, .. }
        | StepState::Approved { plan }
        | StepState::Applying { plan, .. },
    ) = state.step(step).map(|at| &at.state)
    {
        return plan.digest.clone();
    }
    digest(0)
}

/// Returns the command of an input in this state. `None` if the input needs a job that does not run.
fn command(state: &Run, input: Input) -> Option<RunCommand> {
    let new_job = |step| JobId(ulid::Ulid(u128::from(number(state, step)) + 1000));
    let job = |step| state.step(step)?.state.job();
    Some(match input {
        Input::Start(step) => RunCommand::StartStep { step, job: new_job(step) },
        Input::Plan { step, noop } => record(job(step)?, plan(number(state, step), noop)),
        Input::Approve { step, digest_of: other } => {
            let digest = digest_of(state, other);
            RunCommand::Approve(PlanDecision { digest, ..decision(step, 0) })
        }
        Input::Deny(step) => {
            let digest = digest_of(state, step);
            RunCommand::Deny(PlanDecision { digest, ..decision(step, 0) })
        }
        Input::Apply(step) => RunCommand::StartApply { step, job: new_job(step) },
        // One stale plan per step suffices, and keeps the number of states small.
        Input::Stale(step) if state.step(step)?.voided > 0 => return None,
        Input::Stale(step) => {
            RunCommand::InvalidatePlan { job: job(step)?, reason: "state moved".into() }
        }
        Input::Complete(step) => RunCommand::CompleteStep { job: job(step)? },
        Input::Fail(step) => fail(step, Some(job(step)?)),
    })
}

/// Checks one event, and records approvals.
fn check(before: &Run, event: &RunEvent, approvals: &mut Approvals) {
    if let RunEvent::PlanProduced { step, .. } = event {
        approvals.remove(step);
    }
    if let RunEvent::Approved { step, digest, .. } = event {
        approvals.insert(*step, digest.clone());
    }
    if let RunEvent::ApplyStarted { step, .. } = event {
        let plan = digest_of(before, *step);
        assert_eq!(approvals.get(step), Some(&plan), "{step} in {before:#?}");
        let is_unplanned = |at: &Step| {
            matches!(at.state, StepState::Waiting | StepState::Planning { .. })
                && before.dependencies_succeeded(at)
        };
        assert!(before.has_changed || !before.steps.iter().any(is_unplanned), "{before:#?}");
    }
    if let RunEvent::PlanInvalidated { step, .. } = event {
        let mut after = before.clone();
        after.evolve(event.clone());
        let others = |run: &Run| {
            run.steps.iter().filter(|at| at.spec.step != *step).cloned().collect::<Vec<_>>()
        };
        assert_eq!(others(&after), others(before), "a stale plan affects its own step only");
        approvals.remove(step);
    }
}

#[test]
fn in_every_reachable_state_an_apply_has_an_approval_of_its_own_plan() {
    let steps = vec![step(SANDBOX, &[]), step(RIGHT, &[]), step(LEFT, &[SANDBOX])];
    let first = replay::<Run>(plan_all(preflights::passed_run(steps)));
    let (mut open, mut seen) = (vec![(first, Approvals::new())], HashSet::new());
    let (mut applies, mut held) = (0, 0);
    while let Some((state, approvals)) = open.pop() {
        if state.outcome.is_none() {
            let is_active = |at: &Step| {
                at.state.job().is_some() || matches!(at.state, StepState::AwaitingApproval { .. })
            };
            let can_continue = !state.effects().is_empty() || state.steps.iter().any(is_active);
            assert!(can_continue, "the run is stuck: {state:#?}");
        }
        for input in inputs() {
            let Some(command) = command(&state, input) else { continue };
            let events = match state.decide(command, crate::testing::NOW) {
                Ok(events) => events,
                Err(error) => {
                    held += u32::from(error == RunError::PlansMissing);
                    continue;
                }
            };
            let (mut next, mut approvals) = (state.clone(), approvals.clone());
            for event in events {
                check(&next, &event, &mut approvals);
                applies += u32::from(matches!(event, RunEvent::ApplyStarted { .. }));
                next.evolve(event);
            }
            if seen.insert(format!("{next:?}{approvals:?}")) {
                open.push((next, approvals));
            }
        }
    }
    assert!(applies > 300 && held > 5, "{applies} applies and {held} held ones are too few");
}
