//! What a runner says while it works: numbered, heard once, in its order.
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    artifact::Artifact,
    digest::Digest,
    ids::JobId,
    job::{Ending, FailureReason, Job, JobCommand, JobError, Report as Said},
    runner::{self as aggregate, Refusal, RefusedBy as By, RunnerCommand},
};
use ed25519_dalek::{Signature, VerifyingKey};
use event_log::blob;
use schemas::runner::{
    EXECUTION, Finished, Outcome, PlanReport, RefusedBy, Report, ReportAnswer, ReportBody,
};

use super::{
    caller, execution,
    finish::{self, Seal},
    settle,
};
use crate::{
    auth::Runner,
    dispatch::{self, Calls},
    execute::Unit,
    extract,
    problem::{Code, Problem},
    state::App,
};

/// Hear a report. Repeating it changes nothing.
#[utoipa::path(post, path = "/runner/v1/jobs/{job}/events", tag = "work", request_body = Report,
    params(("job" = String, Path)),
    responses((status = 200, body = ReportAnswer), (status = 202, body = ReportAnswer),
        (status = "4XX", body = schemas::problem::Problem)))]
pub async fn report(
    State(app): State<App>,
    runner: Runner,
    extract::Path(job): extract::Path<JobId>,
    headers: HeaderMap,
    extract::Json(ask): extract::Json<Report>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, Calls::Report)?;
    if headers.contains_key(EXECUTION) && execution::named(&headers)? != ask.execution {
        let detail = "the header `Execution` and the report name different executions";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    if let ReportBody::Plan(plan) = &ask.body {
        signed(&app, &runner, plan).await?;
        kept(&app, &plan.summary).await?;
    }
    // A stranger's word renews no lease and makes nobody look for a log.
    execution::may_report(&app, &runner, job, ask.execution).await?;
    let touched = app.dispatch.touch_execution(runner.id, job, ask.execution);
    settle::settle(&app, &runner, touched, None).await;
    let seal = finish::look(&app, ask.execution, &ask.body).await?;
    let mut answer = hear(&app, &runner, job, &ask, seal.clone()).await?;
    if let Some(seal) = seal {
        answer.have = finish::settle(&app, job, ask.execution, seal).await?;
    }
    let status = if answer.have.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(answer)).into_response())
}

/// What a report names by digest has to be here first.
async fn kept(app: &App, digest: &Digest) -> Result<(), Problem> {
    match blob::get(&app.pool, digest).await.map_err(Problem::internal)? {
        Some(_) => Ok(()),
        None => {
            let detail = format!("PUT /runner/v1/blobs/{digest} before the report that names it");
            Err(Problem::new(Code::Invalid, detail))
        }
    }
}

/// A plan is this runner's own: what people approve is what its key signed.
async fn signed(app: &App, runner: &Runner, plan: &PlanReport) -> Result<(), Problem> {
    let known = app.engine.load::<aggregate::Runner>(runner.id).await?;
    let key = known.key().and_then(|key| hex::decode(key).ok()?.try_into().ok());
    let key = key.and_then(|key| VerifyingKey::from_bytes(&key).ok());
    let signature = STANDARD.decode(&plan.signature).ok();
    let signature = signature.and_then(|bytes| Signature::from_slice(&bytes).ok());
    let digest = plan.digest.to_string();
    match key.zip(signature) {
        Some((key, signature)) if key.verify_strict(digest.as_bytes(), &signature).is_ok() => {
            Ok(())
        }
        Some(_) | None => {
            let detail = "the signature of the plan's digest is not by this runner's identity key";
            Err(Problem::new(Code::Invalid, detail))
        }
    }
}

