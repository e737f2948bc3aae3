use std::{panic::AssertUnwindSafe, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;

use super::{headers, panicked};
use crate::{listen::ParkedResponse, state::App};

/// Measures every request by route, method and status, and adds the security headers.
pub(super) async fn measure(
    State((app, https)): State<(App, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_string());
    let route = route.unwrap_or_else(|| "none".into());
    let method = request.method().to_string();
    let (started, parking) =
        (Instant::now(), request.extensions().get::<ParkedResponse>().cloned());
    let counted = move |response: Response| {
        let status = response.status().as_u16();
        app.metrics.observe_request(route, method, status, started.elapsed());
        headers::secure(response, https)
    };
    let response = next.run(request).await;
    // A deferred response is measured when it is ready.
    match parking.and_then(|parking| Some((parking.take()?, parking))) {
        Some((later, parking)) => {
            // The middleware that catches panics does not cover a deferred response.
            let result = AssertUnwindSafe(later).catch_unwind();
            let result = result.map(|handled| handled.unwrap_or_else(panicked));
            parking.defer(result.map(counted).boxed())
        }
        None => counted(response),
    }
}
