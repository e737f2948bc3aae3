//! Reports of a runner about an execution: numbered, and applied once and in order.
mod convert;
mod keys;
mod plan;
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
    finish::{self, FinalLog},
    reconnect,
};
use crate::{
    dispatch::{self, CallKind},
    execute::UnitOfWork,
    extract::{self, RunnerCaller},
    problem::{Code, Problem},
    registry::Repository,
    state::App,
    usecases::{jobs, journal_heads, steps::shortened},
};

/// Report progress or the result of an execution. A repeated report changes nothing.
#[utoipa::path(post, path = "/runner/v1/jobs/{job}/events", tag = "work", request_body = Report,
    params(("job" = String, Path)),
    responses((status = 200, body = ReportResponse), (status = 202, body = ReportResponse),
        (status = "4XX", body = schemas::problem::Problem)))]
pub async fn report(
    State(app): State<App>,
    runner: RunnerCaller,
    extract::Path(job): extract::Path<JobId>,
    headers: HeaderMap,
    extract::Json(mut ask): extract::Json<Report>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, CallKind::Report)?;
    if headers.contains_key(EXECUTION) && execution::named(&headers)? != ask.execution {
        let detail = "the header `Execution` and the report name different executions; send the same id in both";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    // A report about another runner's job must neither renew a lease nor cause a read of the log.
    let allowed = execution::may_report(&app, &runner, job, ask.execution).await;
    anomalies::record_forgery(&app, &runner, (job, ask.execution), allowed).await?;
    if let ReportBody::Plan(plan) = &ask.body {
        plan::check(&app, &runner, (job, ask.execution), plan).await?;
    }
    if let ReportBody::Finished(finished) = &ask.body {
        convert::check_not_ended(finished)?;
    }
    let signed = statement::check(&app, &runner, job, &ask).await;
    let signed = anomalies::record_forgery(&app, &runner, (job, ask.execution), signed).await?;
    if let Some(head) = ask.end.as_ref().and_then(|end| end.journal_head.as_ref()) {
        journal_heads::told(&app, runner.id, head).await;
    }
    let touched = app.dispatch.touch_execution(runner.id, job, ask.execution);
    reconnect::settle(&app, &runner, touched, None).await;
    if let ReportBody::Artifact(artifact) = &mut ask.body {
        let known = app.engine.load::<Job>(job).await?;
        artifact.size_bytes = check_artifact(&app, &known, artifact).await?;
    }
    let seal = finish::look(&app, ask.execution, &ask.body).await?;
    let mut answer = hear(&app, &runner, job, (&ask, signed), seal.clone()).await?;
    if let Some(seal) = seal {
        answer.committed_bytes = finish::settle(&app, job, ask.execution, seal).await?;
    }
    let status =
        if answer.committed_bytes.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(answer)).into_response())
}

/// Checks that an artifact belongs to this job and is in the registry, because customers receive
/// what a build reports. Returns its size.
async fn check_artifact(app: &App, job: &Job, artifact: &Artifact) -> Result<u64, Problem> {
    let invalid = |detail: String| Problem::new(Code::Invalid, detail);
    let Artifact { repository, digest, .. } = artifact;
    let own = match &job.work {
        Some(work) if work.kind.product() == JobProduct::Artifact => {
            let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
            manifest.inputs.get("repository").and_then(|own| own.as_str().map(str::to_owned))
        }
        // The job aggregate rejects artifacts of other kinds of jobs.
        Some(_) | None => return Ok(artifact.size_bytes),
    };
    if own.as_deref() != Some(repository) {
        let own = own.unwrap_or_default();
        return Err(invalid(format!("invalid repository: this job pushes to {own}")));
    }
    let place: Repository = repository.parse().map_err(|error| invalid(format!("{error}")))?;
    let stored = app.registry.manifest(&place, digest).await.map_err(Problem::internal)?;
    let (Some(stored), Some(size)) = (stored, app.registry.size(&place, digest).await) else {
        let detail = format!(
            "the artifact is not in the registry; PUT /v2/{repository}/manifests/{digest}, then repeat the report"
        );
        return Err(invalid(detail));
    };
    Ok(stored.blobs().fold(size, |size, blob| size.saturating_add(blob.size)))
}

