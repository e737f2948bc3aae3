//! What the dispatcher knows is made again when the server starts.
use std::sync::Arc;

use domain::{decider::Timestamp, ids::JobId, job::Job};
use event_log::{EventLog, Stored};
use futures::{TryStreamExt as _, stream};
use projections::views::job_queue;
use sqlx::{PgPool, Row as _};
use tokio::sync::broadcast::Receiver;

use super::{Dispatch, board::Tracked, takeover};
use crate::problem::Problem;

/// How many jobs are read at a time.
const AT_ONCE: usize = 8;

/// Fill the desk from the database. Answers from where on to [`follow`](super::follow) the log.
///
/// # Errors
/// If the database does not answer.
pub async fn load(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
) -> Result<(Receiver<Arc<[Stored]>>, u64), Problem> {
    // First where to go on from, then what is there: what comes in between is met twice, and the
    // sequence of each stream tells.
    let (tail, position) = (log.tail(), log.position());
    let open = [job_queue::all_waiting(pool).await?, job_queue::all_held(pool).await?].concat();
    let open = open.into_iter().map(|row| (row.job, row.position, row.queued_at));
    let ended = unsealed(dispatch, log, pool).await?;
    let ended = ended.into_iter().map(|(job, at)| (job, 0, at));
    stream::iter(open.chain(ended).map(Ok))
        .try_for_each_concurrent(AT_ONCE, |(job, order, queued_at)| {
            put(dispatch, log, job, order, queued_at)
        })
        .await?;
    takeover::own(dispatch, log, pool).await?;
    Ok((tail, position))
}

async fn put(
    dispatch: &Dispatch,
    log: &EventLog,
    job: JobId,
    order: u64,
    queued_at: Timestamp,
) -> Result<(), Problem> {
    let loaded = log.reload::<Job>(&job.to_string()).await?;
    // A full lease, and more: nobody could renew it while no server was there.
    let now = dispatch.moment();
    let heard = now.instant + dispatch.timing().takeover;
    let state = (*loaded.state).clone();
    let tracked = Tracked::loaded(state, loaded.version, order, queued_at, (heard, now));
    dispatch.desk().board.put(job, tracked);
    Ok(())
}

/// Jobs that ended lately: their logs may still be on their way.
async fn unsealed(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
) -> Result<Vec<(JobId, Timestamp)>, Problem> {
    let now = dispatch.moment().wall;
    let since = log.position_at(now - dispatch.timing().seal * 2).await?;
    let rows = sqlx::query(
        "select aggregate_id from log_event where position > $1 and event_type in \
         ('job.succeeded', 'job.failed', 'job.cancelled', 'job.lost')",
    )
    .bind(since.cast_signed())
    .fetch_all(pool)
    .await?;
    let ids = rows.iter().map(|row| row.try_get::<String, _>(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(ids.iter().filter_map(|id| Some((id.parse().ok()?, now))).collect())
}
