//! Rebuilds the dispatch state when the server starts.
use std::{collections::HashSet, sync::Arc};

use domain::{decider::Timestamp, ids::JobId, job::Job};
use event_log::{EventLog, StoredEvent};
use futures::{TryStreamExt as _, stream};
use projections::views::{job_queue, timers};
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
/// If a query fails or the events of a job cannot be read.
pub(crate) async fn load(
    dispatch: &Dispatch,
    log: &EventLog,
    pool: &PgPool,
) -> Result<(Receiver<Arc<[StoredEvent]>>, u64), Problem> {
    // Takes the position before it reads the jobs. An event in between is seen twice, and the
    // sequence of its stream identifies the duplicate.
    let (tail, position) = (log.tail(), log.position());
    let open = [job_queue::all_waiting(pool).await?, job_queue::all_held(pool).await?].concat();
    // The log of a requeued job's former execution can be open. Such a job keeps its position in
    // the queue and the time at which it was queued.
    let loaded: HashSet<JobId> = open.iter().map(|row| row.job).collect();
    let open = open.into_iter().map(|row| (row.job, row.position, row.queued_at));
    let mut ended = timers::jobs_with_open_logs(pool).await?;
    ended.retain(|job| !loaded.contains(job));
    let now = dispatch.moment().wall;
    let ended = ended.into_iter().map(|job| (job, 0, now));
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
    // Grants more than a full lease, because no runner could renew its leases while this server was
    // stopped.
    let now = dispatch.moment();
    let contact = now.instant + dispatch.timing().takeover;
    let state = (*loaded.state).clone();
    let tracked = TrackedJob::loaded(state, loaded.version, order, queued_at, (contact, now));
    dispatch.state().jobs.insert(job, tracked);
    Ok(())
}
