//! Preflight of a run: queues its job, and records its result.
use domain::{
    ids::{JobId, RunId},
    job::{Job, JobCommand, JobEvent, Outcome},
    run::{PreflightFailure, Run, RunCommand},
};

use super::steps::{as_message, truncated};
use crate::{
    execute::UnitOfWork,
    ids,
    problem::Problem,
    render::preflight::{self, Rendered},
    state::App,
};

/// Queues the job that checks the requirements of a run. Fails the preflight without a job if the
/// server finds a requirement that is not met.
pub(super) async fn start(app: &App, unit: &mut UnitOfWork, run: RunId) -> Result<(), Problem> {
    let job = JobId(ids::new_ulid());
    let (reason, detail, checks) = match as_message(preflight::render(app, unit, run, job).await)? {
        Ok(Rendered::Work(work)) => {
            unit.create::<Job>(job, JobCommand::Queue(work)).await?;
            unit.handle::<Run>(run, RunCommand::StartPreflight { job }).await?;
            return Ok(());
        }
        Ok(Rendered::Failed(checks)) => {
            let failed = format!("{} checks failed", checks.len());
            (PreflightFailure::ChecksFailed, failed, checks)
        }
        Err(detail) => (PreflightFailure::RenderFailed, truncated(&detail), vec![]),
    };
    let fail = RunCommand::FailPreflight { job: None, reason, detail, checks };
    unit.handle::<Run>(run, fail).await?;
    Ok(())
}

/// Fails the preflight whose job could not be queued, or whose result could not be recorded.
pub(super) async fn give_up(
    unit: &mut UnitOfWork,
    run: RunId,
    job: Option<JobId>,
    detail: String,
) -> Result<(), Problem> {
    let reason = PreflightFailure::RenderFailed;
    let fail = RunCommand::FailPreflight { job, reason, detail, checks: vec![] };
    unit.handle::<Run>(run, fail).await?;
    Ok(())
}

/// Records the checks that the job reported. A job without checks fails the preflight.
pub(super) async fn complete(
    unit: &mut UnitOfWork,
    run: RunId,
    id: JobId,
    (job, outcome): (&Job, Outcome),
) -> Result<(), Problem> {
    let checks = job.reports.iter().find_map(|event| {
        let JobEvent::ChecksReported { checks, .. } = event else { return None };
        Some(checks.clone())
    });
    let failure = |reason, detail| {
        let checks = checks.clone().unwrap_or_default();
        RunCommand::FailPreflight { job: Some(id), reason, detail, checks }
    };
    let command = match (outcome, &checks) {
        (Outcome::Succeeded, Some(checks)) => {
            RunCommand::RecordChecks { job: id, checks: checks.clone() }
        }
        (Outcome::Succeeded, None) => {
            failure(PreflightFailure::JobFailed, "the job reported no checks".into())
        }
        (Outcome::Failed, _) => failure(PreflightFailure::JobFailed, detail_of(job)),
        (Outcome::Cancelled, _) => {
            failure(PreflightFailure::JobCancelled, "the job was cancelled".into())
        }
        (Outcome::Lost, _) => {
            failure(PreflightFailure::JobLost, "the runner lost the job; retry the run".into())
        }
    };
    unit.handle::<Run>(run, command).await?;
    Ok(())
}

fn detail_of(job: &Job) -> String {
    let reported = job.reports.iter().rev().find_map(|event| {
        let JobEvent::Failed { detail, .. } = event else { return None };
        Some(truncated(detail))
    });
    reported.unwrap_or_else(|| "no runner claimed the job in time".into())
}
