//! A manifest becomes bytes once: canonical, and kept by digest before the event that names it.
//!
//! The blob holds the payload. Its envelope is signed when a claim hands it out: Ed25519 gives the
//! same signature for the same bytes and key each time.
use domain::job::{JobClass, Origin, Work};
use event_log::blob;
use schemas::manifest::{Limits, Manifest, Timeouts};

use crate::{problem::Problem, state::App};

/// How long a job waits for a runner: a day.
const QUEUE_TTL_MS: u64 = 24 * 60 * 60 * 1000;
/// How often pure work is tried.
const ATTEMPTS: u32 = 3;
/// Log bytes that are kept of an execution: the first 48 MiB and the last 16.
const OUTPUT_BYTES: u64 = 64 * 1024 * 1024;
/// How long work may take unless its config says otherwise: an hour.
pub const DEADLINE_MS: u64 = 60 * 60 * 1000;

/// The longest that a config can ask for: a day.
pub const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;

/// What every child may use.
pub fn limits() -> Limits {
    Limits { memory_bytes: None, output_bytes: OUTPUT_BYTES }
}

/// Time limits of a job.
pub fn timeouts(class: JobClass, deadline_ms: u64) -> Timeouts {
    Timeouts { deadline_ms, grace_ms: class.grace_s() * 1000, no_output_ms: None }
}

/// Keep a manifest, and say what is to be queued.
pub async fn keep(app: &App, manifest: &Manifest, origin: Origin) -> Result<Work, Problem> {
    let payload = proof::canonical::json(manifest).map_err(Problem::internal)?;
    // The event that names it comes after it.
    let subject = match origin {
        Origin::Build { build, .. } => build.to_string(),
        Origin::Step { install, .. } => install.to_string(),
    };
    let digest = blob::put_of_subject(&app.pool, &payload, &subject).await?;
    Ok(Work {
        kind: manifest.kind,
        class: manifest.class,
        attempts: ATTEMPTS,
        manifest: digest,
        origin,
        deadline_ms: manifest.timeouts.deadline_ms,
        queue_ttl_ms: QUEUE_TTL_MS,
    })
}
