//! Reports of a runner about an execution: numbered, and applied once and in order.
mod convert;
mod keys;
mod plan;
mod sensitive_outputs;
mod statement;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use domain::{
    ids::JobId,
    job::{Job, JobCommand, JobError, JobProduct, Report as Said, SignedResult},
    runner::{self as aggregate, Refusal, RunnerCommand},
};
use schemas::runner::{Artifact, EXECUTION, Report, ReportBody, ReportResponse};

use super::{
    anomalies, caller, execution,
    finalize::{self, FinalLog},
    reconnect,
};
use crate::{
    dispatch::{self, CallKind},
    execute::UnitOfWork,
    extract::{self, RunnerCaller},
    problem::{Code, Problem},
    registry::Repository,
    state::App,
    usecases::{jobs, journal_heads, steps::truncated},
};

/// Report progress or the result of an execution. A repeated report changes nothing.
#[utoipa::path(post, path = "/runner/v1/jobs/{job}/events", tag = "work", request_body = Report,
    params(("job" = String, Path)),
    responses((status = 200, body = ReportResponse), (status = 202, body = ReportResponse),
        (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn report(
    State(app): State<App>,
    runner: RunnerCaller,
    extract::Path(job): extract::Path<JobId>,
    headers: HeaderMap,
    extract::Json(mut body): extract::Json<Report>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, CallKind::Report)?;
    if headers.contains_key(EXECUTION) && execution::execution_header(&headers)? != body.execution {
        let detail = "report rejected: its execution differs from the one in the header `Execution`; send the same id in both";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    // A report about another runner's job must not renew a lease.
    let allowed = execution::check_may_report(&app, &runner, job, body.execution).await;
    anomalies::record_forgery(&app, &runner, (job, body.execution), allowed).await?;
    if let ReportBody::Plan(plan) = &body.body {
        let details = body.details.as_ref();
        plan::check(&app, &runner, (job, body.execution), (plan, details)).await?;
    }
    if let ReportBody::Finished(finished) = &body.body {
        convert::check_not_ended(finished)?;
    }
    let signed = statement::check(&app, &runner, job, &body).await;
    let signed = anomalies::record_forgery(&app, &runner, (job, body.execution), signed).await?;
    if let Some(head) = body.end.as_ref().and_then(|end| end.journal_head.as_ref()) {
        journal_heads::store(&app, runner.id, head).await;
    }
    let touched = app.dispatch.record_execution_contact(runner.id, job, body.execution);
    reconnect::record_contact(&app, &runner, touched, None).await;
    if let ReportBody::Artifact(artifact) = &mut body.body {
        let known = app.engine.load::<Job>(job).await?;
        artifact.size_bytes = check_artifact(&app, &known, artifact).await?;
    }
    sensitive_outputs::store(&app, job, &body.body).await?;
    let final_log = finalize::compare_log(&app, body.execution, &body.body).await?;
    let mut response = apply_report(&app, &runner, job, (&body, signed), final_log.clone()).await?;
    if let Some(final_log) = final_log {
        response.committed_bytes =
            finalize::complete_log(&app, job, body.execution, final_log).await?;
    }
    let status =
        if response.committed_bytes.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(response)).into_response())
}

/// Checks that an artifact belongs to this job and is in the registry, because customers receive
/// the reported artifact. Returns its size.
async fn check_artifact(app: &App, job: &Job, artifact: &Artifact) -> Result<u64, Problem> {
    let invalid = |detail: String| Problem::new(Code::Invalid, detail);
    let Artifact { repository, digest, .. } = artifact;
    let own = match &job.work {
        Some(work) if work.kind.product() == JobProduct::Artifact => {
            let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
            manifest.inputs.get("repository").and_then(|own| own.as_str().map(str::to_owned))
        }
        // The job aggregate rejects artifacts of jobs of other kinds.
        Some(_) | None => return Ok(artifact.size_bytes),
    };
    if own.as_deref() != Some(repository) {
        let own = own.unwrap_or_default();
        return Err(invalid(format!(
            "cannot record the report: the artifact is in repository {repository}, but the job pushes to {own}; push the \
             artifact to {own}"
        )));
    }
    let parsed: Repository = repository.parse().map_err(|error| invalid(format!("{error}")))?;
    let stored = app.registry.artifact_size(&parsed, digest).await;
    let stored = stored.map_err(|error| match error.vendor_problem() {
        // To the runner, 404 means that the job is not its own any more, and it would never report.
        Some(problem) if problem.code == Code::NotFound => invalid(problem.detail),
        Some(problem) => problem,
        None => Problem::internal(error),
    })?;
    stored.ok_or_else(|| {
        invalid(format!(
            "cannot record the report: the artifact is not in the registry; PUT /v2/{repository}/manifests/{digest}, then repeat the report"
        ))
    })
}

