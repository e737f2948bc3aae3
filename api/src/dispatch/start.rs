//! What the dispatcher knows is made again when the server starts.
use std::sync::Arc;

use chrono::TimeDelta;
use domain::{decider::Timestamp, ids::JobId, job::Job};
use event_log::{EventLog, Stored};
use futures::{TryStreamExt as _, stream};
use projections::views::{
    job_queue,
    timers::{self, Timer},
};
use sqlx::PgPool;
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
    let ended = unsealed(dispatch, pool).await?;
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

/// Jobs whose logs are still on their way, however long no server was there: their timers say so.
async fn unsealed(dispatch: &Dispatch, pool: &PgPool) -> Result<Vec<(JobId, Timestamp)>, Problem> {
    let now = dispatch.moment().wall;
    // All of them, whenever they are due: this server will have to know of them.
    let timers = timers::due(pool, now + TimeDelta::days(365), u32::MAX).await?;
    let seals = timers.into_iter().filter_map(|due| match due.timer {
        Timer::LogFinalization { job, .. } => Some((job, now)),
        Timer::QueueExpiry { .. }
        | Timer::Deadline { .. }
        | Timer::CancelConfirmation { .. }
        | Timer::ApprovalExpiry { .. }
        | Timer::StepRetry { .. } => None,
    });
    Ok(seals.collect())
}
