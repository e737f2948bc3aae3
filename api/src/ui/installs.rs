//! List of installs with its filters, as a page and as CSV.
use axum::{body::Body, extract::State, response::Response};
use bytes::Bytes;
use dashboard::{csv as text, pages};
use schemas::control::installs::InstallsQuery;
use serde::Deserialize;

use super::{
    audit::attachment,
    pages::{caller_of, set},
    response::{Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Query},
    problem::{Code, Problem},
    queries::{installs, min_position},
    state::App,
};

/// Number of installs that a download reads at a time.
const CSV_PAGE: u32 = 200;

/// Filters of the list. A form sends its empty fields, too.
#[derive(Default, Deserialize)]
pub(super) struct Filters {
    search: Option<String>,
    app: Option<String>,
    version: Option<String>,
    state: Option<String>,
    runner: Option<String>,
    attention: Option<String>,
    cursor: Option<String>,
    min_position: Option<u64>,
    /// `none` to select no row of the page that changes several installs.
    pub select: Option<String>,
}

impl Filters {
    pub(super) fn query(self) -> Result<InstallsQuery, Problem> {
        let Filters { mut search, mut app, mut version, mut state, mut runner, .. } = self;
        for field in [&mut search, &mut app, &mut version, &mut state, &mut runner] {
            set(field);
        }
        let version = version.map(|text| text.trim().trim_start_matches('v').parse());
        let version = version.transpose().map_err(|_| {
            let detail =
                "invalid filter `version`: it is not a number; pass the number of a config version";
            Problem::new(Code::BadRequest, detail)
        })?;
        Ok(InstallsQuery {
            search: search.map(|text| text.trim().to_owned()),
            app,
            version,
            state,
            runner,
            attention: self.attention.filter(|only| only == "true").map(|_| true),
            limit: None,
            cursor: self.cursor,
            min_position: self.min_position,
        })
    }
}

pub(super) async fn list(
    State(app): State<App>,
    Ui(Query(filters)): Ui<Query<Filters>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let query = filters.query()?;
    min_position::wait(&app, query.min_position).await?;
    let page = installs::list(&app, &caller, query.clone()).await?;
    Ok(Page(pages::installs(&caller_of(&app, &caller, &session).await?, &query, &page)))
}

/// Downloads all installs that match the filters.
pub(super) async fn csv(
    State(app): State<App>,
    Ui(Query(filters)): Ui<Query<Filters>>,
    caller: Caller,
) -> Result<Response, PageProblem> {
    let query = InstallsQuery { limit: Some(CSV_PAGE), ..filters.query()? };
    // The first page is read before the status line, so that an invalid filter has a problem.
    let first = installs::list(&app, &caller, query.clone()).await?;
    let lines = async_stream::try_stream! {
        yield Bytes::from(text::INSTALLS_HEADER);
        let mut page = first;
        loop {
            yield Bytes::from(text::installs(&page.items));
            let Some(next) = page.next else { break };
            let of = InstallsQuery { cursor: Some(next), ..query.clone() };
            let aborted = |problem: Problem| std::io::Error::other(problem.detail);
            caller.recheck(&app).map_err(aborted)?;
            page = installs::list(&app, &caller, of).await.map_err(aborted)?;
        }
    };
    let lines: futures::stream::BoxStream<'static, std::io::Result<Bytes>> = Box::pin(lines);
    Ok(attachment("text/csv; charset=utf-8", "installs.csv", Body::from_stream(lines)))
}
