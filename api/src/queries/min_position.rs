//! Waits until a response includes every change up to a position.
use std::time::Duration;

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Timeout for a position that the request names.
const POSITION_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the head of the log, if the request names no position.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until the projections have processed a position. Without one, waits briefly for the
/// current head; a read then returns what the projections have.
///
/// # Errors
/// 503 if the projections lag behind the position.
pub(crate) async fn wait(app: &App, position: Option<u64>) -> Result<(), Problem> {
    let Some(wanted) = position else {
        let _ = app.projections.wait_for(app.engine.log().position(), HEAD_TIMEOUT).await;
        return Ok(());
    };
    app.projections.wait_for(wanted, POSITION_TIMEOUT).await.map_err(|behind| {
        let detail = format!(
            "cannot read the projections at position {wanted}: they are at position {}; try again",
            behind.at
        );
        Problem::new(Code::ProjectionLag, detail).retry_after(1)
    })
}
