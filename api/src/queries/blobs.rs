//! Blobs by digest: bundles, manifests, plan summaries.
use domain::digest::Digest;

use crate::{extract::Caller, problem::Problem, state::App};

/// Returns the bytes of a blob.
pub(crate) async fn get(app: &App, caller: &Caller, digest: &Digest) -> Result<Vec<u8>, Problem> {
    caller.authorize("GET", "/v1/blobs/{digest}")?;
    let bytes = event_log::blob::get(&app.pool, digest).await?;
    bytes.ok_or_else(|| Problem::not_found(digest))
}
