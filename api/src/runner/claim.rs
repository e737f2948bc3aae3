//! Take an offered job. One claim, one winner: the job decides.
use axum::{Json, extract::State};
use domain::{
    ids::{ExecutionId, JobId},
    job::{Execution, Job, JobCommand, JobError, Outcome, State as JobState},
    runner as aggregate,
};
use event_log::SessionGuard;
use schemas::runner::{Claim, Claimed};
use ulid::Ulid;

use super::{caller, grant, session};
use crate::{
    auth::Runner,
    dispatch::{Calls, SessionRefusal},
    execute::{Call, Unit},
    extract,
    problem::{Answer, Code, Problem},
    state::App,
};

/// Claim an offered job. The same claim id gets the same response again.
#[utoipa::path(put, path = "/runner/v1/jobs/{job}/claim", tag = "work", request_body = Claim,
    params(("job" = String, Path)),
    responses((status = 200, body = Claimed), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn claim(
    State(app): State<App>,
    runner: Runner,
    extract::Path(job): extract::Path<JobId>,
    extract::Json(ask): extract::Json<Claim>,
) -> Answer<Claimed> {
    caller::allow(&app, &runner, Calls::Report)?;
    let server_epoch = serve(&app, &runner, &ask).await?;
    // An offer is a hint, and may have lapsed meanwhile: any runner that may have the job may claim it. What
    // its agent cannot do it was never offered.
    if app.dispatch.takes(runner.id, job) == Some(false) {
        let detail = "the session does not take jobs of this kind";
        return Err(Problem::new(Code::NotOffered, detail));
    }
    // What there is to do is read while the claim is on its way to the disk.
    let taking = take(&app, &runner, job, &ask, server_epoch);
    let (taken, manifest) = tokio::join!(taking, grant::manifest(&app, job));
    let (held, position) = match taken {
        // A call of the same session may have reached another server, which serves it now. If the
        // session is still the newest it is served here again; otherwise it is over.
        Err(moved) if moved.code == Code::SessionSuperseded => {
            app.dispatch.disown(runner.id);
            let server_epoch = serve(&app, &runner, &ask).await?;
            take(&app, &runner, job, &ask, server_epoch).await.map_err(moved_again)?
        }
        taken => taken?,
    };
    let seen = ask.checkpoint.as_deref();
    grant::answer(&app, job, (&held, position), manifest?, seen).await.map(Json)
}

/// That the session is the runner's newest and this server's.
async fn serve(app: &App, runner: &Runner, ask: &Claim) -> Result<u64, Problem> {
    match app.dispatch.check(runner.id, ask.session_id, ask.generation) {
        Err(SessionRefusal::Unknown) => {
            session::adopt(app, runner, ask.session_id, ask.generation, 1).await?;
            Ok(app.dispatch.check(runner.id, ask.session_id, ask.generation)?)
        }
        known => Ok(known?),
    }
}

/// The session was the newest a moment ago. Whether it still is, the next try tells; a runner that is told that it is
/// not ends for good.
fn moved_again(problem: Problem) -> Problem {
    if problem.code == Code::SessionSuperseded {
        Problem::new(Code::Busy, problem.detail).retry_after(1)
    } else {
        problem
    }
}

/// The execution that has the job now, and a position that includes its claim.
async fn take(
    app: &App,
    runner: &Runner,
    job: JobId,
    ask: &Claim,
    server_epoch: u64,
) -> Result<(Execution, u64), Problem> {
    let (execution, runner, ask) = (ExecutionId(Ulid::new()), *runner, ask.clone());
    let guard = SessionGuard {
        runner: runner.id.to_string(),
        server: app.dispatch.server().to_string(),
        server_epoch,
    };
    // A newer session, or another server that took this one over, moves the guarded row: then the
    // claim is in nobody's name any more.
    let call =
        Call { sessions: vec![guard], ..caller::call(&runner, "/runner/v1/jobs/{job}/claim") };
    let done = app.engine.transact(&call, move |unit| {
        let ask = ask.clone();
        Box::pin(async move { taken(unit, &runner, job, &ask, execution).await })
    });
    let done = done.await.map_err(caller::again)?;
    Ok((done.answer, done.position))
}

async fn taken(
    unit: &mut Unit,
    runner: &Runner,
    job: JobId,
    ask: &Claim,
    execution: ExecutionId,
) -> Result<Execution, Problem> {
    // Loading the runner guards its stream: a revocation cannot be overtaken by this claim.
    let standing = unit.load::<aggregate::Runner>(runner.id).await?;
    let (revoked, works) = (standing.revoked, standing.takes_work());
    if revoked {
        return Err(Problem::new(Code::RunnerRevoked, "enrol again with a new token"));
    }
    let loaded = unit.load::<Job>(job).await?;
    let again = loaded
        .execution()
        .is_some_and(|held| (held.session, &held.claim_id) == (ask.session_id, &ask.claim_id));
    if !caller::may_have(runner, loaded) || !(works || again) {
        return Err(Problem::new(Code::NotOffered, "the job was not offered to this runner"));
    }
    let state = loaded.state.clone();
    let (session, claim_id) = (ask.session_id, ask.claim_id.clone());
    let command = JobCommand::Claim { execution, runner: runner.id, session, claim_id };
    if let Err(refused) = unit.ask::<Job>(job, command).await? {
        return Err(refusal(&state, refused));
    }
    let held = unit.load::<Job>(job).await?.execution().cloned();
    held.ok_or_else(|| Problem::internal("a claimed job has no execution"))
}

fn refusal(state: &JobState, error: JobError) -> Problem {
    let said = error.to_string();
    let code = match state {
        JobState::Ended { outcome: Outcome::Cancelled, .. } => Code::Cancelled,
        JobState::Ended {
            outcome: Outcome::Succeeded | Outcome::Failed | Outcome::Lost, ..
        }
        // This very claim was given up, and the job waits for another one.
        | JobState::Queued { .. } => Code::Expired,
        JobState::Claimed(_) | JobState::Running(_) | JobState::OutcomeUnknown(_) => {
            Code::ClaimedByOther
        }
        JobState::Unborn => return error.into(),
    };
    Problem::new(code, said)
}
