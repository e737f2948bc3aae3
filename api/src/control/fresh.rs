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

/// How long a read waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits, bounded, until this server has the position that the reader knows of.
pub async fn fresh(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if let (&Method::GET, Some(text)) = (request.method(), wanted(request.uri().query())) {
        let refused = || Problem::new(Code::BadRequest, "min_position is not a number");
        let wanted: u64 = text.parse().map_err(|_| refused())?;
        let log = app.engine.log();
        if tokio::time::timeout(PATIENCE, log.reached(wanted)).await.is_err() {
            let detail = format!("position {wanted} is not here yet; {} is", log.position());
            return Err(Problem::new(Code::Behind, detail).retry_after(1));
        }
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