async fn hear(
    app: &App,
    runner: &Runner,
    job: JobId,
    ask: &Report,
    seal: Option<Seal>,
) -> Result<ReportAnswer, Problem> {
    let (runner, ask) = (*runner, ask.clone());
    let call = caller::call(&runner, "/runner/v1/jobs/{job}/events");
    let done = app.engine.transact(&call, move |unit| {
        let (ask, seal) = (ask.clone(), seal.clone());
        Box::pin(async move {
            let answer = heard(unit, &runner, job, ask).await?;
            // With the last word, when the log is all here: one commit, one wait for the disk.
            if let Some(Seal::Ready(log)) = seal {
                finish::tell(unit, job, log).await?;
            }
            Ok(answer)
        })
    });
    Ok(done.await.map_err(caller::again)?.answer)
}

async fn heard(
    unit: &mut Unit,
    runner: &Runner,
    job: JobId,
    ask: Report,
) -> Result<ReportAnswer, Problem> {
    let loaded = unit.load::<Job>(job).await?;
    execution::its_own(runner, loaded, ask.execution)?;
    if let ReportBody::Refused { by, rule, detail } = &ask.body {
        let refusal = Refusal {
            job,
            execution: Some(ask.execution),
            by: by_of(*by),
            rule: rule.clone(),
            detail: detail.clone(),
        };
        unit.tell::<aggregate::Runner>(runner.id, RunnerCommand::Refuse(refusal)).await?;
    }
    let (execution, seq) = (ask.execution, ask.seq);
    match said(ask.body) {
        Some(report) => {
            let command = JobCommand::Report { execution, seq, report };
            if let Err(refused) = unit.ask::<Job>(job, command).await? {
                return Err(refusal(unit.load::<Job>(job).await?, refused));
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
    Ok(ReportAnswer { job_state, have: None, cancel: dispatch::pending_cancel(after) })
}

fn refusal(job: &Job, error: JobError) -> Problem {
    match error {
        // Late, or somebody else's turn: the outcome stands, and the runner keeps what it has.
        JobError::Fenced { .. } | JobError::AlreadyEnded { .. } => execution::stale(job),
        other => other.into(),
    }
}

fn said(body: ReportBody) -> Option<Said> {
    Some(match body {
        ReportBody::Started {} => Said::Started,
        ReportBody::Phase { name } => Said::Phase { phase: name },
        ReportBody::Plan(plan) => Said::Plan(dispatch::plan_of(plan)),
        ReportBody::Outputs { outputs } => Said::Outputs { outputs },
        ReportBody::Artifact(artifact) => Said::Artifact(Artifact {
            repository: artifact.repository,
            digest: artifact.digest,
            size_bytes: artifact.size_bytes,
        }),
        ReportBody::Refused { rule, detail, .. } => {
            let detail = if detail.is_empty() { rule } else { detail };
            let (exit_code, signal) = (None, None);
            let reason = FailureReason::Refused;
            Said::Finished(Ending::Failed { reason, detail, exit_code, signal })
        }
        ReportBody::CancelProgress { .. } => return None,
        ReportBody::Finished(finished) => Said::Finished(ending(finished)),
    })
}

fn ending(finished: Finished) -> Ending {
    let Finished { outcome, exit_code, signal, reason, detail, forced, .. } = finished;
    match outcome {
        Outcome::Succeeded => Ending::Succeeded { exit_code },
        Outcome::Cancelled => Ending::Cancelled { forced },
        Outcome::Failed => {
            let reason = match (reason.map(dispatch::reason_of), signal, exit_code) {
                (Some(reason), _, _) => reason,
                (None, Some(_), _) => FailureReason::Signal,
                (None, None, Some(_)) => FailureReason::ExitCode,
                (None, None, None) => FailureReason::Internal,
            };
            Ending::Failed { reason, detail, exit_code, signal }
        }
    }
}

fn by_of(by: RefusedBy) -> By {
    match by {
        RefusedBy::CustomerPolicy => By::CustomerPolicy,
        RefusedBy::Verification => By::Verification,
        RefusedBy::Capability => By::Capability,
        RefusedBy::Veto => By::Veto,
    }
}
