//! Sends a log by offset: what the server has is what the server says it has.
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::ids::{ExecutionId, JobId};
use reqwest::{
    Method,
    header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderName},
};
use schemas::runner::{EXECUTION, LOG_INTERVAL_MS, LogResponse, LogSettings, REPR_DIGEST, log};
use sha2::{Digest as _, Sha256};
use tracing::{info, warn};

use crate::{
    client::{Ask, Client, Refused},
    data::JobDir,
};

/// How soon a chunk is wanted by who reads along.
const TAILED: Duration = Duration::from_millis(200);

/// How many chunks in a row a server may refuse before the rest of the log stays here.
const REFUSALS: u32 = 5;

/// Where one log stands.
#[derive(Debug)]
pub struct Upload {
    have: u64,
    chunk: u64,
    settings: LogSettings,
    next: Instant,
    broken: bool,
    /// Chunks in a row that were refused.
    refusals: u32,
}

/// Why no more is sent for now.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The execution is no longer the current one, or not ours.
    #[error("{0}")]
    Refused(Box<Refused>),
    /// The spool cannot be read.
    #[error("the log cannot be read")]
    Disk(#[from] io::Error),
}

impl Upload {
    /// From the beginning: a server that has more says so.
    pub fn new(settings: LogSettings) -> Self {
        let chunk = log::CHUNK_BYTES;
        Upload { have: 0, chunk, settings, next: Instant::now(), broken: false, refusals: 0 }
    }

    /// Bytes that the server has.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// The server will not take any more of this log.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Send no more of it.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// The server said how much it has.
    pub fn rewind(&mut self, have: u64) {
        self.have = have;
    }

    /// Somebody reads along: the next chunk is wanted soon, whatever the last answer said.
    pub fn hasten(&mut self) {
        self.next = self.next.min(Instant::now() + TAILED);
    }

    /// Send the next chunk, if it is time or `now`. The answer may carry a cancel.
    pub async fn push(
        &mut self,
        client: &Client,
        (job, execution): (JobId, ExecutionId),
        dir: &JobDir,
        now: bool,
    ) -> Result<Option<LogResponse>, SpoolError> {
        let (length, enough) = match File::open(dir.log()) {
            Ok(file) => (file.metadata()?.len(), self.settings.chunk_bytes.max(1)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let waiting = length.saturating_sub(self.have);
        let due = now || waiting >= enough || Instant::now() >= self.next;
        if self.broken || waiting == 0 || !due {
            return Ok(None);
        }
        let mut chunk = vec![0; usize::try_from(waiting.min(self.chunk)).unwrap_or(usize::MAX)];
        File::open(dir.log())?.read_exact_at(&mut chunk, self.have)?;
        let ask = self.ask(&chunk, job, execution)?;
        match client.send::<LogResponse>(&ask).await {
            Ok(answer) => {
                if let Some(interval) = answer.number(LOG_INTERVAL_MS) {
                    self.settings.interval_ms = interval.clamp(50, 60_000);
                }
                self.next = Instant::now() + Duration::from_millis(self.settings.interval_ms);
                self.refusals = 0;
                if let Some(body) = &answer.body {
                    self.have = body.committed_bytes.min(length);
                }
                Ok(answer.body)
            }
            Err(refused) => {
                self.next = Instant::now() + Duration::from_millis(self.settings.interval_ms);
                self.refused(refused, length, execution).map(|()| None)
            }
        }
    }

    fn ask(&self, chunk: &[u8], job: JobId, execution: ExecutionId) -> io::Result<Ask> {
        let (first, last) = (self.have, self.have + chunk.len() as u64 - 1);
        let digest = STANDARD.encode(Sha256::digest(chunk));
        let body = zstd::encode_all(chunk, 3)?;
        Ok(Ask::new(Method::PATCH, format!("/runner/v1/jobs/{job}/log"))
            .bytes(body)
            .header(HeaderName::from_static(EXECUTION), &execution.to_string())
            .header(CONTENT_RANGE, &format!("bytes {first}-{last}/*"))
            .header(HeaderName::from_static(REPR_DIGEST), &format!("sha-256=:{digest}:"))
            .header(CONTENT_TYPE, "application/x-ndjson")
            .header(CONTENT_ENCODING, "zstd"))
    }

    fn refused(
        &mut self,
        refused: Refused,
        length: u64,
        execution: ExecutionId,
    ) -> Result<(), SpoolError> {
        match refused.status {
            416 => {
                let have = refused.have.unwrap_or(0);
                info!(execution.id = %execution, "The server has {have} bytes, going on from there");
                // More than we have, or where we already are: another log than ours.
                self.broken = have > length || have == self.have;
                self.have = have;
            }
            413 if self.chunk > 1_024 => self.chunk /= 2,
            409 | 413 | 422 | 507 => {
                warn!(execution.id = %execution, "The server takes no more of the log: {refused}");
                self.broken = true;
            }
            // Not ours any more, or not wanted now: the reports say what follows from it.
            401 | 403 | 412 => return Err(SpoolError::Refused(Box::new(refused))),
            // Something on the way harmed it, perhaps. The work is well either way.
            _ => {
                self.refusals += 1;
                self.broken = self.refusals > REFUSALS;
                warn!(execution.id = %execution, broken = self.broken, "The server did not take a chunk: {refused}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
