//! Change that an idempotency key names.
use event_log::IdempotencyKey;

use crate::{problem::Problem, state::App};

/// Returns the last position of the change with this key and content, if it was committed.
pub(crate) async fn position(app: &App, key: &IdempotencyKey) -> Result<Option<u64>, Problem> {
    let select = "select last_position from log_command \
                  where principal = $1 and idempotency_key = $2 and expires_at > $3 and request_hash = $4";
    let position: Option<i64> = sqlx::query_scalar(select)
        .bind(&key.principal)
        .bind(&key.key)
        .bind(app.now())
        .bind(&key.request_hash[..])
        .fetch_optional(&app.pool)
        .await?;
    Ok(position.map(i64::unsigned_abs))
}
