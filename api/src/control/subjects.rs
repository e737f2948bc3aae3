//! `/v1/subjects`: whose data is kept, and the end of it.
use axum::{Json, extract::State};
use domain::{
    ids::PrincipalId,
    subject::{self, SubjectEvent, SubjectId},
};
use event_log::{StreamId, sealed::shred};
use schemas::control::{Done, ReasonBody, subjects::Subject};

use super::ask::{Ask, done, required};
use crate::{
    auth::names,
    extract::{self, Path},
    problem::{Answer, Problem},
    state::App,
    usecases::subjects,
};

/// Get the erasure state of a data subject
#[utoipa::path(
    get, path = "/v1/subjects/{subject}", tag = "subjects",
    params(("subject" = String, Path, description = "The id of an install or a principal")),
    responses((status = 200, body = Subject)),
)]
pub async fn show(State(app): State<App>, Path(subject): Path<SubjectId>) -> Answer<Subject> {
    let mut shown =
        Subject { subject: subject.to_string(), state: "readable".into(), ..Subject::default() };
    for event in app.log().read_stream(&StreamId::of::<subject::Subject>(subject), 0).await? {
        for fact in event.decode::<SubjectEvent>()? {
            match fact {
                SubjectEvent::Shredded { by, reason } => {
                    shown.state = "shredded".into();
                    shown.shredded_at = Some(event.recorded_at);
                    (shown.by, shown.reason) = (Some(by.to_string()), Some(reason));
                }
                SubjectEvent::CopiesErased => {
                    shown.state = "erased".into();
                    shown.erased_at = Some(event.recorded_at);
                }
            }
        }
    }
    // They are being erased again.
    let open = shred::with_copies(&app.pool).await?;
    if shown.state == "erased" && open.iter().any(|due| due.subject == shown.subject) {
        shown.state = "shredded".into();
        shown.erased_at = None;
    }
    let by: Option<PrincipalId> = shown.by.as_ref().and_then(|by| by.parse().ok());
    if let Some(by) = by {
        shown.by_name = names::of(&app.pool, [by]).await.map_err(Problem::from)?.remove(&by);
    }
    Ok(Json(shown))
}

/// Shred the data of a data subject permanently
///
/// 409 for an install that is not deprovisioned and for a principal with an active token. Shredding again erases
/// copies that a restore brought back.
#[utoipa::path(
    post, path = "/v1/subjects/{subject}/shred", tag = "subjects", request_body = ReasonBody,
    params(("subject" = String, Path, description = "The id of an install or a principal")),
    responses((status = 200, body = Done)),
)]
pub async fn shred(
    State(app): State<App>,
    Path(subject): Path<SubjectId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<ReasonBody>,
) -> Answer<Done> {
    let reason = required(&ask.reason.unwrap_or_default())?;
    Ok(Json(done(&subjects::shred(&app, &call, subject, reason).await?)))
}
