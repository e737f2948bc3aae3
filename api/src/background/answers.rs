//! Keeps what commands with an idempotency key were answered, many at a time. A repeated command waits a moment for the
//! answer of the first one, and where it was lost with a server, the log says what was done.
use sqlx::PgPool;
use tracing::warn;

use super::unhurried::{Left, Unhurried};
use crate::state::App;

/// Where answers are left to be kept.
pub type Answers = Unhurried<Answer>;

/// What a command was answered, without what is secret in it.
pub struct Answer {
    /// Whose key.
    pub principal: String,
    /// Which key.
    pub key: String,
    /// The answer, as JSON.
    pub said: String,
}

/// Leave this answer, or keep it at once where too many wait.
pub async fn keep(app: &App, answer: Answer) {
    if let Err(answer) = app.answers.leave(answer) {
        write(&app.pool, &[answer]).await;
    }
}

/// Keep what is left until the server stops, and then the rest.
pub async fn run(app: App, left: Left<Answer>) {
    while let Some(some) = left.next(&app.stopping).await {
        write(&app.pool, &some).await;
    }
}

/// Caches responses. A response to a command before a shredding may contain erased data, so it is not cached.
async fn write(pool: &PgPool, some: &[Answer]) {
    let column = |of: fn(&Answer) -> &str| some.iter().map(of).collect::<Vec<_>>();
    let kept = sqlx::query(
        "with unhurried as (select set_config('synchronous_commit', 'off', true)) \
         update log_command c set response = u.said::json \
         from unhurried, unnest($1::text[], $2::text[], $3::text[]) as u(principal, key, said) \
         where c.principal = u.principal and c.idempotency_key = u.key and c.response is null \
           and c.last_position > (select coalesce(max(fence), 0) from subject_key)",
    )
    .bind(column(|answer| &answer.principal))
    .bind(column(|answer| &answer.key))
    .bind(column(|answer| &answer.said))
    .execute(pool)
    .await;
    if let Err(reason) = kept {
        let number = some.len();
        warn!(number, reason = %reason, "{number} answers are not kept for who asks again, who is told what the log says: {reason}");
    }
}
