//! Context of a form that changes something.
use event_log::{IdempotencyKey, Meta};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{
    auth::sessions::Session,
    execute::{Call, Done},
    extract::Caller,
    ids,
    problem::{Code, Problem},
    queries::earlier_change,
    state::App,
};

/// Name of the dashboard in the metadata of events.
const CLIENT: &str = "dashboard";

/// Field that proves that the form comes from a page of the session.
#[derive(Debug, Deserialize)]
pub(super) struct FormToken {
    form_token: String,
}

impl FormToken {
    pub(super) fn of(form_token: &str) -> FormToken {
        FormToken { form_token: form_token.to_owned() }
    }

    /// # Errors
    /// 403 if another site or an earlier session made the form.
    pub(super) fn check(&self, session: &Session) -> Result<(), Problem> {
        if session.accepts(&self.form_token) {
            return Ok(());
        }
        let detail = "request rejected: the form is from an earlier session; open the page again";
        Err(Problem::new(Code::Forbidden, detail))
    }
}

/// Makes the change of a form once, as the caller of this route of the Control API, and returns its position. A repeated submission changes
/// nothing, and has the position of the first one.
pub(super) async fn once<T>(
    app: &App,
    caller: &Caller,
    ((method, route), key, content): ((&str, &str), &str, String),
    change: impl AsyncFnOnce(&Call) -> Result<Done<T>, Problem>,
) -> Result<u64, Problem> {
    caller.authorize(method, route)?;
    if key.is_empty() || key.len() > 64 {
        return Err(Problem::new(
            Code::BadRequest,
            "form rejected: its key is invalid; open the page again",
        ));
    }
    let principal = caller.principal.to_string();
    let request_hash = Sha256::digest(format!("{method} {route}\n{content}")).into();
    let stored = IdempotencyKey { principal, key: key.to_owned(), request_hash, response: None };
    if let Some(position) = earlier_change::position(app, &stored).await? {
        return Ok(position);
    }
    let mut meta = Meta::new(caller.actor.clone(), ids::new_ulid().to_string());
    meta.route = Some(format!("{method} {route}"));
    meta.client = Some(CLIENT.to_owned());
    let mut call = Call::of(meta);
    call.key = Some(stored.clone());
    match change(&call).await {
        Ok(done) => Ok(done.position),
        // The first submission may have been committed in the meantime.
        Err(problem) => match earlier_change::position(app, &stored).await? {
            Some(position) => Ok(position),
            None => Err(problem),
        },
    }
}
