//! Streams a log record by record until it is finalized.
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use domain::{
    ids::{ExecutionId, JobId},
    job::Job,
};
use futures::Stream;
use serde::Deserialize;

use super::CHUNK;
use crate::{extract::Caller, logs::LineCursor, problem::Problem, state::App};

/// Interval at which the state of an idle log is checked.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Number of a record. The other members are not parsed.
#[derive(Deserialize)]
struct RecordNumber {
    n: u64,
}

/// Byte offset of the first record after number `n`.
pub(super) async fn offset_after(
    app: &App,
    execution: ExecutionId,
    n: u64,
) -> Result<u64, Problem> {
    let index = app.logs.index(execution).await?;
    let (mark, end) = (index.mark(n), index.end());
    drop(index);
    let mut cursor = LineCursor::at(mark.offset);
    while let Some((mut at, lines)) = app.logs.lines(execution, &mut cursor, end).await? {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if serde_json::from_slice(line).is_ok_and(|of: RecordNumber| of.n > n) {
                return Ok(at);
            }
            at += line.len() as u64;
        }
    }
    Ok(end)
}

/// Item of a followed log.
pub(crate) enum LogUpdate {
    /// A record with its number, as the runner sent it.
    Record(u64, Bytes),
    /// The log is complete.
    Finalized,
}

/// Streams the records of an attempt after number `after`, as they arrive. If the token becomes
/// invalid, the stream ends with an error.
pub(crate) async fn follow(
    app: App,
    caller: Caller,
    (job, attempt): (JobId, u32),
    after: u64,
) -> Result<impl Stream<Item = Result<LogUpdate, Problem>>, Problem> {
    caller.authorize("GET", "/v1/jobs/{job}/attempts/{attempt}/log")?;
    let execution = super::execution(&app, job, attempt).await?;
    let mut have = app.logs.follow(execution);
    let mut at = if after == 0 { 0 } else { offset_after(&app, execution, after).await? };
    let tailed = TailGuard::of(&app, job);
    Ok(async_stream::stream! {
        let _tailed = tailed;
        let mut lines = Lines::default();
        loop {
            if let Err(refused) = caller.recheck(&app) {
                yield Err(refused);
                break;
            }
            // Checks for finalization before it reads the length. Records that arrived before the
            // finalization are then sent before the end.
            let finalized = is_finalized(&app, job, execution).await;
            let Ok(length) = app.logs.length(execution).await else { break };
            while at < length {
                let read = app.logs.read(execution, at..length.min(at + CHUNK)).await;
                let Ok(chunk) = read else { break };
                if chunk.is_empty() {
                    break;
                }
                at += chunk.len() as u64;
                lines.buffer.extend_from_slice(&chunk);
                while let Some((n, line)) = lines.next() {
                    yield Ok(LogUpdate::Record(n, line));
                }
            }
            if finalized {
                yield Ok(LogUpdate::Finalized);
                break;
            }
            tokio::select! {
                moved = have.changed() => {
                    if moved.is_err() {
                        tokio::time::sleep(IDLE_CHECK).await;
                    }
                }
                () = tokio::time::sleep(IDLE_CHECK) => {}
                () = app.stopping.cancelled() => break,
            }
        }
    })
}

/// Streams an item after each growth of an attempt's log and after its end, at most one per interval.
/// If the token becomes invalid, the stream ends.
pub(crate) async fn growth(
    app: App,
    caller: Caller,
    (job, attempt): (JobId, u32),
    interval: Duration,
) -> Result<impl Stream<Item = ()>, Problem> {
    caller.authorize("GET", "/v1/jobs/{job}/attempts/{attempt}/log")?;
    let execution = super::execution(&app, job, attempt).await?;
    let mut have = app.logs.follow(execution);
    let tailed = TailGuard::of(&app, job);
    Ok(async_stream::stream! {
        let _tailed = tailed;
        let mut known = None;
        while caller.recheck(&app).is_ok() {
            let finalized = is_finalized(&app, job, execution).await;
            let Ok(length) = app.logs.length(execution).await else { break };
            if known.replace(length) != Some(length) {
                yield ();
                tokio::time::sleep(interval).await;
            }
            if finalized {
                yield ();
                break;
            }
            tokio::select! {
                moved = have.changed() => {
                    if moved.is_err() {
                        tokio::time::sleep(IDLE_CHECK).await;
                    }
                }
                () = tokio::time::sleep(IDLE_CHECK) => {}
                () = app.stopping.cancelled() => break,
            }
        }
    })
}

/// Registers a reader of the job's log until the guard is dropped. Meanwhile, the runner sends log
/// bytes more often.
struct TailGuard {
    app: App,
    job: JobId,
}

impl TailGuard {
    fn of(app: &App, job: JobId) -> TailGuard {
        app.dispatch.set_log_reader(job, true);
        TailGuard { app: app.clone(), job }
    }
}

impl Drop for TailGuard {
    fn drop(&mut self) {
        self.app.dispatch.set_log_reader(self.job, false);
    }
}

/// Returns true if the log is finalized, so that no bytes can follow.
async fn is_finalized(app: &App, job: JobId, execution: ExecutionId) -> bool {
    let loaded = app.engine.load::<Job>(job).await;
    loaded.is_ok_and(|job| job.logs.iter().any(|log| log.execution == execution))
}

/// Splits chunks of arbitrary size into lines.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
}

impl Lines {
    fn next(&mut self) -> Option<(u64, Bytes)> {
        loop {
            let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
            let line = self.buffer.split_to(end).freeze();
            self.buffer.advance(1);
            // Skips lines without a record number, because they are not log records.
            if let Ok(RecordNumber { n }) = serde_json::from_slice(&line) {
                return Some((n, line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_complete_for_any_chunk_boundaries() {
        let mut lines = Lines::default();
        let mut numbers = Vec::new();
        for chunk in ["{\"n\":1,\"m\":\"a\"}\n{\"n\"", ":2,\"m\":\"", "b\"}\n", "{\"n\":3"] {
            lines.buffer.extend_from_slice(chunk.as_bytes());
            while let Some((n, _)) = lines.next() {
                numbers.push(n);
            }
        }
        assert_eq!(numbers, [1, 2]);
    }
}
