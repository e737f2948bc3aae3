//! Control of runners and jobs: the page of a runner, and the forms that change one.
use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use dashboard::pages::{self, RunnerPage, RunnersPage};
use domain::{
    enrolment::Purpose,
    ids::{ExecutionId, JobId, RunnerId, TokenId},
    job::Resolution,
};
use schemas::control::{PageQuery, jobs::ResolveAs};
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
    problem::Problem,
    queries::{enrolments as enrolment_tokens, min_position, runners as queries, show},
    state::App,
    usecases::{
        enrolments, jobs, reason,
        runners::{self, RunnerControl},
    },
};

/// Number of enrolment tokens on the page of the runners.
const TOKENS: u32 = 20;

pub(super) async fn runner(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<RunnerId>>,
    Ui(Query(query)): Ui<Query<Freshness>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let runner = queries::get(&app, &caller, id).await?;
    let journals = queries::journal_heads(&app, &caller, id).await?;
    let page = RunnerPage { runner, journals };
    Ok(Page(pages::runner(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Part of the list of runners, and the enrolment token that was just revoked.
#[derive(Deserialize)]
pub(super) struct ListQuery {
    cursor: Option<String>,
    min_position: Option<u64>,
    revoked: Option<TokenId>,
}

pub(super) async fn runners(
    State(app): State<App>,
    Ui(Query(query)): Ui<Query<ListQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let ListQuery { cursor, min_position, revoked } = query;
    min_position::wait(&app, min_position).await?;
    let part = PageQuery { cursor, ..PageQuery::default() };
    let runners = queries::list(&app, &caller, part).await?;
    let frame = caller_of(&app, &caller, &session).await?;
    let newest = PageQuery { limit: Some(TOKENS), ..PageQuery::default() };
    let tokens = match frame.may(&[]) {
        true => enrolment_tokens::list(&app, &caller, newest).await?.items,
        false => vec![],
    };
    let page = RunnersPage { runners, tokens, revoked: revoked.map(|token| token.to_string()) };
    Ok(Page(pages::runners(&frame, &page)))
}

/// Form without further fields.
#[derive(Deserialize)]
pub(super) struct Enrol {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
}

/// Creates an enrolment token for a build runner. The response shows it, because no later page can.
pub(super) async fn enrol(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Enrol>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let route = ("POST", "/v1/runners/enrolment-tokens");
    let key = (route, form.idempotency_key.as_str(), String::new());
    let mut enrolment = None;
    once(&app, &caller, key, async |call| {
        let done = enrolments::issue(&app, call, Purpose::Build).await?;
        enrolment = Some(show::enrolment(&app, done.value.clone(), "build"));
        Ok(done)
    })
    .await?;
    let frame = caller_of(&app, &caller, &session).await?;
    Ok(Page(pages::build_enrolment(&frame, enrolment.as_ref())).into_response())
}

/// Enrolment token to revoke.
#[derive(Deserialize)]
pub(super) struct RevokeToken {
    #[serde(flatten)]
    form_token: FormToken,
    idempotency_key: String,
    token: String,
    reason: String,
}

pub(super) async fn revoke_token(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<RevokeToken>,
) -> Result<Response, PageProblem> {
    form.form_token.check(&session)?;
    let token: TokenId = form.token.trim().parse().map_err(|_| {
        let remedy = "pass the id, tok_…, and not the token";
        Problem::invalid_field("token", "is not the id of an enrolment token", remedy)
    })?;
    let content = format!("{token}\n{}", form.reason);
    let route = ("POST", "/v1/enrolment-tokens/{token}/revoke");
    let key = (route, form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        enrolments::revoke(&app, call, token, reason::required(&form.reason)?).await
    });
    let position = position.await?;
    let url = format!("/ui/runners?revoked={token}&min_position={position}");
    Ok(Redirect::to(&url).into_response())
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
