use super::*;
use crate::{
    digest::Digest,
    ids::{BuildId, ComponentId, InstallId, JobId, PrincipalId, RunId, StepId},
    testing::{Given, given},
};

mod examples;
mod planning;

pub const ANN: Actor = Actor::Principal(PrincipalId(ulid::Ulid(9)));
const INSTALL: InstallId = InstallId(ulid::Ulid(5));
pub const J1: JobId = JobId(ulid::Ulid(101));
const J2: JobId = JobId(ulid::Ulid(102));
const SANDBOX: StepId = StepId(ulid::Ulid(1));
const LEFT: StepId = StepId(ulid::Ulid(2));
const RIGHT: StepId = StepId(ulid::Ulid(3));
const TOP: StepId = StepId(ulid::Ulid(4));
const LATER: Timestamp = Timestamp::UNIX_EPOCH;

pub fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

fn step(step: StepId, needs: &[StepId]) -> StepSpec {
    let (component, build) = (ComponentId(step.0), BuildId(step.0));
    StepSpec {
        step,
        target: Target::Component {
            component,
            name: format!("c{}", step.0.0),
            build,
            needs: Default::default(),
        },
        operation: Operation::Apply,
        needs: needs.to_vec(),
        fingerprint: Some(digest(step.0.0 as u8)),
    }
}

/// A diamond: two steps on the sandbox, one on both.
fn diamond() -> Vec<StepSpec> {
    vec![
        step(SANDBOX, &[]),
        step(LEFT, &[SANDBOX]),
        step(RIGHT, &[SANDBOX]),
        step(TOP, &[LEFT, RIGHT]),
    ]
}

fn request() -> Request {
    let (kind, cause) = (RunKind::Provision, Cause::RunnerEnrolled);
    Request { install: INSTALL, kind, cause, by: ANN, config_version: 1, reason: None }
}

fn ask(steps: Vec<StepSpec>) -> RunCommand {
    RunCommand::Request { request: request(), steps, position: 7 }
}

fn planned(steps: Vec<StepSpec>) -> Vec<RunEvent> {
    let Request { install, kind, cause, by, config_version, reason } = request();
    vec![
        RunEvent::Requested { install, kind, cause, by, config_version, reason },
        RunEvent::Planned { steps, position: 7 },
    ]
}

pub fn plan(n: u8, noop: bool) -> PlanFacts {
    PlanFacts {
        digest: digest(n),
        summary: digest(n + 100),
        noop,
        add: u64::from(!noop),
        change: 0,
        destroy: 0,
    }
}

fn produced(step: StepId, job: JobId, n: u8) -> RunEvent {
    RunEvent::PlanProduced { step, job, plan: plan(n, false) }
}

fn asked(step: StepId, n: u8) -> RunEvent {
    RunEvent::ApprovalRequested { step, digest: digest(n), expires_at: LATER }
}

fn approved(step: StepId, n: u8) -> RunEvent {
    RunEvent::Approved { step, digest: digest(n), by: ANN, reason: "looks right".into() }
}

fn word(step: StepId, n: u8) -> Word {
    Word { step, digest: digest(n), by: ANN, reason: "looks right".into() }
}

fn record(job: JobId, plan: PlanFacts) -> RunCommand {
    RunCommand::RecordPlan { job, plan, approval: Approval::Principal { expires_at: LATER } }
}

fn fail(step: StepId, job: Option<JobId>) -> RunCommand {
    let reason = StepFailure::JobFailed;
    RunCommand::FailStep { step, job, reason, detail: "exit 1".into() }
}

fn failed(step: StepId) -> RunEvent {
    RunEvent::StepFailed { step, reason: StepFailure::JobFailed, detail: "exit 1".into() }
}

fn done(step: StepId) -> RunEvent {
    RunEvent::StepSucceeded { step, noop: false }
}

fn skipped(step: StepId, reason: Skip) -> RunEvent {
    RunEvent::StepSkipped { step, reason }
}

fn ended(outcome: Outcome) -> RunEvent {
    RunEvent::Finished { outcome }
}

fn and<const N: usize>(history: Vec<RunEvent>, then: [RunEvent; N]) -> Vec<RunEvent> {
    [history, then.to_vec()].concat()
}

fn started(step: StepId, job: JobId) -> RunEvent {
    RunEvent::StepStarted { step, job }
}

fn planning() -> Vec<RunEvent> {
    and(planned(diamond()), [started(SANDBOX, J1)])
}

fn awaiting() -> Vec<RunEvent> {
    and(planning(), [produced(SANDBOX, J1, 1), asked(SANDBOX, 1)])
}

