//! `/v1/apps`: sync a directory, list apps and versions, compare versions.
use axum::{
    Json,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use schemas::control::{
    Page, PageQuery,
    apps::{
        App as Shown, BuildRequested, ConfigVersion, ConfigVersionDetail, Diff, DiffQuery,
        SyncQuery, SyncReport,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{MAX_BUNDLE_BYTES, change_request::ChangeRequest};
use crate::{
    execute::Done,
    extract::{Caller, Path, Query, Raw},
    problem::{ApiResult, Code, Problem},
    queries::{apps as queries, show},
    state::App,
    usecases::{apps, plugins},
};

/// Returns the route of `sync`, which needs a higher limit for its body.
pub(super) fn large_body_routes() -> OpenApiRouter<App> {
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
pub(super) async fn sync(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(how): Query<SyncQuery>,
    headers: HeaderMap,
    ChangeRequest { call, .. }: ChangeRequest,
    Raw(body): Raw,
) -> ApiResult<SyncReport> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind != Some("application/zstd") {
        let detail = "cannot read the bundle: the content type of the body is not application/zstd; send application/zstd, or use `stead apps sync`";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let tar = decompress(body).await?;
    if how.against.is_some() && !how.dry_run {
        return Err(Problem::invalid_field(
            "against",
            "requires dry_run=true",
            "send dry_run=true or omit against",
        ));
    }
    if how.resolve && how.dry_run {
        return Err(Problem::invalid_field(
            "resolve",
            "is not possible with dry_run=true",
            "omit resolve or dry_run",
        ));
    }
    let meant = match how.dry_run {
        true => apps::SyncOptions::DryRun { against: how.against },
        false => apps::SyncOptions::Publish { resolve: how.resolve },
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
                format!("cannot read the bundle: it is not valid zstd: {e}; compress it with zstd"),
            )
        };
        let decoder = zstd::Decoder::new(body.as_ref()).map_err(wrong)?;
        let mut tar = Vec::new();
        decoder.take(MAX_BUNDLE_BYTES as u64 + 1).read_to_end(&mut tar).map_err(wrong)?;
        if tar.len() > MAX_BUNDLE_BYTES {
            let detail = format!(
                "cannot read the bundle: it exceeds the limit of {MAX_BUNDLE_BYTES} bytes without compression; remove files \
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
        impact,
    } = done.value;
    let changed = plugins::changed_publishers(before.as_deref(), &config);
    let before = before_version.zip(before.as_deref());
    let after = (!dry_run).then_some(version);
    let before = before.map(|(version, config)| (version, &config.app));
    let diff = show::with_impact(show::diff(before, after, &config.app), impact);
    let builds = builds.into_iter().map(|(component, id)| BuildRequested { id, component });
    let diagnostics = config.warnings.iter().chain(&changed).map(show::diagnostic).collect();
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

/// List apps, oldest first
#[utoipa::path(
    get, path = "/v1/apps", tag = "apps", params(PageQuery),
    responses((status = 200, body = Page<Shown>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<Shown>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get an app
#[utoipa::path(
    get, path = "/v1/apps/{app}", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id")),
    responses((status = 200, body = Shown)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Shown> {
    queries::get(&app, &caller, &name).await.map(Json)
}

/// List the config versions of an app, newest first
#[utoipa::path(
    get, path = "/v1/apps/{app}/versions", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id"), PageQuery),
    responses((status = 200, body = Page<ConfigVersion>)),
)]
pub(super) async fn versions(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<ConfigVersion>> {
    queries::versions(&app, &caller, &name, query).await.map(Json)
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
pub(super) async fn version(
    State(app): State<App>,
    caller: Caller,
    Path((name, number)): Path<(String, u32)>,
) -> ApiResult<ConfigVersionDetail> {
    queries::version(&app, &caller, (&name, number)).await.map(Json)
}

/// Compare two config versions, and show the impact of the later one on installs
#[utoipa::path(
    get, path = "/v1/apps/{app}/diff", tag = "apps",
    params(("app" = String, Path, description = "The app's name or id"), DiffQuery),
    responses((status = 200, body = Diff)),
)]
pub(super) async fn diff(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<DiffQuery>,
) -> ApiResult<Diff> {
    queries::diff(&app, &caller, &name, query).await.map(Json)
}
