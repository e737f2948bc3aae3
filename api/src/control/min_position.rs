//! `min_position`: a client names a position, and the response includes every change up to it.
use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};

use crate::{
    problem::{Code, Problem},
    queries::min_position,
    state::App,
};

/// Waits until the projections have processed `min_position`. Without the parameter, waits briefly
/// for the current head and then reads the current rows.
pub(crate) async fn wait_for_min_position(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.method() != Method::GET {
        return Ok(next.run(request).await);
    }
    let refused = |_| {
        Problem::new(
            Code::BadRequest,
            "invalid min_position: it is not a number; send a position of the log",
        )
    };
    let position =
        min_position_param(request.uri().query()).map(str::parse).transpose().map_err(refused)?;
    min_position::wait(&app, position).await?;
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
