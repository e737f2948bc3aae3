//! Reads the history between two positions from the log.
//!
//! The history is read from the log only: the events of the install, of its runs and of their jobs.
//! Each stream is read through an index. A history that is too long for one response states the
//! position up to which it is complete.
use domain::{
    history::{self, History, build_history},
    ids::{InstallId, RunId},
    install::Install,
    recorded::RecordedEvent,
    run::Run,
};
use event_log::{EventLog, LogError};

use crate::event::streams;

/// Maximum number of events of one aggregate type in one response.
pub const EVENTS: u32 = 10_000;
/// Types of job events that are also read from before the range. They contain the work, the runner,
/// the result and the resolution of a job.
const JOB_CONTEXT_EVENTS: [&str; 7] = [
    "job.queued",
    "job.claimed",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.lost",
    "job.outcome_resolved",
];

/// Returns the history of an install after one position and up to another. `only` restricts the
/// history to one run.
///
/// # Errors
/// [`LogError`].
pub async fn of_install(
    log: &EventLog,
    install: InstallId,
    (from, to): (u64, u64),
    only: Option<RunId>,
) -> Result<History, LogError> {
    let before = log.load_as_of::<Install>(&install.to_string(), from).await?;
    let mut read = Read { log, from, until: to };
    let own = read.streams("install", &[install.to_string()], &[]).await?;
    let mut runs: Vec<RunId> = before.state.runs.keys().copied().collect();
    runs.extend(own.iter().filter_map(history::admitted_run));
    if let Some(only) = only {
        runs = vec![only];
    }
    // The runs are read from their start: requests and approvals from before the range explain
    // later jobs.
    let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let all = Read { log, from: 0, until: read.until };
    let (of_runs, cut) = all.whole("run", &ids).await?;
    read.until = cut;
    let jobs: Vec<String> =
        of_runs.iter().filter_map(history::started_job).map(|id| id.to_string()).collect();
    let of_jobs = read.streams("job", &jobs, &JOB_CONTEXT_EVENTS).await?;
    let mut events = [own, of_runs, of_jobs].concat();
    events.retain(|event| event.position <= read.until);
    events.sort_by_key(|event| event.position);
    let mut history = build_history(&before.state, from, &events);
    if let Some(only) = only {
        history.runs.retain(|run| run.run == only);
        history.other_events.clear();
    }
    Ok(History { complete_through: read.until, ..history })
}

/// Returns the history of a run, including its changes to the install.
///
/// # Errors
/// [`LogError`].
pub async fn of_run(
    log: &EventLog,
    run: RunId,
    (from, to): (u64, u64),
) -> Result<History, LogError> {
    let state = log.load_as_of::<Run>(&run.to_string(), to).await?;
    match &state.state.request {
        Some(request) => of_install(log, request.install, (from, to), Some(run)).await,
        None => Ok(History { runs: vec![], other_events: vec![], complete_through: to }),
    }
}

/// Returns the history of one stream.
///
/// # Errors
/// [`LogError`].
pub async fn of_stream(
    log: &EventLog,
    (aggregate, id): (&str, &str),
    (from, to): (u64, u64),
) -> Result<History, LogError> {
    let mut read = Read { log, from, until: to };
    let events = read.streams(aggregate, &[id.to_owned()], &[]).await?;
    let others = events.iter().map(history::summary).collect();
    Ok(History { runs: vec![], other_events: others, complete_through: read.until })
}

struct Read<'a> {
    log: &'a EventLog,
    from: u64,
    /// Last position up to which every event was read. If one read reaches its limit, the whole
    /// response ends there.
    until: u64,
}

impl Read<'_> {
    /// Returns the events of these streams within the range, and earlier events of the types in
    /// `older`.
    async fn streams(
        &mut self,
        aggregate: &str,
        ids: &[String],
        older: &[&str],
    ) -> Result<Vec<RecordedEvent>, LogError> {
        let mut connection = self.log.pool().acquire().await?;
        let (range, of) = ((self.from, self.until), (aggregate, ids));
        let found =
            streams::many(&mut connection, &self.log.into(), of, range, (older, EVENTS)).await?;
        if let Some((_, position)) = found.last.filter(|_| found.full) {
            self.until = position;
        }
        Ok(found.events)
    }

    /// Returns all events of these streams, and the position up to which they are complete.
    async fn whole(
        mut self,
        aggregate: &str,
        ids: &[String],
    ) -> Result<(Vec<RecordedEvent>, u64), LogError> {
        let events = self.streams(aggregate, ids, &[]).await?;
        Ok((events, self.until))
    }
}
