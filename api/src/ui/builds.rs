//! Builds of an app, and one build with the log of its job.
use axum::{extract::State, response::Response};
use dashboard::pages::{self, LogPage};
use domain::ids::BuildId;
use schemas::control::builds::BuildsQuery;
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    log::{Part, part_of},
    pages::{Freshness, caller_of, set},
    response::{Form, Page, PageProblem, PageResult, Ui, see_other},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    queries::{apps, builds as queries, jobs, min_position},
    state::App,
    usecases::rebuild,
};

pub(super) async fn builds(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(mut query)): Ui<Query<BuildsQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    set(&mut query.state);
    min_position::wait(&app, query.min_position).await?;
    let of = apps::get(&app, &caller, &name).await?;
    query.app = Some(of.id.to_string());
    let page = queries::list(&app, &caller, query.clone()).await?;
    Ok(Page(pages::builds(&caller_of(&app, &caller, &session).await?, &of, &query, &page)))
}

pub(super) async fn build(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<BuildId>>,
    Ui(Query(query)): Ui<Query<Freshness>>,
    Ui(Query(part)): Ui<Query<Part>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let build = queries::get(&app, &caller, id).await?;
    let job = match build.job {
        Some(job) => Some(jobs::get(&app, &caller, job).await?),
        None => None,
    };
    let log = match &job {
        Some(job) => part_of(&app, &caller, job, part).await?,
        None => LogPage::default(),
    };
    let frame = caller_of(&app, &caller, &session).await?;
    Ok(Page(pages::build(&frame, &build, job.as_ref(), &log)))
}

/// Retry of failed builds.
#[derive(Deserialize)]
pub(super) struct Retry {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
}

/// Retries the failed builds of the newest version, and shows the app with its new version.
pub(super) async fn retry(
    State(app): State<App>,
    Ui(Path(build)): Ui<Path<BuildId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Retry>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let route = ("POST", "/v1/builds/{build}/retry");
    let key = (route, form.idempotency_key.as_str(), build.to_string());
    let mut shown = format!("/ui/builds/{build}");
    let position = once(&app, &caller, key, async |call| {
        let done = rebuild::retry(&app, call, build).await?;
        shown = format!("/ui/apps/{}", done.value.app);
        Ok(done)
    });
    let position = position.await?;
    Ok(see_other(&shown, position))
}
