use super::*;
use crate::{
    check::CheckStatus,
    digest::Digest,
    ids::{BuildId, ComponentId, InstallId, JobId, PrincipalId, RunId, StepId},
    testing::{Given, given},
};

mod approvals;
mod cycles;
mod drift;
mod ending;
mod examples;
mod plan_all;
mod planning;
mod preflights;
mod retries;

pub const ANN: Actor = Actor::Principal(PrincipalId(ulid::Ulid(9)));
const INSTALL: InstallId = InstallId(ulid::Ulid(5));
pub const J1: JobId = JobId(ulid::Ulid(101));
const J2: JobId = JobId(ulid::Ulid(102));
const SANDBOX: StepId = StepId(ulid::Ulid(1));
const LEFT: StepId = StepId(ulid::Ulid(2));
const RIGHT: StepId = StepId(ulid::Ulid(3));
const TOP: StepId = StepId(ulid::Ulid(4));
/// Returns the expiry time of approvals, which is later than the default time of commands.
fn later() -> Timestamp {
    Timestamp::UNIX_EPOCH + chrono::TimeDelta::days(7)
}

pub fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

fn step(step: StepId, depends_on: &[StepId]) -> StepSpec {
    let (component, build) = (ComponentId(step.0), BuildId(step.0));
    StepSpec {
        step,
        target: Target::Component {
            component,
            name: format!("c{}", step.0.0),
            build,
            depends_on: Default::default(),
        },
        operation: Operation::Apply,
        depends_on: depends_on.to_vec(),
        fingerprint: Some(digest(step.0.0 as u8)),
        options: StepOptions::default(),
    }
}

/// Returns steps in a diamond: two depend on the sandbox, and one depends on both.
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
    Request {
        install: INSTALL,
        kind,
        cause,
        by: ANN,
        config_version: 1,
        reason: None,
        plan_all: false,
    }
}

fn request_command(steps: Vec<StepSpec>) -> RunCommand {
    RunCommand::Request { request: request(), steps, position: 7 }
}

fn planned(steps: Vec<StepSpec>) -> Vec<RunEvent> {
    let Request { install, kind, cause, by, config_version, reason, plan_all } = request();
    vec![
        RunEvent::Requested { install, kind, cause, by, config_version, reason, plan_all },
        RunEvent::Planned { steps, position: 7 },
    ]
}

pub fn plan(n: u8, noop: bool) -> StepPlan {
    StepPlan {
        digest: digest(n),
        summary: digest(n + 100),
        details: None,
        noop,
        add: u64::from(!noop),
        change: 0,
        destroy: 0,
    }
}

fn produced(step: StepId, job: JobId, n: u8) -> RunEvent {
    RunEvent::PlanProduced { step, job, plan: plan(n, false) }
}

fn approval_requested(step: StepId, n: u8) -> RunEvent {
    RunEvent::ApprovalRequested { step, digest: digest(n), expires_at: later() }
}

fn approved(step: StepId, n: u8) -> RunEvent {
    RunEvent::Approved { step, digest: digest(n), by: ANN, reason: "looks right".into() }
}

fn decision(step: StepId, n: u8) -> PlanDecision {
    PlanDecision { step, digest: digest(n), by: ANN, reason: "looks right".into() }
}

fn record(job: JobId, plan: StepPlan) -> RunCommand {
    RunCommand::RecordPlan { job, plan, approval: Approval::Principal { expires_at: later() } }
}

fn fail(step: StepId, job: Option<JobId>) -> RunCommand {
    let reason = StepFailure::JobFailed;
    RunCommand::FailStep { step, job, reason, detail: "exit 1".into(), may_retry: true }
}

fn failed(step: StepId) -> RunEvent {
    RunEvent::StepFailed { step, reason: StepFailure::JobFailed, detail: "exit 1".into() }
}

fn succeeded(step: StepId) -> RunEvent {
    RunEvent::StepSucceeded { step, noop: false }
}

fn skipped(step: StepId, reason: Skip) -> RunEvent {
    RunEvent::StepSkipped { step, reason }
}

fn run_finished(outcome: Outcome) -> RunEvent {
    RunEvent::Finished { outcome }
}

fn and<const N: usize>(history: Vec<RunEvent>, then: [RunEvent; N]) -> Vec<RunEvent> {
    [history, then.to_vec()].concat()
}

fn started(step: StepId, job: JobId) -> RunEvent {
    RunEvent::StepStarted { step, job }
}

fn planning() -> Vec<RunEvent> {
    and(preflights::passed_run(diamond()), [started(SANDBOX, J1)])
}

fn awaiting() -> Vec<RunEvent> {
    and(planning(), [produced(SANDBOX, J1, 1), approval_requested(SANDBOX, 1)])
}

fn applying() -> Vec<RunEvent> {
    let apply = RunEvent::ApplyStarted { step: SANDBOX, job: J2 };
    and(awaiting(), [approved(SANDBOX, 1), apply])
}

fn finished() -> Vec<RunEvent> {
    let one = and(planned(vec![step(SANDBOX, &[])]), [started(SANDBOX, J1)]);
    and(one, [succeeded(SANDBOX), run_finished(Outcome::Succeeded)])
}