pub(super) async fn hear(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    (ask, signed): (&Report, Option<SignedResult>),
    seal: Option<FinalLog>,
) -> Result<ReportResponse, Problem> {
    let (runner, ask) = (*runner, ask.clone());
    let call = caller::call(&runner, "/runner/v1/jobs/{job}/events");
    let done = app.engine.transact(&call, move |unit| {
        let (ask, seal, signed) = (ask.clone(), seal.clone(), signed.clone());
        Box::pin(async move {
            let answer = handle_report(unit, &runner, job, (ask, signed)).await?;
            // Finalizes a complete log in the commit of the final report, which saves a second wait
            // for the disk.
            if let (Ok(_), Some(FinalLog::Ready(log))) = (&answer, seal) {
                jobs::finalize_log(unit, job, log).await?;
            }
            Ok(answer)
        })
    });
    done.await.map_err(caller::again)?.value
}

/// Applies a report. Returns the response, or the rejection of a late final report, which is
/// recorded as well.
async fn handle_report(
    unit: &mut UnitOfWork,
    runner: &RunnerCaller,
    job: JobId,
    (ask, signed): (Report, Option<SignedResult>),
) -> Result<Result<ReportResponse, Problem>, Problem> {
    let loaded = unit.load::<Job>(job).await?;
    execution::its_own(runner, loaded, ask.execution)?;
    if let ReportBody::Refused { by, rule, detail } = &ask.body {
        let refusal = Refusal {
            job,
            execution: Some(ask.execution),
            refused_by: *by,
            rule: shortened(rule),
            detail: shortened(detail),
        };
        unit.handle::<aggregate::Runner>(runner.id, RunnerCommand::Refuse(refusal)).await?;
    }
    // A stored signature must be by the key that is current at the position of its event. The
    // runner may have replaced its key, or may have been revoked, since the request was checked.
    let by_former = match (&signed, &ask.body) {
        (Some(signed), _) => keys::of_now(unit, runner).await?.hex != signed.key,
        (None, ReportBody::Plan(plan)) => {
            !plan::is_signed(&keys::of_now(unit, runner).await?, (job, ask.execution), plan)
        }
        (None, ReportBody::Finished(_) | ReportBody::Refused { .. }) => {
            keys::of_now(unit, runner).await.map(|_| false)?
        }
        (None, _) => false,
    };
    if by_former {
        return Err(keys::is_former(runner, "report"));
    }
    let (execution, seq) = (ask.execution, ask.seq);
    match convert::to_report(ask.body) {
        Some(report) => {
            let (said, kept) = (report.clone(), signed.clone());
            let command = JobCommand::Report { execution, seq, report: said, signed: kept };
            if let Err(refused) = unit.try_handle::<Job>(job, command).await? {
                // A late result no longer counts, but is recorded.
                let noted = match report {
                    Said::Finished(result) => {
                        let late = JobCommand::RecordLateResult { execution, seq, result, signed };
                        unit.try_handle::<Job>(job, late).await?.is_ok_and(|facts| facts > 0)
                    }
                    Said::Started
                    | Said::Phase { .. }
                    | Said::Plan(_)
                    | Said::Outputs { .. }
                    | Said::State { .. }
                    | Said::Artifact(_) => false,
                };
                let refused = refusal(unit.load::<Job>(job).await?, refused);
                return if noted { Ok(Err(refused)) } else { Err(refused) };
            }
        }
        // The progress of a cancellation is only displayed, but it must come from the current
        // execution.
        None => {
            let loaded = unit.load::<Job>(job).await?;
            if loaded.execution().is_none_or(|held| held.id != execution) {
                return Err(execution::stale(loaded));
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

fn refusal(job: &Job, error: JobError) -> Problem {
    // The report is late or from a superseded execution: the outcome stands, and the runner keeps
    // its files.
    if matches!(error, JobError::Fenced { .. } | JobError::AlreadyEnded { .. }) {
        return execution::stale(job);
    }
    error.into()
}
