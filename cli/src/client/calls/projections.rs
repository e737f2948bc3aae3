//! Calls of `/v1/projections`.
use reqwest::{Method, Response};
use schemas::control::{ChangeResult, Page, projections};
use serde_json::json;

use super::{CallResult, EVENT_STREAM};
use crate::client::Client;

impl Client {
    pub async fn projections(&self) -> CallResult<Page<projections::Projection>> {
        self.get("/v1/projections", &()).await
    }

    /// Streams the rows of a projection at a position or time, and the progress, as server-sent
    /// events.
    pub async fn projection_rows(
        &self,
        name: &str,
        query: &projections::RowsQuery,
    ) -> CallResult<Response> {
        let path = format!("/v1/projections/{name}/rows");
        self.open(Method::GET, &path, query, EVENT_STREAM, None).await
    }

    /// Runs `rebuild`, `rollback` or `verify` of a projection, and streams the progress as
    /// server-sent events. Only `rebuild` uses the query.
    pub async fn work_on_projection(
        &self,
        name: &str,
        verb: &str,
        query: &projections::RebuildQuery,
    ) -> CallResult<Response> {
        let path = format!("/v1/projections/{name}/{verb}");
        self.open(Method::POST, &path, query, EVENT_STREAM, None).await
    }

    pub async fn drop_as_of_table(&self, name: &str, position: u64) -> CallResult<ChangeResult> {
        let path = format!("/v1/projections/{name}/as-of/{position}");
        self.change(Method::DELETE, &path, &json!({})).await
    }
}
