//! What is kept of a log that was not believed: the head that was seen before, and the one that was shown.
//!
//! Two heads that contradict each other, both signed by the vendor, are a proof for everybody who knows their key.
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
use crate::{data, policy::Refusal};

/// So many are kept: a server that is not believed must not fill the disk. What comes then is in the journal only.
pub const MOST: usize = 256;

/// One refusal of a log, as its file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// 1.
    pub version: u32,
    /// When, by the host's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// With which claim it was shown.
    pub job: JobId,
    /// And for which execution.
    pub execution: ExecutionId,
    /// In one word.
    pub rule: String,
    /// In plain words.
    pub explanation: String,
    /// The signed head that was believed; absent when none was seen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// The head that was shown and is not believed.
    pub shown: String,
    /// What was to prove that the claim is in it.
    pub inclusion: Inclusion,
    /// What was to prove that it goes on from what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// An [`Evidence`] and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub evidence: Evidence,
}

impl Witness {
    /// Keep both heads. Gives the name of the file; the same two heads have one file. `None`: there are too many.
    pub fn keep(
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
        if fs::read_dir(&self.evidence)?.count() >= MOST {
            return Ok(None);
        }
        write_once(&path, &serde_json::to_vec_pretty(&evidence)?)?;
        Ok(Some(name))
    }

    /// All that is kept, oldest first.
    pub fn evidence(&self) -> io::Result<Vec<Kept>> {
        let files = match fs::read_dir(&self.evidence) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut kept = Vec::new();
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(evidence) = data::read_json(&path)?
            {
                kept.push(Kept { path, evidence });
            }
        }
        kept.sort_by_key(|kept| kept.evidence.at);
        Ok(kept)
    }
}

/// A file that is never written again, whole or not there.
fn write_once(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension(format!("{}.new", ulid::Ulid::new()));
    let mut file = data::fresh(&fresh)?;
    let linked = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&fresh, path));
    let _best_effort = fs::remove_file(&fresh);
    match linked {
        // Somebody else was faster, and wrote the same.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Err(_) | Ok(()) => data::sync_parent(path),
    }
}
