//! Jobs and their logs.
use domain::ids::JobId;
use reqwest::{Method, Response};
use schemas::control::{ChangeResult, Page, jobs};

use super::{CallResult, EVENT_STREAM, NDJSON};
use crate::client::Client;

impl Client {
    /// Jobs, the newest first.
    pub async fn jobs(&self, query: &jobs::JobsQuery) -> CallResult<Page<jobs::Job>> {
        self.fresh("/v1/jobs", query).await
    }

    pub async fn job(&self, job: JobId) -> CallResult<jobs::Job> {
        self.fresh(&format!("/v1/jobs/{job}"), &()).await
    }

    pub async fn cancel_job(&self, job: JobId, body: &jobs::Cancel) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/cancel"), body).await
    }

    /// Resolves an execution with an unknown outcome.
    pub async fn resolve_job(&self, job: JobId, body: &jobs::Resolve) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/resolve"), body).await
    }

    /// The log of one attempt: its records up to now, one per line.
    pub async fn log(&self, job: JobId, attempt: u32, since_n: u64) -> CallResult<Response> {
        let query = jobs::LogQuery { since_n: Some(since_n).filter(|n| *n > 0) };
        let path = format!("/v1/jobs/{job}/attempts/{attempt}/log");
        self.open(Method::GET, &path, &query, NDJSON, None).await
    }

    /// The log of one attempt as it grows, as server-sent events.
    pub async fn follow_log(&self, job: JobId, attempt: u32, after_n: u64) -> CallResult<Response> {
        let path = format!("/v1/jobs/{job}/attempts/{attempt}/log");
        self.open(Method::GET, &path, &(), EVENT_STREAM, Some(&after_n.to_string())).await
    }
}
