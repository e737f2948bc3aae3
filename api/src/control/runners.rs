//! `/v1/runners`: runners, their journal heads and enrolment tokens.
use axum::{Json, extract::State};
use domain::{
    enrolment::Purpose,
    ids::{RunnerId, TokenId},
};
use projections::views::runners as views;
use schemas::control::{
    ChangeResult, Page, PageQuery, ReasonBody,
    installs::EnrolmentIssued,
    runners::{JournalHeads, Runner},
};

use super::{
    change_request::{ChangeRequest, change_result, optional_reason},
    lookup::Lookup,
    pagination::PageRequest,
    show,
};
use crate::{
    extract::{self, Path, Query},
    problem::{ApiResult, Problem},
    state::App,
    usecases::{enrolments, journal_heads},
};

/// List runners in the order of their enrolment
#[utoipa::path(
    get, path = "/v1/runners", tag = "runners", params(PageQuery),
    responses((status = 200, body = Page<Runner>)),
)]
pub async fn list(
    State(app): State<App>,
    Query(part): Query<PageQuery>,
) -> ApiResult<Page<Runner>> {
    let part = PageRequest::of(part.limit, part.cursor)?;
    let rows = views::page(&app.pool, part.after, part.rows()).await?;
    let (rows, next) = part.cut(rows, |row| row.runner);
    let (mut lookup, mut items) = (Lookup::new(&app), Vec::new());
    lookup.for_runners(&rows).await?;
    for row in &rows {
        items.extend(show::runner(&mut lookup, row).await?);
    }
    Ok(Json(Page { items, next }))
}

/// Get a runner
#[utoipa::path(
    get, path = "/v1/runners/{runner}", tag = "runners",
    params(("runner" = String, Path, description = "The runner's id")),
    responses((status = 200, body = Runner)),
)]
pub async fn show(State(app): State<App>, Path(runner): Path<RunnerId>) -> ApiResult<Runner> {
    let missing = || Problem::not_found(runner);
    let row = views::runner(&app.pool, runner).await?.ok_or_else(missing)?;
    let response = show::runner(&mut Lookup::new(&app), &row).await?;
    response.map(Json).ok_or_else(missing)
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
pub async fn journal_heads(
    State(app): State<App>,
    Path(runner): Path<RunnerId>,
) -> ApiResult<JournalHeads> {
    if views::runner(&app.pool, runner).await?.is_none() {
        return Err(Problem::not_found(runner));
    }
    Ok(Json(JournalHeads { heads: journal_heads::heads(&app, runner).await? }))
}

/// Create an enrolment token for a build runner
#[utoipa::path(
    post, path = "/v1/runners/enrolment-tokens", tag = "runners",
    responses((status = 200, body = EnrolmentIssued)),
)]
pub async fn enrol(
    State(app): State<App>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<EnrolmentIssued> {
    let issued = enrolments::issue(&app, &call, Purpose::Build).await?;
    let enrolment = Some(show::enrolment(&app, issued.value, "build"));
    Ok(Json(EnrolmentIssued { enrolment, position: issued.position }))
}

/// Revoke an enrolment token
#[utoipa::path(
    post, path = "/v1/enrolment-tokens/{token}/revoke", tag = "runners", request_body = ReasonBody,
    params(("token" = String, Path, description = "The token's id, not the token")),
    responses((status = 200, body = ChangeResult)),
)]
pub async fn revoke_enrolment(
    State(app): State<App>,
    Path(token): Path<TokenId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<ReasonBody>,
) -> ApiResult<ChangeResult> {
    let reason = optional_reason(body.reason)?.unwrap_or_default();
    Ok(Json(change_result(&enrolments::revoke(&app, &call, token, reason).await?)))
}
