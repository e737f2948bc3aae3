//! Calls of `/v1/builds`.
use domain::ids::BuildId;
use reqwest::Method;
use schemas::control::{Page, builds};
use serde_json::json;

use super::CallResult;
use crate::client::Client;

impl Client {
    /// Builds, the newest first.
    pub async fn builds(&self, query: &builds::BuildsQuery) -> CallResult<Page<builds::Build>> {
        self.fresh("/v1/builds", query).await
    }

    pub async fn build(&self, build: BuildId) -> CallResult<builds::Build> {
        self.fresh(&format!("/v1/builds/{build}"), &()).await
    }

    /// Retries the failed builds of the newest config version.
    pub async fn retry_build(&self, build: BuildId) -> CallResult<builds::BuildsRetried> {
        self.change(Method::POST, &format!("/v1/builds/{build}/retry"), &json!({})).await
    }
}