fn applying() -> Vec<RunEvent> {
    let apply = RunEvent::ApplyStarted { step: SANDBOX, job: J2 };
    and(awaiting(), [approved(SANDBOX, 1), apply])
}

fn over() -> Vec<RunEvent> {
    let one = and(planned(vec![step(SANDBOX, &[])]), [started(SANDBOX, J1)]);
    and(one, [done(SANDBOX), ended(Outcome::Succeeded)])
}

fn run(history: Vec<RunEvent>) -> Given<Run> {
    given(history)
}

const TOO_LATE: RunError = RunError::AlreadyEnded { outcome: Outcome::Succeeded };

#[test]
fn a_run_is_requested_once_with_its_steps_in_order() {
    run(vec![]).when(ask(diamond())).then(planned(diamond()));
    run(planned(diamond())).when(ask(diamond())).nothing();
    run(vec![]).when(ask(vec![])).refused(RunError::NoSteps);
    let backwards = diamond().into_iter().rev().collect();
    run(vec![]).when(ask(backwards)).refused(RunError::StepsOutOfOrder);
    let twice = vec![step(SANDBOX, &[]), step(SANDBOX, &[])];
    run(vec![]).when(ask(twice)).refused(RunError::StepsOutOfOrder);
    let other = Request { kind: RunKind::Teardown, ..request() };
    let other = RunCommand::Request { request: other, steps: diamond(), position: 7 };
    run(planned(diamond())).when(other).refused(RunError::AlreadyRequested);
}

#[test]
fn a_step_starts_when_what_it_needs_has_succeeded() {
    let start = |step, job| RunCommand::StartStep { step, job };
    run(planned(diamond())).when(start(SANDBOX, J1)).then([started(SANDBOX, J1)]);
    run(planning()).when(start(SANDBOX, J1)).nothing();
    run(planning()).when(start(SANDBOX, J2)).refused(RunError::NotWaitingForThat);
    run(planned(diamond())).when(start(LEFT, J1)).refused(RunError::NotReady);
    run(and(planning(), [done(SANDBOX)])).when(start(LEFT, J2)).then([started(LEFT, J2)]);
    run(vec![]).when(start(SANDBOX, J1)).refused(RunError::NotFound);
    run(planned(diamond())).when(start(StepId(ulid::Ulid(77)), J1)).refused(RunError::NoSuchStep);
    run(over()).when(start(SANDBOX, J2)).refused(TOO_LATE);
}

#[test]
fn independent_steps_are_wanted_at_the_same_time() {
    let state = crate::testing::replay::<Run>(and(planning(), [done(SANDBOX)]));
    assert_eq!(state.next(), [Next::Start(LEFT), Next::Start(RIGHT)]);
    let state = crate::testing::replay::<Run>(planned(diamond()));
    assert_eq!(state.next(), [Next::Start(SANDBOX)]);
}

#[test]
fn a_plan_that_changes_something_waits_for_a_word() {
    let facts = [produced(SANDBOX, J1, 1), asked(SANDBOX, 1)];
    run(planning()).when(record(J1, plan(1, false))).then(facts);
    run(awaiting()).when(record(J1, plan(1, false))).nothing();
    run(planning()).when(record(J2, plan(1, false))).refused(RunError::NotItsJob);
    run(applying()).when(record(J2, plan(1, false))).refused(RunError::NotWaitingForThat);
    run(vec![]).when(record(J1, plan(1, false))).refused(RunError::NotFound);
}

#[test]
fn a_plan_without_changes_needs_no_word_and_no_apply() {
    let noop = RunEvent::PlanProduced { step: SANDBOX, job: J1, plan: plan(1, true) };
    let succeeded = RunEvent::StepSucceeded { step: SANDBOX, noop: true };
    run(planning()).when(record(J1, plan(1, true))).then([noop, succeeded]);
}

#[test]
fn an_install_may_approve_by_itself() {
    let automatic =
        RunCommand::RecordPlan { job: J1, plan: plan(1, false), approval: Approval::Automatic };
    let approved = RunEvent::Approved {
        step: SANDBOX,
        digest: digest(1),
        by: Actor::Policy("auto_approve".into()),
        reason: "the install approves plans by itself".into(),
    };
    run(planning()).when(automatic).then([produced(SANDBOX, J1, 1), approved]);
}