fn run(history: Vec<RunEvent>) -> Given<Run> {
    given(history)
}

const TOO_LATE: RunError = RunError::AlreadyEnded { outcome: Outcome::Succeeded };

#[test]
fn a_run_is_requested_once_with_its_steps_in_order() {
    run(vec![]).when(request_command(diamond())).then(planned(diamond()));
    run(planned(diamond())).when(request_command(diamond())).then_nothing();
    run(vec![]).when(request_command(vec![])).then_rejected(RunError::NoSteps);
    let backwards = diamond().into_iter().rev().collect();
    run(vec![]).when(request_command(backwards)).then_rejected(RunError::StepsOutOfOrder);
    let twice = vec![step(SANDBOX, &[]), step(SANDBOX, &[])];
    run(vec![]).when(request_command(twice)).then_rejected(RunError::StepsOutOfOrder);
    let other = Request { kind: RunKind::Teardown, ..request() };
    let other = RunCommand::Request { request: other, steps: diamond(), position: 7 };
    run(planned(diamond())).when(other).then_rejected(RunError::AlreadyRequested);
}

#[test]
fn a_step_starts_when_its_dependencies_have_succeeded() {
    let start = |step, job| RunCommand::StartStep { step, job };
    run(planned(diamond())).when(start(SANDBOX, J1)).then([started(SANDBOX, J1)]);
    run(planning()).when(start(SANDBOX, J1)).then_nothing();
    run(planning()).when(start(SANDBOX, J2)).then_rejected(RunError::WrongStepState);
    run(planned(diamond())).when(start(LEFT, J1)).then_rejected(RunError::NotReady);
    run(and(planning(), [succeeded(SANDBOX)])).when(start(LEFT, J2)).then([started(LEFT, J2)]);
    run(vec![]).when(start(SANDBOX, J1)).then_rejected(RunError::NotFound);
    run(planned(diamond()))
        .when(start(StepId(ulid::Ulid(77)), J1))
        .then_rejected(RunError::NoSuchStep);
    run(finished()).when(start(SANDBOX, J2)).then_rejected(TOO_LATE);
}

#[test]
fn independent_steps_start_concurrently() {
    let state = crate::testing::replay::<Run>(and(planning(), [succeeded(SANDBOX)]));
    assert_eq!(state.effects(), [Effect::Start(LEFT), Effect::Start(RIGHT)]);
    let state = crate::testing::replay::<Run>(planned(diamond()));
    assert_eq!(state.effects(), [Effect::StartPreflight, Effect::Start(SANDBOX)]);
}

#[test]
fn run_ids_parse_from_their_text() {
    assert!("run_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse::<RunId>().is_ok());
}

#[test]
fn transitions_match_the_golden_table() {
    let started_left = and(applying(), [succeeded(SANDBOX), started(LEFT, J1)]);
    let cancelling = and(
        planning(),
        [RunEvent::CancelRequested { by: ANN, reason: "wrong day".into(), force: false }],
    );
    crate::testing::transitions::<Run>(
        vec![
            ("new", vec![]),
            ("planned", planned(diamond())),
            ("preflight", preflights::running_run(diamond())),
            ("planning", planning()),
            ("awaiting approval", awaiting()),
            ("approved", and(awaiting(), [approved(SANDBOX, 1)])),
            ("applying", applying()),
            ("step failed", and(started_left, [failed(LEFT)])),
            ("retry scheduled", retries::scheduled()),
            ("cancelling", cancelling),
            (
                "preflight failed",
                and(
                    preflights::running_run(diamond()),
                    [started(SANDBOX, J1), preflights::failed()],
                ),
            ),
            ("ended", finished()),
        ],
        vec![
            ("request", request_command(diamond())),
            ("start preflight", RunCommand::StartPreflight { job: preflights::J0 }),
            ("record checks", preflights::record(preflights::J0, &[CheckStatus::Ok])),
            ("record failed checks", preflights::record(preflights::J0, &[CheckStatus::Failed])),
            ("fail preflight", preflights::fail(Some(preflights::J0))),
            ("start step", RunCommand::StartStep { step: SANDBOX, job: J1 }),
            ("record plan", record(J1, plan(1, false))),
            ("record noop", record(J1, plan(1, true))),
            ("approve", RunCommand::Approve(decision(SANDBOX, 1))),
            ("approve other plan", RunCommand::Approve(decision(SANDBOX, 2))),
            ("deny", RunCommand::Deny(decision(SANDBOX, 1))),
            ("expire approval", RunCommand::ExpireApproval { step: SANDBOX, digest: digest(1) }),
            ("start apply", RunCommand::StartApply { step: SANDBOX, job: J2 }),
            (
                "invalidate plan",
                RunCommand::InvalidatePlan { job: J2, reason: "state moved".into() },
            ),
            ("complete step", RunCommand::CompleteStep { job: J2 }),
            ("fail step", fail(SANDBOX, Some(J1))),
            ("retry step", RunCommand::RetryStep { step: LEFT, by: ANN, reason: None }),
            ("start retry", RunCommand::StartRetry { step: SANDBOX, attempt: 1 }),
            (
                "cancel",
                RunCommand::RequestCancel { by: ANN, reason: "wrong day".into(), force: false },
            ),
        ],
    );
}
