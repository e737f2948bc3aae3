//! Commands, events and histories for the tests of a job.
use chrono::TimeDelta;

use super::*;
use crate::{
    actor::Actor,
    artifact::{Artifact, Upstream},
    check::{Check, CheckStatus},
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, ExecutionId, PrincipalId, RunnerId, SessionId},
    testing::{self, Given},
};

pub const A: ExecutionId = ExecutionId(ulid::Ulid(1));
pub const B: ExecutionId = ExecutionId(ulid::Ulid(2));
pub const RUNNER: RunnerId = RunnerId(ulid::Ulid(8));
pub const ANN: Actor = Actor::Principal(PrincipalId(ulid::Ulid(9)));
pub const CLASSES: [JobClass; 3] = [Pure, Mutating, Unsafe];
pub const DEADLINE_MS: u64 = 60_000;

pub fn policy() -> Actor {
    Actor::Policy("retry".into())
}
pub fn deadline() -> Timestamp {
    Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(DEADLINE_MS as i64)
}

pub fn given(history: impl IntoIterator<Item = JobEvent>) -> Given<Job> {
    testing::given(history)
}

pub fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

pub fn work(class: JobClass) -> Work {
    let origin = Origin::Build {
        app: AppId(ulid::Ulid(4)),
        component: ComponentId(ulid::Ulid(5)),
        build: BuildId(ulid::Ulid(6)),
    };
    Work {
        kind: JobKind::Plan,
        class,
        attempts: 2,
        manifest: digest(1),
        origin,
        deadline_ms: DEADLINE_MS,
        queue_ttl_ms: 1000,
    }
}

pub fn queue(class: JobClass) -> JobCommand {
    JobCommand::Queue(work(class))
}
/// Claims the job. Each execution has its own session and claim id.
pub fn claim(execution: ExecutionId) -> JobCommand {
    let (session, claim_id) = (SessionId(execution.0), execution.0.to_string());
    JobCommand::Claim { execution, runner: RUNNER, session, claim_id }
}
pub fn report(execution: ExecutionId, seq: u64, report: Report) -> JobCommand {
    JobCommand::Report { execution, seq, report, signed: None }
}
pub fn start(execution: ExecutionId) -> JobCommand {
    report(execution, 1, Report::Started { isolation: None })
}
pub fn finish(execution: ExecutionId, seq: u64, result: ExecutionResult) -> JobCommand {
    report(execution, seq, Report::Finished(result))
}
pub fn disconnect(execution: ExecutionId) -> JobCommand {
    JobCommand::Disconnect { execution }
}
pub fn reattach(execution: ExecutionId) -> JobCommand {
    JobCommand::Reattach { execution }
}
pub fn declare_lost(execution: ExecutionId, loss_reason: LossReason) -> JobCommand {
    JobCommand::DeclareLost { execution, loss_reason }
}
pub fn resolve(execution: ExecutionId, resolution: Resolution) -> JobCommand {
    resolve_by(execution, ANN, resolution)
}
pub fn resolve_by(execution: ExecutionId, by: Actor, resolution: Resolution) -> JobCommand {
    JobCommand::Resolve { execution, by, resolution, reason: "seen".into() }
}
pub fn cancel(force: bool) -> JobCommand {
    JobCommand::RequestCancel { by: ANN, reason: "wrong branch".into(), force }
}
pub fn unconfirmed(execution: ExecutionId) -> JobCommand {
    JobCommand::DeclareCancelUnconfirmed { execution }
}
pub fn unclaimed(reason: FailureReason, detail: &str) -> JobEvent {
    JobEvent::Failed {
        execution: None,
        seq: None,
        reason,
        detail: detail.into(),
        exit_code: None,
        signal: None,
        signed: None,
        not_ended: vec![],
    }
}
pub fn fail_unclaimed(attempt: u32) -> JobCommand {
    JobCommand::FailUnclaimed { attempt, detail: "lost".into() }
}
pub fn finalize_log(execution: ExecutionId) -> JobCommand {
    JobCommand::FinalizeLog(log(execution))
}
pub fn diverge(execution: ExecutionId) -> JobCommand {
    JobCommand::RecordDivergence { execution, offset_bytes: 512 }
}
pub fn record_late(execution: ExecutionId, seq: u64, result: ExecutionResult) -> JobCommand {
    JobCommand::RecordLateResult { execution, seq, result, signed: None }
}
pub fn late_result(execution: ExecutionId, seq: u64) -> JobEvent {
    JobEvent::LateResultReported {
        execution,
        seq,
        outcome: Failed,
        reason: Some(FailureReason::ExitCode),
        detail: Some("exit 1".into()),
        exit_code: Some(1),
        signal: None,
        signed: None,
        not_ended: vec![],
    }
}
pub fn log(execution: ExecutionId) -> FinalizedLog {
    let (length_bytes, omitted_bytes) = (4096, 0);
    FinalizedLog { execution, length_bytes, sha256: digest(2), omitted_bytes, complete: true }
}
pub fn success() -> ExecutionResult {
    ExecutionResult::Succeeded { exit_code: Some(0), not_ended: vec![] }
}
pub fn failure() -> ExecutionResult {
    let (reason, detail) = (FailureReason::ExitCode, "exit 1".into());
    ExecutionResult::Failed { reason, detail, exit_code: Some(1), signal: None, not_ended: vec![] }
}
pub fn cancellation() -> ExecutionResult {
    ExecutionResult::Cancelled { forced: false, not_ended: vec![] }
}
pub fn plan() -> PlanReport {
    PlanReport {
        digest: digest(3),
        file: digest(4),
        summary: digest(5),
        noop: false,
        add: 2,
        change: 1,
        destroy: 0,
        tool: "terraform 1.9.0".into(),
        signature: "c2lnbmF0dXJl".into(),
        v2: Some(PlanV2 { details: Some(digest(6)), plugin: None, tool: Some(digest(7)) }),
    }
}
pub fn state_version() -> crate::state_version::StateVersion {
    crate::state_version::StateVersion {
        lineage: "8907c070-aa91-8603-a355-2d2006a6c7aa".into(),
        serial: 7,
        digest: Some(format!("hmac-sha256:1:{}", "0".repeat(64))),
    }
}
pub fn artifact() -> Artifact {
    let upstream = Upstream {
        repository: "docker.io/library/nginx".into(),
        tag: Some("1.29".into()),
        digest: digest(7),
    };
    let (repository, digest) = ("shop/web".into(), digest(6));
    Artifact { repository, digest, size_bytes: 1024, upstream: Some(upstream) }
}

