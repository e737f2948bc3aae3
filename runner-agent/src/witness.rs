//! Witness of the vendor's log: verifies that a claim is signed, is for this runner, and is in a
//! log that continues the last verified log.
//!
//! ```text
//! manifest ◀─digest── grant ──fence──▶ position of job.claimed ──inclusion──▶ checkpoint
//!    both signed by a pinned key                     last checkpoint ──consistency──▶ │
//! ```
mod evidence;
mod rejection;

use std::{fs, io, path::PathBuf};

use chrono::{DateTime, Utc};
use domain::{digest::Digest, ids::RunnerId};
use ed25519_dalek::VerifyingKey;
use proof::{Hash, checkpoint::Checkpoint, dsse, leaf::Leaf, tree};
use schemas::{
    keys::{KeyList, KeyUse},
    manifest::{GRANT_TYPE, Grant, MANIFEST_TYPE, MANIFEST_V2_TYPE, Manifest},
    runner::{Claimed, Consistency, Inclusion, JobKind, RefusedBy},
};

pub use self::{
    evidence::{Evidence, StoredEvidence},
    rejection::LogRejection,
};
use crate::{
    data::{self, Data},
    policy::Refusal,
};

#[derive(Debug, Clone)]
pub struct Verified {
    pub manifest: Manifest,
    /// SHA-256 of the manifest's bytes as received.
    pub digest: Digest,
    /// Bytes of the manifest as received.
    pub manifest_bytes: Vec<u8>,
    /// Grant that allows this runner to run the job.
    pub grant: Grant,
    /// Bytes of the grant.
    pub grant_bytes: Vec<u8>,
}

/// Values that a grant must have.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Log that this runner enrolled with.
    pub log_id: String,
    pub runner: RunnerId,
    /// Identity key of this runner, hexadecimal.
    pub runner_key: String,
    pub job: domain::ids::JobId,
    /// Kind in the offer. The runner accepts only the kinds that it announced.
    pub kind: JobKind,
}

/// Stores the last verified checkpoint, and the evidence against logs that contradict it.
#[derive(Debug, Clone)]
pub struct Witness {
    note: PathBuf,
    accepted: PathBuf,
    evidence: PathBuf,
}

impl Witness {
    /// Returns the witness of this data directory.
    pub fn of(data: &Data) -> Self {
        Witness {
            note: data.path("checkpoint"),
            accepted: data.path("accepted-epoch"),
            evidence: data.path("evidence"),
        }
    }

