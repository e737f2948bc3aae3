//! Cache of manifests, which name the artifacts that a job may access.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use domain::digest::Digest;
use schemas::manifest::Manifest;
use sqlx::PgPool;

use crate::problem::Problem;

/// Maximum number of cached manifests. Manifests never change.
const MAX_CACHED: usize = 1_024;

/// Cache of manifests by digest, so that pulling many blobs reads the manifest once.
#[derive(Default)]
pub struct Manifests(Mutex<HashMap<Digest, Arc<Manifest>>>);

impl Manifests {
    /// Returns the manifest with this digest.
    ///
    /// # Errors
    /// The database is unavailable, or the manifest is missing or invalid.
    pub async fn get(&self, pool: &PgPool, digest: &Digest) -> Result<Arc<Manifest>, Problem> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest) {
            return Ok(Arc::clone(known));
        }
        let bytes = event_log::blob::get(pool, digest).await?;
        let bytes = bytes.ok_or_else(|| Problem::internal(format!("blob {digest} is missing")))?;
        let manifest = serde_json::from_slice(&bytes).map_err(Problem::internal)?;
        let manifest = Arc::new(manifest);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(digest.clone(), Arc::clone(&manifest));
        Ok(manifest)
    }
}
