//! The audit log, blobs and notifications.
use domain::digest::Digest;
use proof::bundle::MEDIA_TYPE;
use reqwest::{Method, Response};
use schemas::control::{audit, bundles, history};

use super::{CallResult, EVENT_STREAM, NDJSON};
use crate::client::Client;

impl Client {
    /// Returns a page of events.
    pub async fn events(&self, which: &audit::EventsQuery) -> CallResult<audit::Events> {
        self.exact("/v1/audit/events", which).await
    }

    /// Streams all events, one per line.
    pub async fn export(&self, which: &audit::EventsQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/export", which, NDJSON, None).await
    }

    /// Returns a signed checkpoint of the current log.
    pub async fn checkpoint(&self) -> CallResult<audit::Checkpoint> {
        self.exact("/v1/audit/checkpoint", &()).await
    }

    /// A proof of inclusion or of consistency.
    pub async fn proof(&self, which: &audit::ProofQuery) -> CallResult<audit::Proof> {
        self.exact("/v1/audit/proofs", which).await
    }

    /// A bundle that proves an event or a stream offline.
    pub async fn bundle(&self, which: &bundles::BundleQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/bundle", which, MEDIA_TYPE, None).await
    }

    /// Streams the events of a range, one per line, after a line that proves the range.
    pub async fn range(&self, which: &bundles::RangeQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/range", which, NDJSON, None).await
    }

    /// Returns the state of an aggregate at a position or time.
    pub async fn as_of(&self, which: &audit::AsOfQuery) -> CallResult<audit::AsOf> {
        self.get("/v1/audit/state", which).await
    }

    /// Returns the changes of an aggregate between two points, with its history.
    pub async fn between(
        &self,
        which: &history::StreamDiffQuery,
    ) -> CallResult<history::StreamDiff> {
        self.get("/v1/audit/diff", which).await
    }

    /// Returns the changes of every install between two points.
    pub async fn installs_between(
        &self,
        which: &history::InstallsDiffQuery,
    ) -> CallResult<history::InstallsDiff> {
        self.get("/v1/audit/diff/installs", which).await
    }

    /// Streams new events, as server-sent events.
    pub async fn changes(&self, which: &audit::ChangesQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/changes", which, EVENT_STREAM, None).await
    }

    /// Runs the self-check of the server, and streams the progress as server-sent events.
    pub async fn examine(&self) -> CallResult<Response> {
        self.open(Method::POST, "/v1/audit/doctor", &(), EVENT_STREAM, None).await
    }

    /// The bytes of a blob: a plan's summary, a manifest, a bundle.
    pub async fn blob(&self, digest: &Digest) -> CallResult<Response> {
        self.open(Method::GET, &format!("/v1/blobs/{digest}"), &(), "*/*", None).await
    }
}
