//! Change that an idempotency key names.
use crate::{problem::Problem, state::App};

/// Returns the last position of the change with this key, if it was committed.
pub(crate) async fn position(
    app: &App,
    principal: &str,
    key: &str,
) -> Result<Option<u64>, Problem> {
    let select = "select last_position from log_command \
                  where principal = $1 and idempotency_key = $2 and expires_at > $3";
    let position: Option<i64> = sqlx::query_scalar(select)
        .bind(principal)
        .bind(key)
        .bind(app.now())
        .fetch_optional(&app.pool)
        .await?;
    Ok(position.map(i64::unsigned_abs))
}
