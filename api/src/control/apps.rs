//! `/v1/apps`: sync a directory, list apps and versions, compare versions.
use std::sync::Arc;

use axum::{
    Json,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use domain::{app::App as AppState, install::Install};
use projections::views;
use schemas::control::{
    Diagnostic, Page, PageQuery,
    apps::{
        App as Shown, BuildRequested, ConfigVersion, ConfigVersionDetail, Diff, DiffQuery,
        SyncQuery, SyncReport,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    MAX_BUNDLE_BYTES,
    change_request::{ChangeRequest, invalid_field},
    lookup::Lookup,
    pagination::PageRequest,
    show,
};
use crate::{
    configs::{Config, published},
    execute::Done,
    extract::{Path, Query, Raw},
    problem::{ApiResult, Code, Problem},
    state::App,
    usecases::{apps, impact},
};

/// Returns the route of `sync`, which needs a higher limit for its body.
pub fn large_body_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(sync)).layer(DefaultBodyLimit::max(MAX_BUNDLE_BYTES))
}

/// Publish a bundle as the next config version of an app
///
/// The body is the bundle's tar archive, compressed with zstd. If the newest version has the same
/// bundle, nothing changes and `unchanged` is true.
#[utoipa::path(
    post, path = "/v1/apps/{app}/sync", tag = "apps",
    params(("app" = String, Path, description = "The app's name"), SyncQuery),
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses((status = 200, body = SyncReport)),
)]
pub async fn sync(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(how): Query<SyncQuery>,
    headers: HeaderMap,
    ChangeRequest { call, .. }: ChangeRequest,
    Raw(body): Raw,
) -> ApiResult<SyncReport> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind != Some("application/zstd") {
        let detail = "the body is not application/zstd; send the bundle as application/zstd, or use `stead apps sync`";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let tar = decompress(body).await?;
    if how.against.is_some() && !how.dry_run {
        return Err(invalid_field(
            "against",
            "requires dry_run=true",
            "send dry_run=true or omit against",
        ));
    }
    let meant = match how.dry_run {
        true => apps::SyncOptions::DryRun { against: how.against },
        false => apps::SyncOptions::Publish,
    };
    let done = apps::sync(&app, &call, &name, tar, meant).await?;
    Ok(Json(sync_response(name, how.dry_run, done)))
}

/// Decompresses a bundle, up to the size limit, so that a small body cannot fill the memory.
async fn decompress(body: Bytes) -> Result<Vec<u8>, Problem> {
    let work = move || -> Result<Vec<u8>, Problem> {
        use std::io::Read;
        let wrong = |e: std::io::Error| {
            Problem::new(
                Code::Invalid,
                format!("the bundle is not zstd: {e}; compress it with zstd"),
            )
        };
        let decoder = zstd::Decoder::new(body.as_ref()).map_err(wrong)?;
        let mut tar = Vec::new();
        decoder.take(MAX_BUNDLE_BYTES as u64 + 1).read_to_end(&mut tar).map_err(wrong)?;
        if tar.len() > MAX_BUNDLE_BYTES {
            let detail = format!(
                "the bundle is larger than {MAX_BUNDLE_BYTES} bytes; remove files \
                                  that the app does not need"
            );
            return Err(Problem::new(Code::TooLarge, detail));
        }
        Ok(tar)
    };
    tokio::task::spawn_blocking(work).await.map_err(Problem::internal)?
}

fn sync_response(name: String, dry_run: bool, done: Done<apps::SyncResult>) -> SyncReport {
    let apps::SyncResult {
        app,
        version,
        bundle,
        unchanged,
        builds,
        before,
        before_version,
        config,
        impact: reach,
    } = done.value;
    let before = before_version.zip(before.as_deref());
    let after = (!dry_run).then_some(version);
    let before = before.map(|(version, config)| (version, &config.app));
    let diff = show::with_impact(show::diff(before, after, &config.app), reach);
    let builds = builds.into_iter().map(|(component, id)| BuildRequested { id, component });
    let diagnostics = config.warnings.iter().map(diagnostic).collect();
    let (builds, position) = (builds.collect(), done.position);
    SyncReport {
        app,
        name,
        version,
        bundle,
        unchanged,
        dry_run,
        diff,
        builds,
        diagnostics,
        position,
    }
}

pub(super) fn diagnostic(found: &app_config::Diagnostic) -> Diagnostic {
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

/// List apps, oldest first
#[utoipa::path(
    get, path = "/v1/apps", tag = "apps", params(PageQuery),
    responses((status = 200, body = Page<Shown>)),
)]
pub async fn list(State(app): State<App>, Query(part): Query<PageQuery>) -> ApiResult<Page<Shown>> {
    let part = PageRequest::of(part.limit, part.cursor)?;
    let rows = views::apps::page(&app.pool, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.app);
    Ok(Json(Page { items: with_newest_versions(&app, &rows).await?, next }))
}

