//! Stores manifests. A manifest is encoded once, canonically, and stored by digest before the event
//! that refers to it.
//!
//! The blob holds the payload. Each claim signs the envelope again; Ed25519 produces the same
//! signature for the same bytes and key.
use domain::job::{JobClass, Origin, Work};
use event_log::blob;
use schemas::manifest::{Limits, Manifest, Timeouts};

use crate::{problem::Problem, state::App};

/// Maximum time that a job waits for a runner: one day.
const QUEUE_TTL_MS: u64 = 24 * 60 * 60 * 1000;
/// Maximum number of attempts of a job without side effects.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum number of stored log bytes of an execution: the first 48 MiB and the last 16 MiB.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;
/// Default deadline of a job: one hour.
pub(crate) const DEFAULT_DEADLINE_MS: u64 = 60 * 60 * 1000;

/// Maximum deadline that a config can set: one day.
pub(crate) const MAX_DEADLINE_MS: u64 = 24 * 60 * 60 * 1000;

/// Resource limits of every job.
pub(crate) fn limits() -> Limits {
    Limits { memory_bytes: None, output_bytes: MAX_OUTPUT_BYTES }
}

pub(crate) fn timeouts(class: JobClass, deadline_ms: u64) -> Timeouts {
    Timeouts { deadline_ms, grace_ms: class.grace_s() * 1000, no_output_ms: None }
}

/// Stores a manifest and returns the work to queue.
pub(crate) async fn store(app: &App, manifest: &Manifest, origin: Origin) -> Result<Work, Problem> {
    let payload = proof::canonical::json(manifest).map_err(Problem::internal)?;
    let subject = match origin {
        Origin::Build { .. } | Origin::Source { .. } => None,
        Origin::Preflight { install, .. } | Origin::Step { install, .. } => {
            Some(install.to_string())
        }
    };
    let digest = blob::put_for_event(&app.pool, &payload, subject.as_deref()).await?;
    Ok(Work {
        kind: manifest.kind,
        class: manifest.class,
        attempts: MAX_ATTEMPTS,
        manifest: digest,
        origin,
        deadline_ms: manifest.timeouts.deadline_ms,
        queue_ttl_ms: QUEUE_TTL_MS,
    })
}