#[test]
fn a_word_is_on_exactly_the_plan_that_waits() {
    let another = RunError::AnotherPlan { waiting: digest(1) };
    run(awaiting()).when(RunCommand::Approve(word(SANDBOX, 1))).then([approved(SANDBOX, 1)]);
    run(awaiting()).when(RunCommand::Approve(word(SANDBOX, 2))).refused(another.clone());
    run(awaiting()).when(RunCommand::Deny(word(SANDBOX, 2))).refused(another);
    run(applying()).when(RunCommand::Approve(word(SANDBOX, 1))).nothing();
    let approve = || RunCommand::Approve(word(SANDBOX, 1));
    run(planning()).when(approve()).refused(RunError::NothingToApprove);
    run(over()).when(approve()).refused(TOO_LATE);
    let speechless = Word { reason: " ".into(), ..word(SANDBOX, 1) };
    run(awaiting()).when(RunCommand::Approve(speechless.clone())).refused(RunError::NoReason);
    run(awaiting()).when(RunCommand::Deny(speechless)).refused(RunError::NoReason);
}

#[test]
fn a_denied_plan_blocks_what_needs_it_and_ends_the_run() {
    let (step, by, reason) = (SANDBOX, ANN, "looks right".to_string());
    let denied = RunEvent::Denied { step, digest: digest(1), by, reason };
    run(awaiting()).when(RunCommand::Deny(word(SANDBOX, 1))).then([
        denied,
        skipped(SANDBOX, Skip::Denied),
        skipped(LEFT, Skip::Blocked),
        skipped(RIGHT, Skip::Blocked),
        skipped(TOP, Skip::Blocked),
        ended(Outcome::Denied),
    ]);
    run(applying()).when(RunCommand::Deny(word(SANDBOX, 1))).refused(RunError::NothingToApprove);
}

#[test]
fn an_approval_that_nobody_gives_expires() {
    let expire = |n| RunCommand::ExpireApproval { step: SANDBOX, digest: digest(n) };
    let one = and(planned(vec![step(SANDBOX, &[])]), [started(SANDBOX, J1)]);
    let one = and(one, [produced(SANDBOX, J1, 1), asked(SANDBOX, 1)]);
    run(one.clone()).when(expire(1)).then([
        RunEvent::ApprovalExpired { step: SANDBOX, digest: digest(1) },
        skipped(SANDBOX, Skip::Expired),
        ended(Outcome::Denied),
    ]);
    run(one).when(expire(2)).nothing();
    run(applying()).when(expire(1)).nothing();
    run(over()).when(expire(1)).refused(TOO_LATE);
}

#[test]
fn only_an_approved_plan_is_applied() {
    let apply = RunCommand::StartApply { step: SANDBOX, job: J2 };
    let started = RunEvent::ApplyStarted { step: SANDBOX, job: J2 };
    let yes = and(awaiting(), [approved(SANDBOX, 1)]);
    run(yes).when(apply.clone()).then([started]);
    run(applying()).when(apply.clone()).nothing();
    run(awaiting()).when(apply.clone()).refused(RunError::NotWaitingForThat);
    run(over()).when(apply).refused(TOO_LATE);
}

#[test]
fn a_stale_plan_voids_its_approval_and_plans_again_a_few_times() {
    let void = RunCommand::VoidPlan { job: J2, reason: "state moved".into() };
    let (step, reason) = (SANDBOX, "state moved".to_string());
    let voided = RunEvent::PlanVoided { step, digest: digest(1), reason };
    run(applying()).when(void.clone()).then([voided.clone()]);
    run(and(applying(), [voided.clone()])).when(void.clone()).nothing();
    let mut worn = applying();
    worn.splice(2..2, [voided.clone(), voided.clone()]);
    let (reason, detail) = (StepFailure::PlanUnstable, "state moved".to_string());
    run(worn).when(void).then([
        voided,
        RunEvent::StepFailed { step, reason, detail },
        skipped(LEFT, Skip::Blocked),
        skipped(RIGHT, Skip::Blocked),
        skipped(TOP, Skip::Blocked),
        ended(Outcome::Failed),
    ]);
    let void = RunCommand::VoidPlan { job: J1, reason: "x".into() };
    run(planning()).when(void).refused(RunError::NotWaitingForThat);
}

#[test]
fn a_step_is_complete_when_its_apply_is() {
    run(applying()).when(RunCommand::CompleteStep { job: J2 }).then([done(SANDBOX)]);
    run(and(applying(), [done(SANDBOX)])).when(RunCommand::CompleteStep { job: J2 }).nothing();
    let plan_only = RunCommand::CompleteStep { job: J1 };
    run(planning()).when(plan_only).refused(RunError::NotWaitingForThat);
}

