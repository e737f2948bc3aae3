//! Control of runners and jobs: the page of a runner, and the forms that change one.
use axum::{extract::State, response::Response};
use dashboard::pages;
use domain::{
    ids::{ExecutionId, JobId, RunnerId},
    job::Resolution,
};
use schemas::control::jobs::ResolveAs;
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    decisions::WithReason,
    pages::{Freshness, caller_of},
    response::{Form, Page, PageProblem, PageResult, Ui, see_other},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    queries::{min_position, runners as queries},
    state::App,
    usecases::{
        jobs, reason,
        runners::{self, RunnerControl},
    },
};

pub(super) async fn runner(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<RunnerId>>,
    Ui(Query(query)): Ui<Query<Freshness>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let shown = queries::get(&app, &caller, id).await?;
    Ok(Page(pages::runner(&caller_of(&app, &caller, &session).await?, &shown)))
}

/// Control command for a runner.
#[derive(Deserialize)]
pub(super) struct Control {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    verb: RunnerControl,
    reason: String,
}

/// Route of the Control API with the same effect.
fn route(command: RunnerControl) -> &'static str {
    match command {
        RunnerControl::Disable => "/v1/runners/{runner}/disable",
        RunnerControl::Enable => "/v1/runners/{runner}/enable",
        RunnerControl::Drain => "/v1/runners/{runner}/drain",
        RunnerControl::Resume => "/v1/runners/{runner}/resume",
        RunnerControl::Rekey => "/v1/runners/{runner}/rekey",
        RunnerControl::Revoke => "/v1/runners/{runner}/revoke",
    }
}

pub(super) async fn control(
    State(app): State<App>,
    Ui(Path(runner)): Ui<Path<RunnerId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Control>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let command = form.verb;
    let content = format!("{runner}\n{}", form.reason);
    let key = (("POST", route(command)), form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        let reason = reason::optional(Some(form.reason.clone()))?;
        runners::apply_control(&app, call, runner, command, reason).await
    });
    Ok(see_other(&format!("/ui/runners/{runner}"), position.await?))
}

pub(super) async fn cancel(
    State(app): State<App>,
    Ui(Path(job)): Ui<Path<JobId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<WithReason>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let content = format!("{job}\n{}", form.reason);
    let key = (("POST", "/v1/jobs/{job}/cancel"), form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        jobs::cancel(&app, call, job, reason::required(&form.reason)?, false).await
    });
    Ok(see_other(&format!("/ui/jobs/{job}"), position.await?))
}

/// Resolution of an unknown outcome.
#[derive(Deserialize)]
pub(super) struct Resolve {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    execution: ExecutionId,
    resolution: ResolveAs,
    reason: String,
}

pub(super) async fn resolve(
    State(app): State<App>,
    Ui(Path(job)): Ui<Path<JobId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Resolve>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Resolve { execution, resolution, reason, .. } = form;
    let content = format!("{job}\n{execution}\n{resolution:?}\n{reason}");
    let key = (("POST", "/v1/jobs/{job}/resolve"), form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        let resolution = match resolution {
            ResolveAs::Succeeded => Resolution::Succeeded,
            ResolveAs::Failed => Resolution::Failed,
            ResolveAs::Retry => Resolution::Retry,
        };
        let reason = reason::required(&reason)?;
        jobs::resolve(&app, call, job, execution, resolution, reason).await
    });
    Ok(see_other(&format!("/ui/jobs/{job}"), position.await?))
}
