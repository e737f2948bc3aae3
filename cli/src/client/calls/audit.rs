//! The audit log, blobs and notifications.
use domain::digest::Digest;
use proof::bundle::MEDIA_TYPE;
use reqwest::{Method, Response};
use schemas::control::{audit, bundles, history};

use super::{CallResult, EVENT_STREAM, NDJSON};
use crate::client::Client;

impl Client {
    pub async fn events(&self, query: &audit::EventsQuery) -> CallResult<audit::Events> {
        self.exact("/v1/audit/events", query).await
    }

    /// Streams all events, one per line.
    pub async fn export(&self, query: &audit::EventsQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/export", query, NDJSON, None).await
    }

    /// Returns a signed checkpoint of the current log.
    pub async fn checkpoint(&self) -> CallResult<audit::Checkpoint> {
        self.exact("/v1/audit/checkpoint", &()).await
    }

    /// A proof of inclusion or of consistency.
    pub async fn proof(&self, query: &audit::ProofQuery) -> CallResult<audit::Proof> {
        self.exact("/v1/audit/proofs", query).await
    }

    /// Streams a bundle that proves an event, a stream or an install offline.
    pub async fn bundle(&self, query: &bundles::BundleQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/bundle", query, MEDIA_TYPE, None).await
    }

    /// Streams the events of a range, one per line, after a line that proves the range.
    pub async fn range(&self, query: &bundles::RangeQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/range", query, NDJSON, None).await
    }

    /// Returns the state of an aggregate at a position or time.
    pub async fn as_of(&self, query: &audit::AsOfQuery) -> CallResult<audit::AsOf> {
        self.get("/v1/audit/state", query).await
    }

    /// Returns the changes of an aggregate between two points, with its history.
    pub async fn between(
        &self,
        query: &history::StreamDiffQuery,
    ) -> CallResult<history::StreamDiff> {
        self.get("/v1/audit/diff", query).await
    }

    /// Returns a page of the installs that changed between two points.
    pub async fn installs_between(
        &self,
        query: &history::InstallsDiffQuery,
    ) -> CallResult<history::InstallsDiff> {
        self.get("/v1/audit/diff/installs", query).await
    }

    /// Streams new events, as server-sent events.
    pub async fn changes(&self, query: &audit::ChangesQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/changes", query, EVENT_STREAM, None).await
    }

    /// Runs the self-check of the server, and streams the progress as server-sent events.
    pub async fn examine(&self) -> CallResult<Response> {
        self.open(Method::POST, "/v1/audit/doctor", &(), EVENT_STREAM, None).await
    }

    /// Opens a blob by its digest, for example a plan's summary, a manifest, a bundle.
    pub async fn blob(&self, digest: &Digest) -> CallResult<Response> {
        self.open(Method::GET, &format!("/v1/blobs/{digest}"), &(), "*/*", None).await
    }
}
