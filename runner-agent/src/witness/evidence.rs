//! Evidence against a rejected log: the head that was verified before, and the rejected head.
//!
//! Two contradicting heads that the vendor signed prove the contradiction to every party that has
//! the vendor's key.
use std::{
    fs,
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use domain::ids::{ExecutionId, JobId};
use schemas::{
    moment,
    runner::{Claimed, Consistency, Inclusion},
};
use serde::{Deserialize, Serialize};

use super::Witness;
use crate::{data, ids, policy::Refusal};

/// Largest number of evidence files, so that a rejected server cannot fill the disk. Later
/// rejections are in the journal only.
pub const MAX_FILES: usize = 256;

/// Rejection of a log, as its file stores it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Version of the file format: 1.
    pub version: u32,
    /// Time of the rejection by the host's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    pub job: JobId,
    pub execution: ExecutionId,
    pub rule: String,
    /// Explanation for users.
    pub explanation: String,
    /// Signed head that was verified before; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Signed head that was rejected.
    pub shown: String,
    /// Inclusion proof of the claim in the rejected head.
    pub inclusion: Inclusion,
    /// Consistency proof between the two heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// [`Evidence`] with the path of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvidence {
    pub path: PathBuf,
    pub evidence: Evidence,
}

impl Witness {
    /// Stores the last verified head and the rejected head. Returns the name of the file; equal
    /// rules and heads share one file. Returns `None` if [`MAX_FILES`] is reached.
    pub fn store_evidence(
        &self,
        job: JobId,
        claimed: &Claimed,
        refusal: &Refusal,
        at: DateTime<Utc>,
    ) -> io::Result<Option<String>> {
        let evidence = Evidence {
            version: 1,
            at,
            job,
            execution: claimed.execution,
            rule: refusal.rule.clone(),
            explanation: refusal.detail.clone(),
            seen: self.last()?,
            shown: claimed.checkpoint.clone(),
            inclusion: claimed.inclusion.clone(),
            consistency: claimed.consistency.clone(),
        };
        let heads = (&evidence.rule, &evidence.seen, &evidence.shown);
        let digest = hex::encode(proof::sha256(&serde_json::to_vec(&heads)?));
        let name = format!("{}-{}.json", evidence.rule, &digest[..32]);
        let path = self.evidence.join(&name);
        data::directory(&self.evidence)?;
        if path.exists() {
            return Ok(Some(name));
        }
        if fs::read_dir(&self.evidence)?.count() >= MAX_FILES {
            return Ok(None);
        }
        write_once(&path, &serde_json::to_vec_pretty(&evidence)?)?;
        Ok(Some(name))
    }

    /// Returns all stored evidence, oldest first.
    pub fn evidence(&self) -> io::Result<Vec<StoredEvidence>> {
        let files = match fs::read_dir(&self.evidence) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut stored = Vec::new();
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(evidence) = data::read_json(&path)?
            {
                stored.push(StoredEvidence { path, evidence });
            }
        }
        stored.sort_by_key(|stored| stored.evidence.at);
        Ok(stored)
    }
}

/// Creates a file that is never written again. After a crash it is complete or absent.
fn write_once(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension(format!("{}.new", ids::new_ulid()));
    let mut file = data::fresh(&fresh)?;
    let linked = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&fresh, path));
    let _best_effort = fs::remove_file(&fresh);
    match linked {
        // Another process wrote the same file first.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Err(_) | Ok(()) => data::sync_parent(path),
    }
}
