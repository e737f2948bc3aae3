//! Log bytes of an attempt, as a range of bytes or record by record.
mod follow;
mod page;

use std::ops::Range;

use bytes::Bytes;
use domain::ids::{ExecutionId, JobId};
use futures::Stream;
use projections::views::jobs;
use schemas::control::jobs::LogRecord;

pub(crate) use self::{
    follow::{LogUpdate, follow, growth},
    page::{LogRecords, PageStart},
};

use crate::{extract::Caller, logs::LineCursor, problem::Problem, state::App};

/// Number of log bytes in memory at a time.
const CHUNK: u64 = 1 << 20;

/// Stored part of the log of one attempt.
pub(crate) struct AttemptLog {
    app: App,
    execution: ExecutionId,
    /// Number of stored bytes.
    pub length: u64,
}

/// Returns the log of an attempt.
pub(crate) async fn get(
    app: &App,
    caller: &Caller,
    (job, attempt): (JobId, u32),
) -> Result<AttemptLog, Problem> {
    caller.authorize("GET", "/v1/jobs/{job}/attempts/{attempt}/log")?;
    let execution = execution(app, job, attempt).await?;
    let length = app.logs.length(execution).await?;
    Ok(AttemptLog { app: app.clone(), execution, length })
}

impl AttemptLog {
    /// Returns the offset of the first record after number `n`.
    pub(crate) async fn offset_after(&self, n: u64) -> Result<u64, Problem> {
        follow::offset_after(&self.app, self.execution, n).await
    }

    /// Reads the text of all records, as the job wrote it.
    pub(crate) fn text(self) -> impl Stream<Item = std::io::Result<Bytes>> {
        let AttemptLog { app, execution, length } = self;
        async_stream::try_stream! {
            let mut cursor = LineCursor::default();
            loop {
                let lines = app.logs.lines(execution, &mut cursor, length).await;
                let Some((_, lines)) = lines.map_err(std::io::Error::other)? else { break };
                let mut text = String::with_capacity(lines.len());
                for line in lines.split(|byte| *byte == b'\n') {
                    if let Ok(record) = serde_json::from_slice::<LogRecord>(line) {
                        text.push_str(&record.m);
                        text.push_str(if record.c { "" } else { "\n" });
                    }
                }
                yield Bytes::from(text);
            }
        }
    }

    /// Reads a range of bytes.
    pub(crate) fn bytes(self, range: Range<u64>) -> impl Stream<Item = std::io::Result<Bytes>> {
        let AttemptLog { app, execution, .. } = self;
        async_stream::try_stream! {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at + CHUNK);
                let chunk =
                    app.logs.read(execution, at..end).await.map_err(std::io::Error::other)?;
                if chunk.is_empty() {
                    break;
                }
                at += chunk.len() as u64;
                yield chunk;
            }
        }
    }
}

async fn execution(app: &App, job: JobId, attempt: u32) -> Result<ExecutionId, Problem> {
    let row = jobs::job(&app.pool, job).await?.ok_or_else(|| Problem::not_found(job))?;
    let of = row.attempts.iter().rev().find(|of| of.attempt == attempt);
    let missing = || Problem::not_found(format!("attempt {attempt} of {job}"));
    of.map(|of| of.execution).ok_or_else(missing)
}
