//! `min_position`: a reader that was told a position does not read anything older.
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

/// How long a read waits for a position that it names.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for what was written before it arrived, when it names none.
const COURTESY: Duration = Duration::from_secs(2);

/// Waits, bounded, until the views have the position that the reader knows of. Who names none gets what
/// was written before the call, or after a moment what is there.
pub async fn fresh(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.method() != Method::GET {
        return Ok(next.run(request).await);
    }
    let Some(text) = wanted(request.uri().query()) else {
        let _ = app.views.wait_for(app.engine.log().position(), COURTESY).await;
        return Ok(next.run(request).await);
    };
    let refused = || Problem::new(Code::BadRequest, "min_position is not a number");
    let wanted: u64 = text.parse().map_err(|_| refused())?;
    if let Err(behind) = app.views.wait_for(wanted, PATIENCE).await {
        let detail = format!("position {wanted} is not here yet; {} is", behind.at);
        return Err(Problem::new(Code::ProjectionLag, detail).retry_after(1));
    }
    Ok(next.run(request).await)
}

fn wanted(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("min_position="))
}

#[cfg(test)]
mod tests {
    use super::wanted;

    #[test]
    fn only_its_own_parameter_is_read() {
        assert_eq!(wanted(Some("a=1&min_position=7&b=2")), Some("7"));
        assert_eq!(wanted(Some("xmin_position=7")), None);
        assert_eq!(wanted(None), None);
    }
}
