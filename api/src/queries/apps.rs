//! Apps, their config versions, and the difference between two versions.
use std::{collections::BTreeMap, sync::Arc};

use domain::{
    app::{App as AppState, Published, PublishedComponent},
    build::{Build, State as BuildState},
    digest::Digest,
    install::Install,
};
use projections::views;
use schemas::control::{
    Page, PageQuery,
    apps::{App as AppResponse, ConfigVersion, ConfigVersionDetail, Diff, DiffQuery},
};

use super::{filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{
    configs::{Config, published},
    extract::Caller,
    problem::{Code, Problem},
    state::App,
    usecases::{apps, impact},
};

/// Lists the apps, oldest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: PageQuery,
) -> Result<Page<AppResponse>, Problem> {
    caller.authorize("GET", "/v1/apps")?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let rows = views::apps::page(&app.pool, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.app);
    Ok(Page { items: to_responses(app, &rows).await?, next })
}

/// Returns an app by its name or id.
pub(crate) async fn get(app: &App, caller: &Caller, name: &str) -> Result<AppResponse, Problem> {
    caller.authorize("GET", "/v1/apps/{app}")?;
    let missing = || Problem::not_found(format!("the app {name:?}"));
    let id = apps::find(app, name).await?;
    let row = views::apps::app(&app.pool, id).await?.ok_or_else(missing)?;
    to_responses(app, &[row]).await?.pop().ok_or_else(missing)
}

/// Converts rows of apps. Reads the newest versions and the install counts in two statements, for
/// any number of rows.
async fn to_responses(
    app: &App,
    rows: &[views::apps::Row],
) -> Result<Vec<AppResponse>, sqlx::Error> {
    let newest = rows.iter().map(|row| (row.app, row.version));
    let newest = views::config_versions::versions(&app.pool, newest).await?;
    let counts = views::installs::counts(&app.pool, rows.iter().map(|row| row.app)).await?;
    let shown = |row: &views::apps::Row| {
        let installs = counts.get(&row.app).copied().unwrap_or_default();
        show::app(row, newest.get(&(row.app, row.version)), installs)
    };
    Ok(rows.iter().map(shown).collect())
}

/// Lists the config versions of an app, newest first.
pub(crate) async fn versions(
    app: &App,
    caller: &Caller,
    name: &str,
    query: PageQuery,
) -> Result<Page<ConfigVersion>, Problem> {
    caller.authorize("GET", "/v1/apps/{app}/versions")?;
    let id = apps::find(app, name).await?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let rows = views::config_versions::page(&app.pool, id, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.published.config_version);
    let mut look = Lookup::new(app);
    look.for_actors(rows.iter().map(|row| &row.by)).await?;
    let items = rows.iter().map(|row| show::version(&look, row)).collect();
    Ok(Page { items, next })
}

/// Returns a config version with its parsed configuration.
pub(crate) async fn version(
    app: &App,
    caller: &Caller,
    (name, number): (&str, u32),
) -> Result<ConfigVersionDetail, Problem> {
    caller.authorize("GET", "/v1/apps/{app}/versions/{version}")?;
    let id = apps::find(app, name).await?;
    let state = app.engine.load::<AppState>(id).await?;
    let read = config(app, &state, number).await?;
    let missing = || Problem::not_found(format!("version {number} of {name}"));
    let rows = views::config_versions::versions(&app.pool, [(id, number)]).await?;
    let row = rows.get(&(id, number)).ok_or_else(missing)?;
    let mut look = Lookup::new(app);
    look.for_actors([&row.by]).await?;
    let version = show::version(&look, row);
    let name = state.name.clone().unwrap_or_default();
    let inspected = move || {
        let tree = read.tree.app();
        app_config::inspect(&name, &tree, &app_config::survey(&tree, &read.app.plugins))
    };
    // Parsing a large directory would block the async runtime.
    let config = tokio::task::spawn_blocking(inspected).await.map_err(Problem::internal)?;
    Ok(ConfigVersionDetail { version, config })
}

/// Compares two config versions, and plans the later one for installs.
pub(crate) async fn diff(
    app: &App,
    caller: &Caller,
    name: &str,
    which: DiffQuery,
) -> Result<Diff, Problem> {
    caller.authorize("GET", "/v1/apps/{app}/diff")?;
    let id = apps::find(app, name).await?;
    let state = app.engine.load::<AppState>(id).await?;
    let to = which.to.unwrap_or(state.version());
    let from = which.from.unwrap_or(to.saturating_sub(1));
    let after = config(app, &state, to).await?;
    let published = published(&state, to)?;
    let impact = match &which.install {
        Some(install) => {
            let of = filter::install(app, install).await?;
            if app.engine.load::<Install>(of).await?.app != Some(id) {
                return Err(Problem::not_found(format!("the install {install:?} of this app")));
            }
            (vec![impact::of_install(app, of, which.inputs_of, &after, published).await?], 0)
        }
        None if which.inputs_of.is_some() => {
            let detail =
                "invalid request: inputs_of requires install; name the install that has the inputs";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        None => impact::impact(app, id, &after, published).await?,
    };
    let diff = match from {
        0 => show::diff(None, Some(to), &after.app),
        _ => {
            let before = config(app, &state, from).await?;
            let diff = show::diff(Some((from, &before.app)), Some(to), &after.app);
            let diff = show::with_commits(diff, state.versions.get(&from), published);
            with_files(app, diff, state.versions.get(&from), published).await?
        }
    };
    let diff = Diff { ignored_settings: show::ignored_settings(&after), ..diff };
    Ok(show::with_impact(diff, impact))
}

/// Adds the files that differ between the builds of components with another commit.
async fn with_files(
    app: &App,
    mut diff: Diff,
    before: Option<&Published>,
    after: &Published,
) -> Result<Diff, Problem> {
    for part in &after.components {
        let mut earlier = before.into_iter().flat_map(|before| &before.components);
        let earlier = earlier.find(|earlier| earlier.component == part.component);
        let Some(earlier) = earlier.filter(|earlier| earlier.commit != part.commit) else {
            continue;
        };
        let (Some(old), Some(new)) = (contents(app, earlier).await?, contents(app, part).await?)
        else {
            continue;
        };
        diff = show::with_files(diff, &part.name, &old, &new);
    }
    Ok(diff)
}

/// Returns the digests of the files that the build of a component packed, if they are known.
async fn contents(
    app: &App,
    part: &PublishedComponent,
) -> Result<Option<BTreeMap<String, Digest>>, Problem> {
    match app.engine.load::<Build>(part.build).await?.state {
        BuildState::Succeeded { artifact } => {
            app.registry.contents(&artifact).await.map_err(Problem::internal)
        }
        BuildState::NotCreated
        | BuildState::Requested
        | BuildState::Building { .. }
        | BuildState::Failed { .. } => Ok(None),
    }
}

async fn config(app: &App, state: &AppState, version: u32) -> Result<Arc<Config>, Problem> {
    app.configs.get(&app.pool, published(state, version)?).await
}