pub(super) async fn apply_report(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    (body, signed): (&Report, Option<SignedResult>),
    final_log: Option<FinalLog>,
) -> Result<ReportResponse, Problem> {
    let (runner, body) = (*runner, body.clone());
    let call = caller::call(&runner, "/runner/v1/jobs/{job}/events");
    let done = app.engine.transact(&call, move |unit| {
        let (body, final_log, signed) = (body.clone(), final_log.clone(), signed.clone());
        Box::pin(async move {
            let response = handle_report(unit, &runner, job, (body, signed)).await?;
            // Finalizes a complete log in the commit of the final report, which saves a second wait
            // for the disk.
            if let (Ok(_), Some(FinalLog::Ready(log))) = (&response, final_log) {
                jobs::finalize_log(unit, job, log).await?;
            }
            Ok(response)
        })
    });
    done.await.map_err(caller::retryable)?.value
}

/// Applies a report. The inner `Err` rejects a late final report that the unit of work records.
async fn handle_report(
    unit: &mut UnitOfWork,
    runner: &RunnerCaller,
    job: JobId,
    (body, signed): (Report, Option<SignedResult>),
) -> Result<Result<ReportResponse, Problem>, Problem> {
    let loaded = unit.load::<Job>(job).await?;
    execution::check_owner(runner, loaded, body.execution)?;
    if let ReportBody::Refused { by, rule, detail } = &body.body {
        let refusal = Refusal {
            job,
            execution: Some(body.execution),
            refused_by: *by,
            rule: truncated(rule),
            detail: truncated(detail),
        };
        unit.handle::<aggregate::Runner>(runner.id, RunnerCommand::Refuse(refusal)).await?;
    }
    // A stored signature must be by the key that is current at the position of its event. The
    // runner may have replaced its key, or may have been revoked, since the request was checked.
    let by_former = match (&signed, &body.body) {
        (Some(signed), _) => keys::guarded_keys(unit, runner).await?.hex != signed.key,
        (None, ReportBody::Plan(plan)) => {
            !plan::is_signed(&keys::guarded_keys(unit, runner).await?, (job, body.execution), plan)
        }
        (None, ReportBody::Finished(_) | ReportBody::Refused { .. }) => {
            keys::guarded_keys(unit, runner).await.map(|_| false)?
        }
        (None, _) => false,
    };
    if by_former {
        return Err(keys::former_key_problem(runner, "report"));
    }
    let (execution, seq) = (body.execution, body.seq);
    match convert::to_report(body.body) {
        Some(report) => {
            let (applied, signature) = (report.clone(), signed.clone());
            let command = JobCommand::Report { execution, seq, report: applied, signed: signature };
            if let Err(reason) = unit.try_handle::<Job>(job, command).await? {
                // A late result no longer counts, but is recorded.
                let noted = match report {
                    Said::Finished(result) => {
                        let late = JobCommand::RecordLateResult { execution, seq, result, signed };
                        unit.try_handle::<Job>(job, late).await?.is_ok_and(|count| count > 0)
                    }
                    Said::Started { .. }
                    | Said::Phase { .. }
                    | Said::Plan(_)
                    | Said::Outputs { .. }
                    | Said::State { .. }
                    | Said::Artifact(_)
                    | Said::Checks { .. } => false,
                };
                let reason = rejection(unit.load::<Job>(job).await?, reason);
                return if noted { Ok(Err(reason)) } else { Err(reason) };
            }
        }
        // The progress of a cancellation is only displayed, but it must come from the current
        // execution.
        None => {
            let loaded = unit.load::<Job>(job).await?;
            if loaded.execution().is_none_or(|current| current.id != execution) {
                return Err(execution::stale_execution(loaded));
            }
        }
    }
    let after = unit.load::<Job>(job).await?;
    let job_state = dispatch::state(after).to_string();
    Ok(Ok(ReportResponse {
        job_state,
        committed_bytes: None,
        cancel: dispatch::pending_cancel(after),
    }))
}

fn rejection(job: &Job, error: JobError) -> Problem {
    // The report is late or from a superseded execution: the outcome stands, and the runner keeps
    // its files.
    if matches!(error, JobError::Fenced { .. } | JobError::AlreadyEnded { .. }) {
        return execution::stale_execution(job);
    }
    error.into()
}
