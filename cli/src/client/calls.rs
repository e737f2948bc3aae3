//! One method per call of the Control API, in one file per noun.
mod access;
mod apps;
mod audit;
mod builds;
mod installs;
mod jobs;
mod plugins;
mod projections;
mod runners;
mod runs;
mod webhooks;

use super::ClientError;

/// Media type of an uploaded bundle.
const BUNDLE: &str = "application/zstd";
/// Media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";
/// Media type of an export.
const NDJSON: &str = "application/x-ndjson";

type CallResult<A> = Result<A, ClientError>;
