//! `/v1/jobs`: units of work for runners.
use axum::{Json, extract::State};
use domain::{
    ids::JobId,
    job::{Job as JobState, Origin, Verdict},
};
use schemas::control::{
    Done, Page,
    jobs::{self as wire, Cancel, Job, JobsQuery, Resolve},
};

use super::{
    ask::{Ask, done, required},
    read,
    read::Part,
    show,
};
use crate::{
    extract::{self, Path, Query},
    problem::{Answer, Problem},
    state::App,
    usecases::{installs, jobs},
};

/// Jobs, the newest first
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = Page<Job>)),
)]
pub async fn list(State(app): State<App>, Query(which): Query<JobsQuery>) -> Answer<Page<Job>> {
    let of = match &which.install {
        Some(name) => Some(installs::find(&app, name).await?),
        None => None,
    };
    let (owned, wanted, of_run) = (&app, which.state.as_deref(), which.run);
    let part = Part::of::<JobState>(which.limit, which.cursor)?;
    let page = read::list::<JobState, _, _>(&app, part, |history| async move {
        let (install, run) = match history.state.work.as_ref().map(|work| &work.origin) {
            Some(Origin::Step { install, run, .. }) => (Some(*install), Some(*run)),
            Some(Origin::Build { .. }) | None => (None, None),
        };
        if (of.is_some() && of != install) || (of_run.is_some() && of_run != run) {
            return Ok(None);
        }
        let shown = show::job(owned, &history).await?;
        Ok(shown.filter(|job| wanted.is_none_or(|state| state == job.state)))
    });
    Ok(Json(page.await?))
}

/// One job, with its attempts and what it waits for
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Job)),
)]
pub async fn show(State(app): State<App>, Path(job): Path<JobId>) -> Answer<Job> {
    let history = read::one::<JobState>(&app, job).await?;
    let shown = show::job(&app, &history).await?;
    shown.map(Json).ok_or_else(|| Problem::not_found(job))
}

/// Ask a job to stop
///
/// It is cancelled when its runner says so.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/cancel", tag = "jobs", request_body = Cancel,
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Done)),
)]
pub async fn cancel(
    State(app): State<App>,
    Path(job): Path<JobId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<Cancel>,
) -> Answer<Done> {
    let reason = required(&ask.reason)?;
    Ok(Json(done(&jobs::cancel(&app, &call, job, reason, ask.force).await?)))
}

/// Say what became of an execution of which nobody can say
#[utoipa::path(
    post, path = "/v1/jobs/{job}/resolve", tag = "jobs", request_body = Resolve,
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Done)),
)]
pub async fn resolve(
    State(app): State<App>,
    Path(job): Path<JobId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<Resolve>,
) -> Answer<Done> {
    let Resolve { execution, verdict, reason } = ask;
    let verdict = match verdict {
        wire::Verdict::Succeeded => Verdict::Succeeded,
        wire::Verdict::Failed => Verdict::Failed,
        wire::Verdict::Retry => Verdict::Retry,
    };
    let reason = required(&reason)?;
    Ok(Json(done(&jobs::resolve(&app, &call, job, execution, verdict, reason).await?)))
}
