//! Latest signed head of a runner's journal. The head lets the customer detect a truncated journal.
use domain::{ids::RunnerId, runner as aggregate};
use ed25519_dalek::VerifyingKey;
use proof::dsse::{self, Envelope};
use schemas::{
    control::runners::ReceivedJournalHead,
    runner::{JOURNAL_HEAD_TYPE, JournalHead},
};
use sqlx::Row as _;

use crate::{problem::Problem, state::App};

/// Maximum size of a stored head, in bytes.
const HEAD_BYTES: usize = 4 * 1024;
/// Maximum length of a journal id, in bytes.
const NAME_BYTES: usize = 64;
/// Maximum number of journals per runner. A runner starts another journal when it loses its
/// directory.
const MAX_JOURNALS: i64 = 8;

/// Stores a journal head that the runner has signed. An invalid head does not fail the request that
/// contains it, because the result of a job must not be lost.
pub(crate) async fn store(app: &App, runner: RunnerId, head: &Envelope) {
    if let Err(why) = verify_and_store(app, runner, head).await {
        tracing::warn!(runner.id = %runner, error = %why, "Cannot store the head of a journal");
    }
}

async fn verify_and_store(app: &App, runner: RunnerId, envelope: &Envelope) -> Result<(), String> {
    let known = app.engine.load::<aggregate::Runner>(runner).await;
    let known = known.map_err(|problem| problem.detail)?;
    let key = known.key().and_then(|key| hex::decode(key).ok()?.try_into().ok());
    let key = key.and_then(|key| VerifyingKey::from_bytes(&key).ok());
    let keys: Vec<_> = key.into_iter().collect();
    let payload = dsse::verify_as(JOURNAL_HEAD_TYPE, envelope, &keys).map_err(text)?;
    let head: JournalHead = serde_json::from_slice(&payload).map_err(text)?;
    let json = serde_json::to_string(envelope).map_err(text)?;
    if head.runner != runner {
        return Err(format!("the head belongs to {}, not to {runner}", head.runner));
    }
    if head.version != 1 {
        return Err(format!(
            "the version of the head is {}; this server supports version 1",
            head.version
        ));
    }
    if json.len() > HEAD_BYTES || head.journal_id.len() > NAME_BYTES {
        return Err(format!(
            "the head has {} bytes and a journal id of {} bytes; the limits are {HEAD_BYTES} and {NAME_BYTES}",
            json.len(),
            head.journal_id.len()
        ));
    }
    let entries = i64::try_from(head.entries).map_err(text)?;
    sqlx::query(
        "with old as (delete from runner_journal where runner = $1 and journal_id in ( \
           select journal_id from runner_journal where runner = $1 and journal_id <> $2 \
           order by received_at desc offset $6)) \
         insert into runner_journal as known (runner, journal_id, entries, head, received_at) \
         values ($1, $2, $3, $4::json, $5) \
         on conflict (runner, journal_id) do update set entries = excluded.entries, \
           head = excluded.head, received_at = excluded.received_at \
         where known.entries <= excluded.entries",
    )
    .bind(runner.to_string())
    .bind(&head.journal_id)
    .bind(entries)
    .bind(json)
    .bind(app.now())
    .bind(MAX_JOURNALS - 1)
    .execute(&app.pool)
    .await
    .map_err(text)?;
    Ok(())
}

/// Stored journal heads of a runner, the newest first.
pub(crate) async fn heads(
    app: &App,
    runner: RunnerId,
) -> Result<Vec<ReceivedJournalHead>, Problem> {
    let rows = sqlx::query(
        "select journal_id, entries, head::text as head, received_at from runner_journal \
         where runner = $1 order by received_at desc, journal_id desc",
    )
    .bind(runner.to_string())
    .fetch_all(&app.pool)
    .await?;
    let heads = rows.iter().map(|row| {
        let entries: i64 = row.try_get("entries")?;
        let head: String = row.try_get("head")?;
        Ok(ReceivedJournalHead {
            journal_id: row.try_get("journal_id")?,
            entries: entries.cast_unsigned(),
            received_at: row.try_get("received_at")?,
            head: serde_json::from_str(&head).map_err(Problem::internal)?,
        })
    });
    heads.collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
