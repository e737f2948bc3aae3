//! Page that finds other pages. The palette shows its list.
use axum::extract::State;
use dashboard::pages::{self, FindPage, Found};
use serde::Deserialize;

use super::{
    pages::caller_of,
    response::{Page, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Query},
    problem::{Code, Problem},
    queries::{find, min_position},
    state::App,
};

/// Maximum length of a searched text in bytes.
const MAX_TEXT_BYTES: usize = 100;

/// Searched text.
#[derive(Deserialize)]
pub(super) struct Search {
    q: Option<String>,
}

pub(super) async fn find(
    State(app): State<App>,
    Ui(Query(search)): Ui<Query<Search>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, None).await?;
    let text = search.q.unwrap_or_default().trim().to_owned();
    if text.len() > MAX_TEXT_BYTES {
        let detail =
            format!("cannot find pages: the text has more than {MAX_TEXT_BYTES} bytes; shorten it");
        return Err(Problem::new(Code::BadRequest, detail).into());
    }
    let frame = caller_of(&app, &caller, &session).await?;
    let of = |found: Vec<find::Named>| -> Vec<Found> {
        found.into_iter().map(|(id, name)| Found { id, name }).collect()
    };
    let (installs, apps) = match text.is_empty() {
        true => (vec![], vec![]),
        false => (
            of(find::installs(&app, &caller, &text).await?),
            of(find::apps(&app, &caller, &text).await?),
        ),
    };
    Ok(Page(pages::find(&frame, &FindPage { text, installs, apps })))
}
