//! `/v1/runners`: runners, their journal heads and enrolment tokens.
use axum::{Json, extract::State};
use domain::{
    enrolment::Purpose,
    ids::{RunnerId, TokenId},
};
use schemas::control::{
    ChangeResult, Page, PageQuery, ReasonBody,
    installs::EnrolmentIssued,
    runners::{EnrolmentToken, JournalHeads, Runner},
};

use super::change_request::{ChangeRequest, change_result, optional_reason};
use crate::{
    extract::{self, Caller, Path, Query},
    problem::ApiResult,
    queries::{enrolments as enrolment_queries, runners as queries, show},
    state::App,
    usecases::enrolments,
};

/// List runners in the order of their enrolment
#[utoipa::path(
    get, path = "/v1/runners", tag = "runners", params(PageQuery),
    responses((status = 200, body = Page<Runner>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<Runner>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get a runner
#[utoipa::path(
    get, path = "/v1/runners/{runner}", tag = "runners",
    params(("runner" = String, Path, description = "The runner's id")),
    responses((status = 200, body = Runner)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(runner): Path<RunnerId>,
) -> ApiResult<Runner> {
    queries::get(&app, &caller, runner).await.map(Json)
}

/// Get the newest signed heads of a runner's journal
///
/// `stead-runner journal verify --head` compares a journal with one of these heads to detect
/// truncation.
#[utoipa::path(
    get, path = "/v1/runners/{runner}/journal-heads", tag = "runners",
    params(("runner" = String, Path, description = "The runner's id")),
    responses((status = 200, body = JournalHeads)),
)]
pub(super) async fn journal_heads(
    State(app): State<App>,
    caller: Caller,
    Path(runner): Path<RunnerId>,
) -> ApiResult<JournalHeads> {
    queries::journal_heads(&app, &caller, runner).await.map(Json)
}

/// Create an enrolment token for a build runner
#[utoipa::path(
    post, path = "/v1/runners/enrolment-tokens", tag = "runners",
    responses((status = 200, body = EnrolmentIssued)),
)]
pub(super) async fn enrol(
    State(app): State<App>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<EnrolmentIssued> {
    let issued = enrolments::issue(&app, &call, Purpose::Build).await?;
    let enrolment = Some(show::enrolment(&app, issued.value, "build"));
    Ok(Json(EnrolmentIssued { enrolment, position: issued.position }))
}

/// List enrolment tokens, newest first
#[utoipa::path(
    get, path = "/v1/enrolment-tokens", tag = "runners", params(PageQuery),
    responses((status = 200, body = Page<EnrolmentToken>)),
)]
pub(super) async fn enrolments(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<EnrolmentToken>> {
    enrolment_queries::list(&app, &caller, query).await.map(Json)
}

/// Revoke an enrolment token
#[utoipa::path(
    post, path = "/v1/enrolment-tokens/{token}/revoke", tag = "runners", request_body = ReasonBody,
    params(("token" = String, Path, description = "The token's id, not the token")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn revoke_enrolment(
    State(app): State<App>,
    Path(token): Path<TokenId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<ReasonBody>,
) -> ApiResult<ChangeResult> {
    let reason = optional_reason(body.reason)?.unwrap_or_default();
    Ok(Json(change_result(&enrolments::revoke(&app, &call, token, reason).await?)))
}