pub fn checks() -> Vec<Check> {
    let (component, check) = (Some("web".into()), "terraform".into());
    vec![Check { component, check, status: CheckStatus::Ok, message: "terraform 1.9.0".into() }]
}

pub fn queued(class: JobClass) -> Vec<JobEvent> {
    vec![JobEvent::Queued(work(class))]
}
pub fn claimed_by(execution: ExecutionId, attempt: u32) -> JobEvent {
    let (session, claim_id) = (SessionId(execution.0), execution.0.to_string());
    JobEvent::Claimed {
        execution,
        runner: RUNNER,
        session,
        claim_id,
        attempt,
        deadline: deadline(),
    }
}
pub fn claimed(class: JobClass) -> Vec<JobEvent> {
    and(queued(class), [claimed_by(A, 1)])
}
pub fn running(class: JobClass) -> Vec<JobEvent> {
    and(claimed(class), [JobEvent::Started { execution: A, seq: 1, isolation: None }])
}
pub fn disconnected(class: JobClass) -> Vec<JobEvent> {
    and(running(class), [JobEvent::Disconnected { execution: A }])
}
pub fn cancelling(force: bool) -> Vec<JobEvent> {
    and(running(Pure), [cancel_requested(force)])
}
pub fn requeued() -> Vec<JobEvent> {
    and(disconnected(Pure), [requeued_event(Some(Disconnected))])
}
pub fn outcome_unknown(class: JobClass) -> Vec<JobEvent> {
    and(running(class), [JobEvent::OutcomeUnknown { execution: A, loss_reason: DeadlinePassed }])
}
pub fn succeeded() -> Vec<JobEvent> {
    and(running(Pure), [succeeded_at(2)])
}
pub fn succeeded_at(seq: u64) -> JobEvent {
    JobEvent::Succeeded {
        execution: A,
        seq: Some(seq),
        exit_code: Some(0),
        signed: None,
        not_ended: vec![],
    }
}
pub fn failed_at(seq: u64) -> JobEvent {
    JobEvent::Failed {
        execution: Some(A),
        seq: Some(seq),
        reason: FailureReason::ExitCode,
        detail: "exit 1".into(),
        exit_code: Some(1),
        signal: None,
        signed: None,
        not_ended: vec![],
    }
}
pub fn cancelled_at(seq: u64) -> JobEvent {
    JobEvent::Cancelled {
        execution: Some(A),
        seq: Some(seq),
        forced: false,
        signed: None,
        not_ended: vec![],
    }
}
pub fn phase_at(seq: u64, phase: &str) -> JobEvent {
    JobEvent::PhaseEntered { execution: A, seq, phase: phase.into() }
}
pub fn and<const N: usize>(history: Vec<JobEvent>, then: [JobEvent; N]) -> Vec<JobEvent> {
    [history, then.to_vec()].concat()
}
pub fn requeued_event(loss_reason: Option<LossReason>) -> JobEvent {
    JobEvent::Requeued { execution: A, attempt: 2, loss_reason }
}
pub fn cancel_requested(force: bool) -> JobEvent {
    JobEvent::CancelRequested { by: ANN, reason: "wrong branch".into(), force }
}
pub fn resolved(resolution: Resolution) -> JobEvent {
    resolved_by(A, ANN, resolution)
}
pub fn resolved_by(execution: ExecutionId, by: Actor, resolution: Resolution) -> JobEvent {
    JobEvent::OutcomeResolved { execution, by, resolution, reason: "seen".into() }
}
