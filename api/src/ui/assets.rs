//! Style sheet and scripts. Their names contain their digests, so a browser stores them forever.
//!
//! Only assets are compressed. A page contains the token of its forms beside text of other parties,
//! so the length of a compressed page could reveal the token.
use std::io::Write as _;

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use dashboard::assets::Asset;
use flate2::{Compression, write::GzEncoder};

use crate::state::App;

pub(super) fn routes() -> Router<App> {
    let other_build = Router::new().route("/ui/assets/{asset}", get(of_other_build));
    dashboard::assets::all().iter().fold(other_build, |routes, asset| {
        let compressed = gzip(asset.bytes);
        let respond = move |headers: HeaderMap| async move {
            response(asset, compressed.filter(|_| accepts_gzip(&headers)))
        };
        routes.route(&asset.path, get(respond))
    })
}

/// Returns the asset of this build for the address that another build has. During a rolling upgrade, a
/// page of one server requests its assets from another one. A browser must not store the response.
async fn of_other_build(Path(requested): Path<String>) -> Response {
    let is_requested = |asset: &&Asset| {
        requested
            .strip_suffix(asset.name)
            .and_then(|digest| digest.strip_suffix('-'))
            .is_some_and(is_digest)
    };
    match dashboard::assets::all().iter().find(is_requested) {
        Some(asset) => {
            let headers =
                [(header::CONTENT_TYPE, asset.content_type), (header::CACHE_CONTROL, "no-store")];
            (headers, asset.bytes).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn response(asset: &'static Asset, compressed: Option<Bytes>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::VARY, "accept-encoding"),
    ];
    match compressed {
        Some(bytes) => (headers, [(header::CONTENT_ENCODING, "gzip")], bytes).into_response(),
        None => (headers, asset.bytes).into_response(),
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|of| of.to_str().ok());
    // A coding with a weight is rare. The uncompressed asset suits every client.
    values.flat_map(|value| value.split(',')).any(|coding| coding.trim() == "gzip")
}

/// Compresses an asset. Returns `None` if the encoder fails.
fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