#[test]
fn a_failed_step_blocks_only_what_needs_it() {
    let sandbox_is_there = and(applying(), [done(SANDBOX), started(LEFT, J1), started(RIGHT, J2)]);
    run(sandbox_is_there.clone()).when(fail(LEFT, Some(J1))).then([failed(LEFT)]);
    let left_failed = and(sandbox_is_there, [failed(LEFT)]);
    run(left_failed.clone()).when(fail(LEFT, Some(J1))).nothing();
    run(left_failed).when(fail(RIGHT, Some(J2))).then([
        failed(RIGHT),
        skipped(TOP, Skip::Blocked),
        ended(Outcome::Failed),
    ]);
    run(planning()).when(fail(LEFT, Some(J1))).refused(RunError::NotItsJob);
    run(planning()).when(fail(SANDBOX, None)).refused(RunError::NotWaitingForThat);
}

#[test]
fn a_failed_step_is_tried_again_while_the_run_goes_on() {
    let retry = RunCommand::RetryStep { step: LEFT, by: ANN };
    let working = and(applying(), [done(SANDBOX), started(LEFT, J1), started(RIGHT, J2)]);
    let left_failed = and(working.clone(), [failed(LEFT)]);
    let retried = RunEvent::StepRetried { step: LEFT, by: ANN };
    run(left_failed.clone()).when(retry.clone()).then([retried.clone()]);
    run(and(left_failed, [retried])).when(retry.clone()).refused(RunError::NotFailed);
    run(working).when(retry.clone()).refused(RunError::NotFailed);
    run(over()).when(retry).refused(TOO_LATE);
}

#[test]
fn a_cancel_skips_what_has_not_begun_and_waits_for_what_has() {
    let cancel = RunCommand::RequestCancel { by: ANN, reason: "wrong day".into() };
    let asked = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into() };
    let waits = [
        asked.clone(),
        skipped(LEFT, Skip::Cancelled),
        skipped(RIGHT, Skip::Cancelled),
        skipped(TOP, Skip::Cancelled),
    ];
    run(planning()).when(cancel.clone()).then(waits.clone());
    let cancelling = and(planning(), waits);
    run(cancelling.clone()).when(cancel.clone()).nothing();
    let state = crate::testing::replay::<Run>(cancelling.clone());
    assert_eq!(state.next(), [Next::CancelJob(J1)]);
    let reason = StepFailure::JobCancelled;
    let confirm =
        RunCommand::FailStep { step: SANDBOX, job: Some(J1), reason, detail: "asked".into() };
    run(cancelling).when(confirm).then([
        RunEvent::StepFailed { step: SANDBOX, reason, detail: "asked".into() },
        ended(Outcome::Cancelled),
    ]);
    run(over()).when(cancel).refused(TOO_LATE);
    let speechless = RunCommand::RequestCancel { by: ANN, reason: String::new() };
    run(planning()).when(speechless).refused(RunError::NoReason);
}

#[test]
fn a_plan_that_beats_the_cancel_is_not_applied() {
    let cancel = RunEvent::CancelRequested { by: ANN, reason: "wrong day".into() };
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
fn ids_are_read_from_text_in_one_spelling_only() {
    assert!("run_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse::<RunId>().is_ok());
}

#[test]
fn the_whole_machine_fits_in_a_table() {
    let started_left = and(applying(), [done(SANDBOX), started(LEFT, J1)]);
    let cancelling =
        and(planning(), [RunEvent::CancelRequested { by: ANN, reason: "wrong day".into() }]);
    crate::testing::transitions::<Run>(
        vec![
            ("unborn", vec![]),
            ("planned", planned(diamond())),
            ("planning", planning()),
            ("awaiting approval", awaiting()),
            ("approved", and(awaiting(), [approved(SANDBOX, 1)])),
            ("applying", applying()),
            ("step failed", and(started_left, [failed(LEFT)])),
            ("cancelling", cancelling),
            ("ended", over()),
        ],
        vec![
            ("request", ask(diamond())),
            ("start step", RunCommand::StartStep { step: SANDBOX, job: J1 }),
            ("record plan", record(J1, plan(1, false))),
            ("record noop", record(J1, plan(1, true))),
            ("approve", RunCommand::Approve(word(SANDBOX, 1))),
            ("approve other plan", RunCommand::Approve(word(SANDBOX, 2))),
            ("deny", RunCommand::Deny(word(SANDBOX, 1))),
            ("expire approval", RunCommand::ExpireApproval { step: SANDBOX, digest: digest(1) }),
            ("start apply", RunCommand::StartApply { step: SANDBOX, job: J2 }),
            ("void plan", RunCommand::VoidPlan { job: J2, reason: "state moved".into() }),
            ("complete step", RunCommand::CompleteStep { job: J2 }),
            ("fail step", fail(SANDBOX, Some(J1))),
            ("retry step", RunCommand::RetryStep { step: LEFT, by: ANN }),
            ("cancel", RunCommand::RequestCancel { by: ANN, reason: "wrong day".into() }),
        ],
    );
}
