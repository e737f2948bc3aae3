//! Style sheet and scripts. Their names contain their digests, so a browser stores them forever.
use axum::{Router, http::header, routing::get};

use crate::state::App;

pub(super) fn routes() -> Router<App> {
    dashboard::assets::all().iter().fold(Router::new(), |routes, asset| {
        let headers = [
            (header::CONTENT_TYPE, asset.content_type),
            (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        ];
        routes.route(&asset.path, get(move || async move { (headers, asset.bytes) }))
    })
}
