//! A log as it grows, record by record, to its seal.
use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use bytes::{Buf, Bytes, BytesMut};
use domain::{
    ids::{ExecutionId, JobId},
    job::Job,
};
use serde::Deserialize;

use super::CHUNK;
use crate::{auth::Who, problem::Problem, state::App};

/// How often it is asked whether the log is sealed, when nothing comes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is read of a record: the rest is passed on as it is.
#[derive(Deserialize)]
struct Numbered {
    n: u64,
}

/// Where the records after number `n` begin.
pub async fn offset_after(app: &App, execution: ExecutionId, n: u64) -> Result<u64, Problem> {
    let length = app.logs.length(execution).await?;
    let (mut at, mut lines) = (0, Lines::default());
    while at < length {
        let chunk = app.logs.read(execution, at..length.min(at + CHUNK)).await?;
        if chunk.is_empty() {
            break;
        }
        at += chunk.len() as u64;
        lines.held.extend_from_slice(&chunk);
        while let Some((number, line)) = lines.next() {
            if number > n {
                let unread = lines.held.len() as u64 + line.len() as u64 + 1;
                return Ok(at - unread);
            }
        }
    }
    Ok(length)
}

/// Every record after number `after`, as it comes.
pub async fn follow(
    app: App,
    who: Who,
    (job, execution): (JobId, ExecutionId),
    after: u64,
) -> Result<Response, Problem> {
    let mut have = app.logs.follow(execution);
    let mut at = if after == 0 { 0 } else { offset_after(&app, execution, after).await? };
    let tailed = Tailed::of(&app, job);
    let events = async_stream::stream! {
        let _tailed = tailed;
        let mut lines = Lines::default();
        loop {
            if let Err(refused) = who.still(&app) {
                yield Ok::<_, Infallible>(Event::default().event("end").data(refused.code.word()));
                break;
            }
            // The seal first, the length then: what came before the seal is read before the end.
            let sealed = sealed(&app, job, execution).await;
            let Ok(length) = app.logs.length(execution).await else { break };
            while at < length {
                let read = app.logs.read(execution, at..length.min(at + CHUNK)).await;
                let Ok(chunk) = read else { break };
                if chunk.is_empty() {
                    break;
                }
                at += chunk.len() as u64;
                lines.held.extend_from_slice(&chunk);
                while let Some((n, line)) = lines.next() {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    let event = Event::default().id(n.to_string()).event("record");
                    yield Ok(event.data(text));
                }
            }
            if sealed {
                yield Ok(Event::default().event("end").data("finalized"));
                break;
            }
            tokio::select! {
                moved = have.changed() => {
                    if moved.is_err() {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = app.stopping.cancelled() => break,
            }
        }
    };
    let keep = KeepAlive::new().interval(Duration::from_secs(15));
    Ok(Sse::new(events).keep_alive(keep).into_response())
}

/// The job's runner sends often for as long as this lives.
struct Tailed {
    app: App,
    job: JobId,
}

impl Tailed {
    fn of(app: &App, job: JobId) -> Tailed {
        app.dispatch.tail(job, true);
        Tailed { app: app.clone(), job }
    }
}

impl Drop for Tailed {
    fn drop(&mut self) {
        self.app.dispatch.tail(self.job, false);
    }
}

/// Whether nothing more can come.
async fn sealed(app: &App, job: JobId, execution: ExecutionId) -> bool {
    let loaded = app.engine.load::<Job>(job).await;
    loaded.is_ok_and(|job| job.logs.iter().any(|log| log.execution == execution))
}

/// Whole lines out of chunks that end anywhere.
#[derive(Default)]
struct Lines {
    held: BytesMut,
}

impl Lines {
    fn next(&mut self) -> Option<(u64, Bytes)> {
        loop {
            let end = self.held.iter().position(|byte| *byte == b'\n')?;
            let line = self.held.split_to(end).freeze();
            self.held.advance(1);
            // A line without a number is none of ours and is passed over.
            if let Ok(Numbered { n }) = serde_json::from_slice(&line) {
                return Some((n, line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_whole_however_the_chunks_were_cut() {
        let mut lines = Lines::default();
        let mut numbers = Vec::new();
        for chunk in ["{\"n\":1,\"m\":\"a\"}\n{\"n\"", ":2,\"m\":\"", "b\"}\n", "{\"n\":3"] {
            lines.held.extend_from_slice(chunk.as_bytes());
            while let Some((n, _)) = lines.next() {
                numbers.push(n);
            }
        }
        assert_eq!(numbers, [1, 2]);
    }
}
