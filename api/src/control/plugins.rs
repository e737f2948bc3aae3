//! `/v1/plugins`: upload, publish and list plugins.
use axum::{
    Json,
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
};
use domain::digest::Digest;
use schemas::control::{
    Page, PageQuery,
    plugins::{Plugin, PluginPublished, PublishPlugin},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::change_request::ChangeRequest;
use crate::{
    extract::{self, Caller, NoIdempotencyKey, Path, Query},
    problem::{ApiResult, Code, Problem},
    queries::plugins as queries,
    registry::ArtifactError,
    state::App,
    usecases::plugins,
};

/// Returns the route of `blob`, whose body is limited by `--max-blob-bytes`.
pub(super) fn large_body_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(blob)).layer(DefaultBodyLimit::disable())
}

/// List plugins by name
#[utoipa::path(
    get, path = "/v1/plugins", tag = "plugins", params(PageQuery),
    responses((status = 200, body = Page<Plugin>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<Plugin>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get a plugin with its versions
#[utoipa::path(
    get, path = "/v1/plugins/{plugin}", tag = "plugins",
    params(("plugin" = String, Path, description = "The plugin's name")),
    responses((status = 200, body = Plugin)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Plugin> {
    queries::get(&app, &caller, &name).await.map(Json)
}

/// Store a blob of a plugin's artifact under its digest: an index, a manifest or a layer
#[utoipa::path(
    put, path = "/v1/plugins/{plugin}/blobs/{digest}", tag = "plugins",
    params(
        ("plugin" = String, Path, description = "The plugin's name"),
        ("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204)),
)]
pub(super) async fn blob(
    State(app): State<App>,
    Path((name, digest)): Path<(String, Digest)>,
    _: NoIdempotencyKey,
    _: ChangeRequest,
    body: Body,
) -> Result<StatusCode, Problem> {
    let repository = plugins::repository(&name)?;
    app.registry.store(&repository, &digest, body).await.map_err(|error| match error {
        ArtifactError::Layout(oci_layout::LayoutError::WrongDigest { .. }) => Problem::new(
            Code::DigestMismatch,
            "cannot store the blob: its bytes do not match the digest in the path; send the bytes of that digest",
        ),
        ArtifactError::Layout(oci_layout::LayoutError::TooLarge { limit }) => Problem::new(
            Code::TooLarge,
            format!(
                "cannot store the blob: it exceeds the limit of {limit} bytes; send a smaller executable, or start \
                 the server with a higher --max-blob-bytes"
            ),
        ),
        ArtifactError::BodyEnded(_) => Problem::new(Code::BadRequest, error.to_string()),
        ArtifactError::Layout(_)
        | ArtifactError::Io { .. }
        | ArtifactError::Vendor(_)
        | ArtifactError::Manifest(_) => {
            Problem::internal(error)
        }
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// Publish an uploaded artifact as a version of a plugin
///
/// If the version has this artifact already, nothing changes and `unchanged` is true. Config
/// versions that are published later use the plugin for components of its type.
#[utoipa::path(
    post, path = "/v1/plugins/{plugin}", tag = "plugins", request_body = PublishPlugin,
    params(("plugin" = String, Path, description = "The plugin's name")),
    responses((status = 200, body = PluginPublished)),
)]
pub(super) async fn publish(
    State(app): State<App>,
    Path(name): Path<String>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<PublishPlugin>,
) -> ApiResult<PluginPublished> {
    let PublishPlugin { digest, publisher } = body;
    let done = plugins::publish(&app, &call, &name, &digest, &publisher).await?;
    let version = done.value;
    Ok(Json(PluginPublished {
        name: version.name,
        version: version.version,
        digest: version.digest,
        platforms: version.platforms,
        publisher: version.publisher,
        unchanged: done.events == 0,
        position: done.position,
    }))
}
