//! `min_position`: a client names a position, and the response includes every change up to it.
use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Timeout for a position that the request names.
const POSITION_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the head of the log, if the request names no position.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until the projections have processed `min_position`. Without the parameter, waits briefly
/// for the current head and then reads the current rows.
pub async fn wait_for_min_position(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.method() != Method::GET {
        return Ok(next.run(request).await);
    }
    let Some(text) = min_position_param(request.uri().query()) else {
        let _ = app.projections.wait_for(app.engine.log().position(), HEAD_TIMEOUT).await;
        return Ok(next.run(request).await);
    };
    let refused = || {
        Problem::new(Code::BadRequest, "min_position is not a number; send a position of the log")
    };
    let min_position: u64 = text.parse().map_err(|_| refused())?;
    if let Err(behind) = app.projections.wait_for(min_position, POSITION_TIMEOUT).await {
        let detail = format!(
            "projections are at position {}, behind the requested {min_position}; try again",
            behind.at
        );
        return Err(Problem::new(Code::ProjectionLag, detail).retry_after(1));
    }
    Ok(next.run(request).await)
}

fn min_position_param(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("min_position="))
}

#[cfg(test)]
mod tests {
    use super::min_position_param;

    #[test]
    fn only_its_own_parameter_is_read() {
        assert_eq!(min_position_param(Some("a=1&min_position=7&b=2")), Some("7"));
        assert_eq!(min_position_param(Some("xmin_position=7")), None);
        assert_eq!(min_position_param(None), None);
    }
}