/// Get an app
#[utoipa::path(
    get, path = "/v1/apps/{app}", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id")),
    responses((status = 200, body = Shown)),
)]
pub async fn show(State(app): State<App>, Path(name): Path<String>) -> ApiResult<Shown> {
    let id = apps::find(&app, &name).await?;
    let row = views::apps::app(&app.pool, id).await?;
    let row = row.ok_or_else(|| Problem::not_found(format!("the app {name:?}")))?;
    let app = with_newest_versions(&app, &[row]).await?.pop();
    app.map(Json).ok_or_else(|| Problem::not_found(format!("the app {name:?}")))
}

/// Converts rows of apps. Reads the newest versions and the install counts in two statements, for
/// any number of rows.
async fn with_newest_versions(
    app: &App,
    rows: &[views::apps::Row],
) -> Result<Vec<Shown>, sqlx::Error> {
    let newest = rows.iter().map(|row| (row.app, row.version));
    let newest = views::config_versions::versions(&app.pool, newest).await?;
    let counts = views::installs::counts(&app.pool, rows.iter().map(|row| row.app)).await?;
    let to_wire = |row: &views::apps::Row| {
        let installs = counts.get(&row.app).copied().unwrap_or_default();
        show::app(row, newest.get(&(row.app, row.version)), installs)
    };
    Ok(rows.iter().map(to_wire).collect())
}

/// List the config versions of an app, newest first
#[utoipa::path(
    get, path = "/v1/apps/{app}/versions", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id"), PageQuery),
    responses((status = 200, body = Page<ConfigVersion>)),
)]
pub async fn versions(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(part): Query<PageQuery>,
) -> ApiResult<Page<ConfigVersion>> {
    let id = apps::find(&app, &name).await?;
    let part = PageRequest::of(part.limit, part.cursor)?;
    let rows = views::config_versions::page(&app.pool, id, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.published.config_version);
    let mut lookup = Lookup::new(&app);
    lookup.for_actors(rows.iter().map(|row| &row.by)).await?;
    let items = rows.iter().map(|row| show::version(&lookup, row)).collect();
    Ok(Json(Page { items, next }))
}

/// Get a config version with its parsed configuration
#[utoipa::path(
    get, path = "/v1/apps/{app}/versions/{version}", tag = "apps",
    params(
        ("app" = String, Path, description = "The app's name or id"),
        ("version" = u32, Path, description = "Version number"),
    ),
    responses((status = 200, body = ConfigVersionDetail)),
)]
pub async fn version(
    State(app): State<App>,
    Path((name, number)): Path<(String, u32)>,
) -> ApiResult<ConfigVersionDetail> {
    let id = apps::find(&app, &name).await?;
    let state = app.engine.load::<AppState>(id).await?;
    let read = config(&app, &state, number).await?;
    let missing = || Problem::not_found(format!("version {number} of {name}"));
    let rows = views::config_versions::versions(&app.pool, [(id, number)]).await?;
    let row = rows.get(&(id, number)).ok_or_else(missing)?;
    let mut lookup = Lookup::new(&app);
    lookup.for_actors([&row.by]).await?;
    let version = show::version(&lookup, row);
    let name = state.name.clone().unwrap_or_default();
    let inspected = move || {
        let tree = read.tree.app();
        app_config::inspect(&name, &tree, &app_config::survey(&tree, &read.app.plugins))
    };
    // Parsing a large directory would block the async runtime.
    let config = tokio::task::spawn_blocking(inspected).await.map_err(Problem::internal)?;
    Ok(Json(ConfigVersionDetail { version, config }))
}

/// Compare two config versions, and show the impact of the later one on installs
#[utoipa::path(
    get, path = "/v1/apps/{app}/diff", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id"), DiffQuery),
    responses((status = 200, body = Diff)),
)]
pub async fn diff(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(which): Query<DiffQuery>,
) -> ApiResult<Diff> {
    let id = apps::find(&app, &name).await?;
    let state = app.engine.load::<AppState>(id).await?;
    let to = which.to.unwrap_or(state.version());
    let from = which.from.unwrap_or(to.saturating_sub(1));
    let after = config(&app, &state, to).await?;
    let published = published(&state, to)?;
    let reach = match &which.install {
        Some(install) => {
            let of = super::filter::install(&app, install).await?;
            if app.engine.load::<Install>(of).await?.app != Some(id) {
                return Err(Problem::not_found(format!("the install {install:?} of this app")));
            }
            (vec![impact::of_install(&app, of, which.inputs_of, &after, published).await?], 0)
        }
        None if which.inputs_of.is_some() => {
            let detail = "inputs_of requires install; pass the install that has the inputs";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        None => impact::impact(&app, id, &after, published).await?,
    };
    let diff = match from {
        0 => show::diff(None, Some(to), &after.app),
        _ => {
            let before = config(&app, &state, from).await?;
            show::diff(Some((from, &before.app)), Some(to), &after.app)
        }
    };
    let diff = Diff { ignored_settings: show::ignored_settings(&after), ..diff };
    Ok(Json(show::with_impact(diff, reach)))
}

async fn config(app: &App, state: &AppState, version: u32) -> Result<Arc<Config>, Problem> {
    app.configs.get(&app.pool, &published(state, version)?.bundle).await
}
