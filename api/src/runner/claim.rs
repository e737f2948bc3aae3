//! Claims of offered jobs. The job aggregate decides, so each job has exactly one winner.
use axum::{Json, extract::State};
use domain::{
    ids::{ExecutionId, JobId},
    job::{Execution, Job, JobCommand, JobError, LossReason, Outcome, State as JobState},
    runner as aggregate,
};
use event_log::SessionGuard;
use schemas::runner::{Claim, Claimed};
use tracing::error;

use super::{
    caller,
    grant::{self, LostManifest},
    session,
};
use crate::{
    dispatch::{CallKind, SessionError},
    execute::{Call, UnitOfWork},
    extract::{self, RunnerCaller},
    ids,
    problem::{ApiResult, Code, Problem},
    state::App,
};

/// Claim an offered job. A repeated call with the same claim id returns the same response.
#[utoipa::path(put, path = "/runner/v1/jobs/{job}/claim", tag = "work", request_body = Claim,
    params(("job" = String, Path)),
    responses((status = 200, body = Claimed), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn claim(
    State(app): State<App>,
    runner: RunnerCaller,
    extract::Path(job): extract::Path<JobId>,
    extract::Json(body): extract::Json<Claim>,
) -> ApiResult<Claimed> {
    caller::allow(&app, &runner, CallKind::Report)?;
    let server_epoch = check_session(&app, &runner, &body).await?;
    // An offer is a hint and may have expired. A runner can claim any job that it may run, unless
    // its session does not accept the kind.
    if app.dispatch.accepts(runner.id, job) == Some(false) {
        let detail = "claim rejected: the session does not accept jobs of this kind";
        return Err(Problem::new(Code::NotOffered, detail));
    }
    if app.dispatch.lacks_secret_references(runner.id) && grant::has_references(&app, job).await? {
        let detail = "claim rejected: the job inserts sensitive values, and this runner does not declare the feature \
                      secret_references; update stead-runner";
        return Err(Problem::new(Code::NotOffered, detail));
    }
    // Reads the manifest while the claim is being committed.
    let taking = commit_claim(&app, &runner, job, &body, server_epoch);
    let (claimed, manifest) = tokio::join!(taking, grant::manifest(&app, job));
    let (execution, position) = match claimed {
        // A call of the same session may have reached another server, which owns the session now.
        // If the session is still the newest, this server takes it back. Otherwise the session is
        // superseded.
        Err(moved) if moved.code == Code::SessionSuperseded => {
            app.dispatch.disown(runner.id);
            let server_epoch = check_session(&app, &runner, &body).await?;
            commit_claim(&app, &runner, job, &body, server_epoch).await.map_err(retry_if_moved)?
        }
        claimed => claimed?,
    };
    let seen = body.checkpoint.as_deref();
    match manifest? {
        Ok(manifest) => {
            grant::claim_response(&app, job, (&execution, position), manifest, seen).await.map(Json)
        }
        Err(lost) => Err(fail_without_manifest(&app, &runner, job, execution.id, &lost).await?),
    }
}

/// Fails a job whose manifest the server lost. The runner that claimed it started nothing, so a run
/// can retry the step with a new manifest. Otherwise the runner would repeat the claim endlessly.
async fn fail_without_manifest(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    execution: ExecutionId,
    lost: &LostManifest,
) -> Result<Problem, Problem> {
    error!(job.id = %job, manifest = %lost.0, "Lost the manifest of a job; restore the database from a backup");
    let detail = lost.to_string();
    let call = caller::call(runner, "/runner/v1/jobs/{job}/claim");
    let done = app.engine.transact(&call, move |unit| {
        let detail = detail.clone();
        Box::pin(async move {
            let loss_reason = LossReason::NeverSpawned;
            unit.handle::<Job>(job, JobCommand::DeclareLost { execution, loss_reason }).await?;
            // Without another attempt, the job has ended.
            if let JobState::Queued { attempt } = unit.load::<Job>(job).await?.state {
                unit.handle::<Job>(job, JobCommand::FailUnclaimed { attempt, detail }).await?;
            }
            Ok(())
        })
    });
    done.await.map_err(caller::retryable)?;
    Ok(Problem::new(Code::Expired, format!("claim rejected: {lost}")))
}

/// Checks that the session is the runner's newest and that this server owns it. Returns the
/// server epoch of the session.
async fn check_session(app: &App, runner: &RunnerCaller, body: &Claim) -> Result<u64, Problem> {
    match app.dispatch.check(runner.id, body.session_id, body.generation) {
        Err(SessionError::Unknown) => {
            session::adopt(app, runner, body.session_id, body.generation, 1).await?;
            Ok(app.dispatch.check(runner.id, body.session_id, body.generation)?)
        }
        known => Ok(known?),
    }
}

/// Converts a second ownership change into a problem that the runner retries. The session may still
/// be the newest, and a runner stops permanently when its session is superseded.
fn retry_if_moved(problem: Problem) -> Problem {
    if problem.code == Code::SessionSuperseded {
        Problem::new(Code::Busy, problem.detail).retry_after(1)
    } else {
        problem
    }
}

/// Claims the job. Returns its execution and a position that includes the claim.
async fn commit_claim(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    body: &Claim,
    server_epoch: u64,
) -> Result<(Execution, u64), Problem> {
    let (execution, runner, body) = (ExecutionId(ids::new_ulid()), *runner, body.clone());
    let guard = SessionGuard {
        runner: runner.id.to_string(),
        server: app.dispatch.server().to_string(),
        server_epoch,
    };
    // If a newer session opens or another server takes the session over, the guarded row changes
    // and the claim fails.
    let call =
        Call { sessions: vec![guard], ..caller::call(&runner, "/runner/v1/jobs/{job}/claim") };
    let done = app.engine.transact(&call, move |unit| {
        let body = body.clone();
        Box::pin(async move { claim_job(unit, &runner, job, &body, execution).await })
    });
    let done = done.await.map_err(caller::retryable)?;
    Ok((done.value, done.position))
}

async fn claim_job(
    unit: &mut UnitOfWork,
    runner: &RunnerCaller,
    job: JobId,
    body: &Claim,
    execution: ExecutionId,
) -> Result<Execution, Problem> {
    // Loading the runner guards its stream, so a concurrent revocation makes this claim fail.
    let runner_state = unit.load::<aggregate::Runner>(runner.id).await?;
    let (revoked, works) = (runner_state.revoked, runner_state.takes_work());
    if revoked {
        return Err(Problem::new(
            Code::RunnerRevoked,
            "request rejected: the runner was revoked; enrol it again with a new enrolment token",
        ));
    }
    let loaded = unit.load::<Job>(job).await?;
    let again = loaded.execution().is_some_and(|current| {
        (current.session, &current.claim_id) == (body.session_id, &body.claim_id)
    });
    if !caller::may_run(runner, loaded) || !(works || again) {
        return Err(Problem::new(
            Code::NotOffered,
            "claim rejected: the job was not offered to this runner; poll for offers",
        ));
    }
    let state = loaded.state.clone();
    let (session, claim_id) = (body.session_id, body.claim_id.clone());
    let command = JobCommand::Claim { execution, runner: runner.id, session, claim_id };
    if let Err(reason) = unit.try_handle::<Job>(job, command).await? {
        return Err(rejection(&state, reason));
    }
    let current = unit.load::<Job>(job).await?.execution().cloned();
    current.ok_or_else(|| Problem::internal("claimed job has no execution"))
}

fn rejection(state: &JobState, error: JobError) -> Problem {
    let detail = error.to_string();
    let code = match state {
        JobState::Ended { outcome: Outcome::Cancelled, .. } => Code::Cancelled,
        JobState::Ended {
            outcome: Outcome::Succeeded | Outcome::Failed | Outcome::Lost, ..
        }
        // This claim was declared lost, and the job is queued again.
        | JobState::Queued { .. } => Code::Expired,
        JobState::Claimed(_) | JobState::Running(_) | JobState::OutcomeUnknown(_) => {
            Code::ClaimedByOther
        }
        JobState::NotCreated => return error.into(),
    };
    Problem::new(code, detail)
}
