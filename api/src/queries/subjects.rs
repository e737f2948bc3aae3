//! Data subjects and the erasure of their data.
use domain::{
    ids::PrincipalId,
    subject::{self, SubjectEvent, SubjectId},
};
use event_log::{StreamId, encryption::shred};
use schemas::control::subjects::Subject;

use crate::{auth::names, extract::Caller, problem::Problem, state::App};

/// Returns the erasure state of a data subject.
pub(crate) async fn get(
    app: &App,
    caller: &Caller,
    subject: SubjectId,
) -> Result<Subject, Problem> {
    caller.authorize("GET", "/v1/subjects/{subject}")?;
    let mut shown =
        Subject { subject: subject.to_string(), state: "readable".into(), ..Subject::default() };
    for event in app.log().read_stream(&StreamId::of::<subject::Subject>(subject), 0).await? {
        for domain_event in event.decode::<SubjectEvent>()? {
            match domain_event {
                SubjectEvent::Shredded { by, reason } => {
                    shown.state = "shredded".into();
                    shown.shredded_at = Some(event.recorded_at);
                    (shown.by, shown.reason) = (Some(by.to_string()), Some(reason));
                }
                SubjectEvent::ErasureCompleted => {
                    shown.state = "erased".into();
                    shown.erased_at = Some(event.recorded_at);
                }
            }
        }
    }
    // A repeated shred request started another erasure of the copies.
    let open = shred::with_copies(&app.pool).await?;
    if shown.state == "erased" && open.iter().any(|due| due.subject == shown.subject) {
        shown.state = "shredded".into();
        shown.erased_at = None;
    }
    let by: Option<PrincipalId> = shown.by.as_ref().and_then(|by| by.parse().ok());
    if let Some(by) = by {
        shown.by_name = names::get(&app.pool, [by]).await.map_err(Problem::from)?.remove(&by);
    }
    Ok(shown)
}
