//! Pages of runs, apps and jobs as of an earlier position.
use axum::extract::State;
use dashboard::pages::{self, EarlierPage, Subject};
use domain::ids::{JobId, RunId};
use schemas::control::audit::{AsOfQuery, EventsQuery};
use serde::Deserialize;

use super::{
    audit::point,
    pages::caller_of,
    response::{Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    queries::{apps, audit, jobs, runs},
    state::App,
};

/// Maximum number of events that a page lists.
const EVENTS: u32 = 200;

/// Point as of which a page shows an aggregate.
#[derive(Deserialize)]
pub(super) struct AsOf {
    as_of: String,
}

pub(super) async fn run(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<RunId>>,
    Ui(Query(when)): Ui<Query<AsOf>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let now = runs::get(&app, &caller, id).await?.run;
    let heading = format!("{} of {}", now.kind.replace('_', " "), now.install_name);
    let subject = (Subject::Run, heading, format!("/ui/runs/{id}"));
    show(&app, (&caller, &session), subject, (format!("run/{id}"), when)).await
}

pub(super) async fn app(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(when)): Ui<Query<AsOf>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let now = apps::get(&app, &caller, &name).await?;
    let subject = (Subject::App, now.name, format!("/ui/apps/{}", now.id));
    show(&app, (&caller, &session), subject, (format!("app/{}", now.id), when)).await
}

pub(super) async fn job(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<JobId>>,
    Ui(Query(when)): Ui<Query<AsOf>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let now = jobs::get(&app, &caller, id).await?;
    let heading = format!("{} {}", now.kind, now.name.unwrap_or_default());
    let subject = (Subject::Job, heading.trim().to_owned(), format!("/ui/jobs/{id}"));
    show(&app, (&caller, &session), subject, (format!("job/{id}"), when)).await
}

async fn show(
    app: &App,
    (caller, session): (&Caller, &Session),
    (subject, heading, present): (Subject, String, String),
    (stream, when): (String, AsOf),
) -> Result<Page, PageProblem> {
    let (position, time) = point(app, &when.as_of)?;
    let query = AsOfQuery { stream: stream.clone(), position, time, min_position: None };
    let earlier = audit::state(app, caller, &query).await?;
    let all = EventsQuery { stream: Some(stream), limit: Some(EVENTS), ..EventsQuery::default() };
    let mut events = audit::events(app, caller, &all).await?.items;
    events.retain(|event| event.position <= earlier.position);
    let has_more_events = earlier.sequence > events.len() as u64;
    let frame = caller_of(app, caller, session).await?;
    let page = EarlierPage { subject, heading, present, earlier, events, has_more_events };
    Ok(Page(pages::earlier(&frame, &page)))
}