    /// Returns the last verified checkpoint with its signatures.
    pub fn last(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.note) {
            Ok(note) => Ok(Some(note)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records that the customer accepts a restored log of this epoch.
    pub fn accept(&self, epoch: u64) -> io::Result<()> {
        data::replace(&self.accepted, epoch.to_string().as_bytes())
    }

    /// Verifies a claim and stores its checkpoint. A rejected log changes nothing;
    /// [`Witness::store_evidence`] stores its head. `now` is the server's clock.
    pub fn verify(
        &self,
        claimed: &Claimed,
        expected: &Expected,
        keys: &KeyList,
        now: DateTime<Utc>,
    ) -> Result<Verified, Refusal> {
        let verified = verify_signatures(claimed, keys, now)?;
        check_matches(&verified, claimed, expected, now)?;
        let keys = of(keys, KeyUse::Checkpoints, now);
        let checkpoint = Checkpoint::open(&claimed.checkpoint, &keys)
            .map_err(|error| LogRejection::Unsigned(error.to_string()))?;
        if checkpoint.log_id != expected.log_id {
            let (known, shown) = (expected.log_id.clone(), checkpoint.log_id);
            return Err(LogRejection::OtherLog { known, shown }.into());
        }
        let (grant, head) = (verified.grant.fence.epoch, checkpoint.epoch);
        if head != grant {
            return Err(LogRejection::TwoEpochs { grant, head }.into());
        }
        check_inclusion(&claimed.inclusion, &checkpoint, &verified.grant)?;
        if let Some(last) = self.last_verified(&keys)? {
            check_continuity(&last, &checkpoint, claimed.consistency.as_ref(), self.accepted())?;
        }
        data::replace(&self.note, claimed.checkpoint.as_bytes()).map_err(|error| {
            refusal("checkpoint_kept", format!("cannot store the checkpoint: {error}"))
        })?;
        Ok(verified)
    }

    /// Returns the last verified head, or `None` before the first verified claim.
    fn last_verified(&self, keys: &[VerifyingKey]) -> Result<Option<Checkpoint>, Refusal> {
        let unreadable = |why: String| {
            refusal("checkpoint_kept", format!("cannot read the stored checkpoint: {why}"))
        };
        let Some(note) = self.last().map_err(|error| unreadable(error.to_string()))? else {
            return Ok(None);
        };
        // The stored note is verified as well. If its key is no longer in the list, the runner
        // compares with the unverified text.
        let last = Checkpoint::open(&note, keys).or_else(|_| Checkpoint::read_unverified(&note));
        last.map(Some).map_err(|error| unreadable(error.to_string()))
    }

    /// Returns the epoch that the customer accepted last.
    fn accepted(&self) -> Option<u64> {
        fs::read_to_string(&self.accepted).ok()?.trim().parse().ok()
    }
}

/// Checks that the log of the new head continues the log of the last verified head.
fn check_continuity(
    last: &Checkpoint,
    new: &Checkpoint,
    proof: Option<&Consistency>,
    accepted: Option<u64>,
) -> Result<(), LogRejection> {
    let (seen, shown) = (last.epoch, new.epoch);
    if shown < seen {
        return Err(LogRejection::LowerEpoch { seen, shown });
    }
    if shown > seen {
        let is_accepted = accepted == Some(shown);
        return if is_accepted { Ok(()) } else { Err(LogRejection::RaisedEpoch { seen, shown }) };
    }
    let (seen, shown) = (last.size, new.size);
    if shown < seen {
        return Err(LogRejection::Smaller { seen, shown });
    }
    let unprovable = |why: String| LogRejection::Unprovable { seen, shown, why };
    let path = match proof {
        Some(proof) if proof.from == seen => hashes(&proof.path)
            .ok_or_else(|| unprovable("a hash of the proof is malformed".into()))?,
        Some(proof) => return Err(unprovable(format!("the proof begins at {}", proof.from))),
        None if shown == seen => Vec::new(),
        None => return Err(unprovable("there is no proof".into())),
    };
    tree::verify_consistency(seen, &last.root, shown, &new.root, &path)
        .map_err(|error| LogRejection::Forked { seen, why: error.to_string() })
}

/// Returns the keys of one use that are valid at this time of the server's clock.
pub fn of(keys: &KeyList, usage: KeyUse, at: DateTime<Utc>) -> Vec<VerifyingKey> {
    keys.of(usage, at).iter().filter_map(|key| VerifyingKey::from_bytes(key).ok()).collect()
}

fn refusal(rule: &str, why: impl ToString) -> Refusal {
    Refusal { by: RefusedBy::Verification, rule: rule.into(), detail: why.to_string() }
}

/// Verifies the signatures of manifest and grant, and parses both from the signed bytes.
fn verify_signatures(
    claimed: &Claimed,
    keys: &KeyList,
    now: DateTime<Utc>,
) -> Result<Verified, Refusal> {
    let signers = of(keys, KeyUse::Manifests, now);
    // The type of the payload decides how it is read, and the signature covers it.
    let is_v2 = claimed.manifest.payload_type == MANIFEST_V2_TYPE;
    let manifest_type = if is_v2 { MANIFEST_V2_TYPE } else { MANIFEST_TYPE };
    let manifest_bytes = dsse::verify_as(manifest_type, &claimed.manifest, &signers)
        .map_err(|error| refusal("manifest_signature", error))?;
    let grant_bytes = dsse::verify_as(GRANT_TYPE, &claimed.grant, &signers)
        .map_err(|error| refusal("grant_signature", error))?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest_bytes).map_err(|error| refusal("manifest", error))?;
    if manifest.payload_type() != manifest_type {
        let why = "only a manifest of version 2 can refer to sensitive values, and it must";
        return Err(refusal("manifest", why));
    }
    let grant = serde_json::from_slice(&grant_bytes).map_err(|error| refusal("grant", error))?;
    let digest = proof::digest_text(&proof::sha256(&manifest_bytes));
    let digest = digest.parse().map_err(|error| refusal("manifest", error))?;
    Ok(Verified { manifest, digest, manifest_bytes, grant, grant_bytes })
}

/// Checks that manifest, grant and response are about the same job, and are for this runner.
fn check_matches(
    verified: &Verified,
    claimed: &Claimed,
    expected: &Expected,
    now: DateTime<Utc>,
) -> Result<(), Refusal> {
    let (manifest, grant) = (&verified.manifest, &verified.grant);
    let checks = [
        (
            manifest.version == 1 && grant.version == 1,
            "version",
            "the manifest or the grant has an unsupported version",
        ),
        (grant.manifest == verified.digest, "manifest_digest", "the grant is for another manifest"),
        (
            manifest.kind == expected.kind,
            "kind",
            "the manifest and the offer have different job kinds",
        ),
        (
            manifest.job == expected.job && grant.job == expected.job,
            "job",
            "the manifest or the grant is for another job",
        ),
        (grant.execution == claimed.execution, "execution", "the grant is for another execution"),
        (grant.log_id == expected.log_id, "log", "the grant is from another log"),
        (grant.runner == expected.runner, "runner", "the grant is for another runner"),
        (
            grant.runner_key == expected.runner_key,
            "runner_key",
            "the grant is for another identity key",
        ),
        (grant.deadline > now, "deadline", "the deadline of the grant has passed"),
    ];
    match checks.into_iter().find(|(holds, ..)| !holds) {
        Some((_, rule, why)) => Err(refusal(rule, why)),
        None => Ok(()),
    }
}

/// Checks that the event at the fence's position is the claim of this job, and is in the
/// checkpoint's tree.
fn check_inclusion(
    proof: &Inclusion,
    checkpoint: &Checkpoint,
    grant: &Grant,
) -> Result<(), LogRejection> {
    let not_included = |why: &str| LogRejection::NotIncluded(why.into());
    let entry =
        hex::decode(&proof.entry).map_err(|_| not_included("the entry is not hexadecimal"))?;
    let leaf = Leaf::read(&entry).ok_or_else(|| not_included("the entry is malformed"))?;
    let is_claim = leaf.position == grant.fence.position
        && proof.position == grant.fence.position
        && leaf.aggregate_type == "job"
        && leaf.aggregate_id == grant.job.to_string()
        && leaf.event_type == "job.claimed";
    if !is_claim {
        return Err(not_included("the entry is not this claim"));
    }
    let index = proof
        .position
        .checked_sub(1)
        .ok_or_else(|| not_included("the claim has position 0, but positions start at 1"))?;
    let path =
        hashes(&proof.path).ok_or_else(|| not_included("a hash of the proof is malformed"))?;
    let leaf_hash = tree::leaf_hash(&entry);
    tree::verify_inclusion(&leaf_hash, index, checkpoint.size, &path, &checkpoint.root)
        .map_err(|error| not_included(&error.to_string()))
}

fn hashes(path: &[String]) -> Option<Vec<Hash>> {
    path.iter().map(|text| hex::decode(text).ok()?.try_into().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests;
