//! Rebuilds the dispatch state when the server starts.
use std::sync::Arc;

use chrono::TimeDelta;
use domain::{decider::Timestamp, ids::JobId, job::Job};
use event_log::{EventLog, StoredEvent};
use futures::{TryStreamExt as _, stream};
use projections::views::{
    job_queue,
    timers::{self, Timer},
};
use sqlx::PgPool;
use tokio::sync::broadcast::Receiver;

use super::{Dispatch, job_table::TrackedJob, takeover};
use crate::problem::Problem;

/// Number of jobs to read concurrently.
const MAX_CONCURRENT: usize = 8;

/// Loads the dispatch state from the database. Returns the tail and the position from which to
/// [`follow`](super::follow) the log.
///
/// # Errors
/// The database is unavailable.
pub async fn load(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
) -> Result<(Receiver<Arc<[StoredEvent]>>, u64), Problem> {
    // Takes the position first and reads the jobs afterwards. An event between the two is seen
    // twice, and the sequence of its stream identifies the duplicate.
    let (tail, position) = (log.tail(), log.position());
    let open = [job_queue::all_waiting(pool).await?, job_queue::all_held(pool).await?].concat();
    let open = open.into_iter().map(|row| (row.job, row.position, row.queued_at));
    let ended = jobs_with_open_logs(dispatch, pool).await?;
    let ended = ended.into_iter().map(|(job, at)| (job, 0, at));
    stream::iter(open.chain(ended).map(Ok))
        .try_for_each_concurrent(MAX_CONCURRENT, |(job, order, queued_at)| {
            load_job(dispatch, log, job, order, queued_at)
        })
        .await?;
    takeover::resume_own(dispatch, log, pool).await?;
    Ok((tail, position))
}

async fn load_job(
    dispatch: &Dispatch,
    log: &EventLog,
    job: JobId,
    order: u64,
    queued_at: Timestamp,
) -> Result<(), Problem> {
    let loaded = log.reload::<Job>(&job.to_string()).await?;
    // Grants more than a full lease, because no runner could renew its leases while no server ran.
    let now = dispatch.moment();
    let contact = now.instant + dispatch.timing().takeover;
    let state = (*loaded.state).clone();
    let tracked = TrackedJob::loaded(state, loaded.version, order, queued_at, (contact, now));
    dispatch.state().jobs.insert(job, tracked);
    Ok(())
}

/// Jobs whose logs are not finalized, according to their timers, regardless of the length of the
/// downtime.
async fn jobs_with_open_logs(
    dispatch: &Dispatch,
    pool: &PgPool,
) -> Result<Vec<(JobId, Timestamp)>, Problem> {
    let now = dispatch.moment().wall;
    // All timers regardless of their due time, because this server must watch every one of them.
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
