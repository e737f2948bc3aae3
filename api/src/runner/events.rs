//! What a runner says while it works: numbered, heard once, in its order.
mod keys;
mod plan;
mod statement;
mod words;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use domain::{
    ids::JobId,
    job::{Job, JobCommand, JobError, JobKind, Report as Said, Signed},
    runner::{self as aggregate, Refusal, RunnerCommand},
};
use schemas::runner::{ArtifactReport, EXECUTION, Report, ReportBody, ReportResponse};

use super::{
    caller, execution,
    finish::{self, Seal},
    journal, settle, strange,
};
use crate::{
    artifacts::Repository,
    auth::Runner,
    dispatch::{self, Calls},
    execute::Unit,
    extract,
    problem::{Code, Problem},
    state::App,
    usecases::steps::shortened,
};

/// Send a report of an execution. Idempotent.
#[utoipa::path(post, path = "/runner/v1/jobs/{job}/events", tag = "work", request_body = Report,
    params(("job" = String, Path)),
    responses((status = 200, body = ReportResponse), (status = 202, body = ReportResponse),
        (status = "4XX", body = schemas::problem::Problem)))]
pub async fn report(
    State(app): State<App>,
    runner: Runner,
    extract::Path(job): extract::Path<JobId>,
    headers: HeaderMap,
    extract::Json(mut ask): extract::Json<Report>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, Calls::Report)?;
    if headers.contains_key(EXECUTION) && execution::named(&headers)? != ask.execution {
        let detail = "the header `Execution` and the report name different executions";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    // A stranger's word renews no lease and makes nobody look for a log.
    let allowed = execution::may_report(&app, &runner, job, ask.execution).await;
    strange::forged(&app, &runner, (job, ask.execution), allowed).await?;
    if let ReportBody::Plan(plan) = &ask.body {
        plan::check(&app, &runner, (job, ask.execution), plan).await?;
    }
    if let ReportBody::Finished(finished) = &ask.body {
        words::check_not_ended(finished)?;
    }
    let signed = statement::check(&app, &runner, job, &ask).await;
    let signed = strange::forged(&app, &runner, (job, ask.execution), signed).await?;
    if let Some(head) = ask.end.as_ref().and_then(|end| end.journal_head.as_ref()) {
        journal::told(&app, runner.id, head).await;
    }
    let touched = app.dispatch.touch_execution(runner.id, job, ask.execution);
    settle::settle(&app, &runner, touched, None).await;
    if let ReportBody::Artifact(artifact) = &mut ask.body {
        let known = app.engine.load::<Job>(job).await?;
        artifact.size_bytes = made(&app, &known, artifact).await?;
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

/// An artifact is this job's own and it is here: what a build says goes to customers. Gives its size.
async fn made(app: &App, job: &Job, artifact: &ArtifactReport) -> Result<u64, Problem> {
    let invalid = |detail: String| Problem::new(Code::Invalid, detail);
    let ArtifactReport { repository, digest, .. } = artifact;
    let own = match &job.work {
        Some(work) if work.kind == JobKind::Build => {
            let manifest = app.manifests.get(app, &work.manifest).await?;
            manifest.inputs.get("repository").and_then(|own| own.as_str().map(str::to_owned))
        }
        // Another kind of job makes none; the job itself says so.
        Some(_) | None => return Ok(artifact.size_bytes),
    };
    if own.as_deref() != Some(repository) {
        let own = own.unwrap_or_default();
        return Err(invalid(format!("repository must be {own}, where this job pushes to")));
    }
    let place: Repository = repository.parse().map_err(|error| invalid(format!("{error}")))?;
    let image = app.registry.image(&place, digest).await.map_err(Problem::internal)?;
    let (Some(image), Some(size)) = (image, app.registry.size(&place, digest).await) else {
        let detail = format!("PUT /v2/{repository}/manifests/{digest} before the report of it");
        return Err(invalid(detail));
    };
    Ok(image.blobs().fold(size, |size, blob| size.saturating_add(blob.size)))
}

pub(super) async fn hear(
    app: &App,
    runner: &Runner,
    job: JobId,
    (ask, signed): (&Report, Option<Signed>),
    seal: Option<Seal>,
) -> Result<ReportResponse, Problem> {
    let (runner, ask) = (*runner, ask.clone());
    let call = caller::call(&runner, "/runner/v1/jobs/{job}/events");
    let done = app.engine.transact(&call, move |unit| {
        let (ask, seal, signed) = (ask.clone(), seal.clone(), signed.clone());
        Box::pin(async move {
            let answer = heard(unit, &runner, job, (ask, signed)).await?;
            // With the last word, when the log is all here: one commit, one wait for the disk.
            if let (Ok(_), Some(Seal::Ready(log))) = (&answer, seal) {
                finish::tell(unit, job, log).await?;
            }
            Ok(answer)
        })
    });
    done.await.map_err(caller::again)?.answer
}

/// The answer; or the refusal of a last word that came too late, and is kept.
async fn heard(
    unit: &mut Unit,
    runner: &Runner,
    job: JobId,
    (ask, signed): (Report, Option<Signed>),
) -> Result<Result<ReportResponse, Problem>, Problem> {
    let loaded = unit.load::<Job>(job).await?;
    execution::its_own(runner, loaded, ask.execution)?;
    if let ReportBody::Refused { by, rule, detail } = &ask.body {
        let refusal = Refusal {
            job,
            execution: Some(ask.execution),
            source: words::by_of(*by),
            rule: shortened(rule),
            detail: shortened(detail),
        };
        unit.tell::<aggregate::Runner>(runner.id, RunnerCommand::Refuse(refusal)).await?;
    }
    // What is kept as signed was signed by the key of that very position: a new one may have come since it was checked.
    // Nor does it stand behind a revocation: the call may have been let in a moment before.
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
        return Err(keys::is_former(runner, "the report"));
    }
    let (execution, seq) = (ask.execution, ask.seq);
    match words::said(ask.body) {
        Some(report) => {
            let (said, kept) = (report.clone(), signed.clone());
            let command = JobCommand::Report { execution, seq, report: said, signed: kept };
            if let Err(refused) = unit.ask::<Job>(job, command).await? {
                // How it ended is kept, also when it comes too late to count.
                let noted = match report {
                    Said::Finished(ending) => {
                        let late = JobCommand::NoteLateResult { execution, seq, ending, signed };
                        unit.ask::<Job>(job, late).await?.is_ok_and(|facts| facts > 0)
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
        // Progress of a cancel is for the eye; it still has to come from who has the job.
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
    match error {
        // Late, or somebody else's turn: the outcome stands, and the runner keeps what it has.
        JobError::Fenced { .. } | JobError::AlreadyEnded { .. } => execution::stale(job),
        other => other.into(),
    }
}
