//! `/v1/apps`: sync a directory, list, compare.
use std::sync::Arc;

use axum::{
    Json,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use domain::app::App as AppState;
use schemas::control::{
    Diagnostic, Listing, Page,
    apps::{App as Shown, BuildRequested, ConfigVersion, Diff, DiffQuery, SyncQuery, Synced},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{BUNDLE_BYTES, ask::Ask, read, read::Part, show};
use crate::{
    compose::config::{Config, published},
    execute::Done,
    extract::{Path, Query},
    problem::{Answer, Code, Problem},
    state::App,
    usecases::apps,
};

/// The one call whose body is large.
pub fn large() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(sync)).layer(DefaultBodyLimit::max(BUNDLE_BYTES))
}

/// Publish a bundle as the next config version of an app
///
/// The body is the zstd of the bundle's archive. The same bundle again changes nothing and says so.
#[utoipa::path(
    post, path = "/v1/apps/{app}/sync", tag = "apps",
    params(("app" = String, Path, description = "The app's name"), SyncQuery),
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses((status = 200, body = Synced)),
)]
pub async fn sync(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(how): Query<SyncQuery>,
    headers: HeaderMap,
    Ask { call, .. }: Ask,
    body: Bytes,
) -> Answer<Synced> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind != Some("application/zstd") {
        let detail = "send the bundle as application/zstd; `stead apps sync` does";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let tar = unpack(body).await?;
    let done = apps::sync(&app, &call, &name, tar, how.dry_run).await?;
    Ok(Json(synced(name, how.dry_run, done)))
}

/// Decompress, up to what a bundle may have: a small body must not become a large one unnoticed.
async fn unpack(body: Bytes) -> Result<Vec<u8>, Problem> {
    let work = move || -> Result<Vec<u8>, Problem> {
        use std::io::Read;
        let wrong = |e: std::io::Error| Problem::new(Code::Invalid, format!("not zstd: {e}"));
        let decoder = zstd::Decoder::new(body.as_ref()).map_err(wrong)?;
        let mut tar = Vec::new();
        decoder.take(BUNDLE_BYTES as u64 + 1).read_to_end(&mut tar).map_err(wrong)?;
        if tar.len() > BUNDLE_BYTES {
            let detail = format!("the bundle has more than {BUNDLE_BYTES} bytes");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        Ok(tar)
    };
    tokio::task::spawn_blocking(work).await.map_err(Problem::internal)?
}

fn synced(name: String, dry_run: bool, done: Done<apps::Synced>) -> Synced {
    let apps::Synced { app, version, bundle, unchanged, builds, before, before_version, config } =
        done.answer;
    let before = before_version.zip(before.as_deref());
    let after = (!dry_run).then_some(version);
    let diff =
        show::diff(before.map(|(version, config)| (version, &config.app)), after, &config.app);
    let builds = builds.into_iter().map(|(component, id)| BuildRequested { id, component });
    let diagnostics = config.warnings.iter().map(diagnostic).collect();
    let (builds, position) = (builds.collect(), done.position);
    Synced { app, name, version, bundle, unchanged, dry_run, diff, builds, diagnostics, position }
}

fn diagnostic(found: &app_config::Diagnostic) -> Diagnostic {
    let some = |n: u32| (n > 0).then_some(n);
    Diagnostic {
        severity: if found.is_error() { "error" } else { "warning" }.into(),
        file: found.file.clone(),
        line: some(found.line),
        column: some(found.column),
        message: found.message.clone(),
        remedy: Some(found.remedy.clone()).filter(|remedy| !remedy.is_empty()),
    }
}

/// All apps, the newest first
#[utoipa::path(
    get, path = "/v1/apps", tag = "apps", params(Listing),
    responses((status = 200, body = Page<Shown>)),
)]
pub async fn list(State(app): State<App>, Query(part): Query<Listing>) -> Answer<Page<Shown>> {
    let owned = &app;
    let part = Part::of::<AppState>(part.limit, part.cursor)?;
    let page = read::list::<AppState, _, _>(&app, part, |history| async move {
        let count = installs(owned, &history.id).await?;
        show::app(&history, count).map(Some)
    });
    Ok(Json(page.await?))
}

/// One app
#[utoipa::path(
    get, path = "/v1/apps/{app}", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id")),
    responses((status = 200, body = Shown)),
)]
pub async fn show(State(app): State<App>, Path(name): Path<String>) -> Answer<Shown> {
    let id = apps::find(&app, &name).await?;
    let history = read::one::<AppState>(&app, id).await?;
    let count = installs(&app, &history.id).await?;
    show::app(&history, count).map(Json)
}

async fn installs(app: &App, id: &str) -> Result<u64, Problem> {
    let count: i64 = sqlx::query_scalar(
        "select count(*) from log_event where aggregate_type = 'install' \
         and event_type = 'install.created' and payload ->> 'app' = $1",
    )
    .bind(id)
    .fetch_one(&app.pool)
    .await?;
    Ok(count.max(0).cast_unsigned())
}

/// The config versions of an app, the newest first
#[utoipa::path(
    get, path = "/v1/apps/{app}/versions", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id"), Listing),
    responses((status = 200, body = Page<ConfigVersion>)),
)]
pub async fn versions(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(part): Query<Listing>,
) -> Answer<Page<ConfigVersion>> {
    let history = read::one::<AppState>(&app, apps::find(&app, &name).await?).await?;
    let bad = || Problem::new(Code::BadCursor, "pass `next` of the answer before as it is");
    let before = part.cursor.map(|c| c.parse::<u32>()).transpose().map_err(|_| bad())?;
    let limit = part.limit.unwrap_or(50).clamp(1, 200) as usize;
    let older = history.state.versions.range(..before.unwrap_or(u32::MAX)).rev();
    let mut items = Vec::new();
    for (_, published) in older.take(limit + 1) {
        items.extend(show::version(&history, published)?);
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| last.version.to_string());
    Ok(Json(Page { items, next }))
}

/// What differs between two config versions
#[utoipa::path(
    get, path = "/v1/apps/{app}/diff", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id"), DiffQuery),
    responses((status = 200, body = Diff)),
)]
pub async fn diff(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(which): Query<DiffQuery>,
) -> Answer<Diff> {
    let id = apps::find(&app, &name).await?;
    let state = app.engine.load::<AppState>(id).await?;
    let to = which.to.unwrap_or(state.version());
    let from = which.from.unwrap_or(to.saturating_sub(1));
    let after = config(&app, &state, to).await?;
    if from == 0 {
        return Ok(Json(show::diff(None, Some(to), &after.app)));
    }
    let before = config(&app, &state, from).await?;
    Ok(Json(show::diff(Some((from, &before.app)), Some(to), &after.app)))
}

async fn config(app: &App, state: &AppState, version: u32) -> Result<Arc<Config>, Problem> {
    app.configs.get(&app.pool, &published(state, version)?.bundle).await
}
