//! Uploads a log by offset. The server's responses contain the offset up to which the server has
//! the log.
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
    client::{ApiRequest, Client, ServerRejection},
    data::JobDir,
};

/// Longest wait for the next chunk while a user tails the log.
const TAIL_INTERVAL: Duration = Duration::from_millis(200);

/// Number of consecutive rejected chunks after which the upload stops.
const MAX_REJECTIONS: u32 = 5;

/// Upload state of one log.
#[derive(Debug)]
pub struct LogUpload {
    committed_bytes: u64,
    chunk: u64,
    settings: LogSettings,
    next: Instant,
    stopped: bool,
    /// Number of consecutive rejected chunks.
    rejections: u32,
}

/// Reason why a chunk could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The server rejects the execution or the runner.
    #[error("{0}")]
    Rejected(Box<ServerRejection>),
    /// The log on disk cannot be read.
    #[error("cannot read the log")]
    Disk(#[from] io::Error),
}

impl LogUpload {
    /// Starts at offset 0. A server that has more returns its offset.
    pub fn new(settings: LogSettings) -> Self {
        let chunk = log::CHUNK_BYTES;
        LogUpload {
            committed_bytes: 0,
            chunk,
            settings,
            next: Instant::now(),
            stopped: false,
            rejections: 0,
        }
    }

    /// Returns the number of bytes that the server has.
    pub fn committed_bytes(&self) -> u64 {
        self.committed_bytes
    }

    /// Returns whether the upload has stopped permanently.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Continues at the offset that the server returned.
    pub fn continue_at(&mut self, have: u64) {
        self.committed_bytes = have;
    }

    /// Sends the next chunk soon, regardless of the server's interval, because a user tails the
    /// log.
    pub fn hasten(&mut self) {
        self.next = self.next.min(Instant::now() + TAIL_INTERVAL);
    }

    /// Sends the next chunk if it is due or `now` is set. The response may contain a cancel.
    pub async fn push(
        &mut self,
        client: &Client,
        (job, execution): (JobId, ExecutionId),
        dir: &JobDir,
        now: bool,
    ) -> Result<Option<LogResponse>, UploadError> {
        let (length, chunk_bytes) = match File::open(dir.log()) {
            Ok(file) => (file.metadata()?.len(), self.settings.chunk_bytes.max(1)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let unsent = length.saturating_sub(self.committed_bytes);
        let due = now || unsent >= chunk_bytes || Instant::now() >= self.next;
        if self.stopped || unsent == 0 || !due {
            return Ok(None);
        }
        let mut chunk = vec![0; usize::try_from(unsent.min(self.chunk)).unwrap_or(usize::MAX)];
        File::open(dir.log())?.read_exact_at(&mut chunk, self.committed_bytes)?;
        let request = self.chunk_request(&chunk, job, execution)?;
        match client.send::<LogResponse>(&request).await {
            Ok(response) => {
                if let Some(interval) = response.number(LOG_INTERVAL_MS) {
                    self.settings.interval_ms = interval.clamp(50, 60_000);
                }
                self.next = Instant::now() + Duration::from_millis(self.settings.interval_ms);
                self.rejections = 0;
                if let Some(body) = &response.body {
                    self.committed_bytes = body.committed_bytes.min(length);
                }
                Ok(response.body)
            }
            Err(rejection) => {
                self.next = Instant::now() + Duration::from_millis(self.settings.interval_ms);
                self.handle_rejection(rejection, length, execution).map(|()| None)
            }
        }
    }

    fn chunk_request(
        &self,
        chunk: &[u8],
        job: JobId,
        execution: ExecutionId,
    ) -> io::Result<ApiRequest> {
        let (first, last) = (self.committed_bytes, self.committed_bytes + chunk.len() as u64 - 1);
        let digest = STANDARD.encode(Sha256::digest(chunk));
        let body = zstd::encode_all(chunk, 3)?;
        Ok(ApiRequest::new(Method::PATCH, format!("/runner/v1/jobs/{job}/log"))
            .bytes(body)
            .header(HeaderName::from_static(EXECUTION), &execution.to_string())
            .header(CONTENT_RANGE, &format!("bytes {first}-{last}/*"))
            .header(HeaderName::from_static(REPR_DIGEST), &format!("sha-256=:{digest}:"))
            .header(CONTENT_TYPE, "application/x-ndjson")
            .header(CONTENT_ENCODING, "zstd"))
    }

    fn handle_rejection(
        &mut self,
        rejection: ServerRejection,
        length: u64,
        execution: ExecutionId,
    ) -> Result<(), UploadError> {
        match rejection.status {
            416 => {
                let have = rejection.have.unwrap_or(0);
                info!(execution.id = %execution, have, "Continuing the log at the server's offset");
                // An offset beyond the log's end, or the same offset again: the server has another
                // log.
                self.stopped = have > length || have == self.committed_bytes;
                self.committed_bytes = have;
            }
            413 if self.chunk > 1_024 => self.chunk /= 2,
            409 | 413 | 422 | 507 => {
                warn!(
                    execution.id = %execution,
                    error = %rejection,
                    "Cannot upload the rest of the log: the server rejects it"
                );
                self.stopped = true;
            }
            // The server rejects the execution or the runner. The responses to reports determine
            // what follows.
            401 | 403 | 412 => return Err(UploadError::Rejected(Box::new(rejection))),
            // The chunk may have been damaged in transit. The job itself is not affected.
            _ => {
                self.rejections += 1;
                self.stopped = self.rejections > MAX_REJECTIONS;
                warn!(
                    execution.id = %execution,
                    stopped = self.stopped,
                    error = %rejection,
                    "Cannot upload a log chunk: the server rejected it"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
