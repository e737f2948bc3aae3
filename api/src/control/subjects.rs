//! `/v1/subjects`: personal data of data subjects and its erasure.
use axum::{Json, extract::State};
use domain::subject::SubjectId;
use schemas::control::{ChangeResult, ReasonBody, subjects::Subject};

use super::change_request::{ChangeRequest, change_result, required_reason};
use crate::{
    extract::{self, Caller, Path},
    problem::ApiResult,
    queries::subjects as queries,
    state::App,
    usecases::subjects,
};

/// Get the erasure state of a data subject
#[utoipa::path(
    get, path = "/v1/subjects/{subject}", tag = "subjects",
    params(("subject" = String, Path, description = "The id of an install or a principal")),
    responses((status = 200, body = Subject)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(subject): Path<SubjectId>,
) -> ApiResult<Subject> {
    queries::get(&app, &caller, subject).await.map(Json)
}

/// Shred a data subject: make its personal data unreadable, irreversibly
///
/// Rejected while the subject is in use: an install that is not deprovisioned, or a principal with
/// a valid token. If the subject is already shredded, its copies are erased again.
#[utoipa::path(
    post, path = "/v1/subjects/{subject}/shred", tag = "subjects", request_body = ReasonBody,
    params(("subject" = String, Path, description = "The id of an install or a principal")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn shred(
    State(app): State<App>,
    Path(subject): Path<SubjectId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<ReasonBody>,
) -> ApiResult<ChangeResult> {
    let reason = required_reason(&body.reason.unwrap_or_default())?;
    Ok(Json(change_result(&subjects::shred(&app, &call, subject, reason).await?)))
}
