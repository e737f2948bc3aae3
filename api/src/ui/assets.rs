//! Style sheet and scripts. Their names contain their digests, so a browser stores them forever.
//!
//! Only assets are compressed. A page contains the token of its forms beside text of other parties,
//! so the length of a compressed page could reveal the token.
use std::io::Write as _;

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use dashboard::assets::Asset;
use flate2::{Compression, write::GzEncoder};

use crate::state::App;

pub(super) fn routes() -> Router<App> {
    dashboard::assets::all().iter().fold(Router::new(), |routes, asset| {
        let compressed = gzip(asset.bytes);
        let respond = move |headers: HeaderMap| async move {
            response(asset, compressed.filter(|_| accepts_gzip(&headers)))
        };
        routes.route(&asset.path, get(respond))
    })
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
