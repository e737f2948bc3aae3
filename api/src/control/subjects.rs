//! `/v1/subjects`: personal data of data subjects and its erasure.
use axum::{Json, extract::State};
use domain::{
    ids::PrincipalId,
    subject::{self, SubjectEvent, SubjectId},
};
use event_log::{StreamId, encryption::shred};
use schemas::control::{ChangeResult, ReasonBody, subjects::Subject};

use super::change_request::{ChangeRequest, change_result, required_reason};
use crate::{
    auth::names,
    extract::{self, Path},
    problem::{ApiResult, Problem},
    state::App,
    usecases::subjects,
};

/// Get the erasure state of a data subject
#[utoipa::path(
    get, path = "/v1/subjects/{subject}", tag = "subjects",
    params(("subject" = String, Path, description = "The id of an install or a principal")),
    responses((status = 200, body = Subject)),
)]
pub async fn show(State(app): State<App>, Path(subject): Path<SubjectId>) -> ApiResult<Subject> {
    let mut response =
        Subject { subject: subject.to_string(), state: "readable".into(), ..Subject::default() };
    for event in app.log().read_stream(&StreamId::of::<subject::Subject>(subject), 0).await? {
        for fact in event.decode::<SubjectEvent>()? {
            match fact {
                SubjectEvent::Shredded { by, reason } => {
                    response.state = "shredded".into();
                    response.shredded_at = Some(event.recorded_at);
                    (response.by, response.reason) = (Some(by.to_string()), Some(reason));
                }
                SubjectEvent::ErasureCompleted => {
                    response.state = "erased".into();
                    response.erased_at = Some(event.recorded_at);
                }
            }
        }
    }
    // A repeated shred request started another erasure of the copies.
    let open = shred::with_copies(&app.pool).await?;
    if response.state == "erased" && open.iter().any(|due| due.subject == response.subject) {
        response.state = "shredded".into();
        response.erased_at = None;
    }
    let by: Option<PrincipalId> = response.by.as_ref().and_then(|by| by.parse().ok());
    if let Some(by) = by {
        response.by_name = names::get(&app.pool, [by]).await.map_err(Problem::from)?.remove(&by);
    }
    Ok(Json(response))
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
pub async fn shred(
    State(app): State<App>,
    Path(subject): Path<SubjectId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<ReasonBody>,
) -> ApiResult<ChangeResult> {
    let reason = required_reason(&body.reason.unwrap_or_default())?;
    Ok(Json(change_result(&subjects::shred(&app, &call, subject, reason).await?)))
}
