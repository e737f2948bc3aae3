//! Response to a claim: the manifest, the grant, and proofs that the log contains the claim.
//!
//! A repeated claim returns the same manifest and grant, unless a key of the server or the runner
//! was replaced meanwhile. The token, checkpoint and proofs may be newer.
use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, RunnerId},
    job::{Execution, Job, JobEvent, Origin},
    runner::Runner,
};
use event_log::{LogError, StoredEvent, StreamId, blob, blob::BlobError};
use proof::{
    canonical,
    checkpoint::Checkpoint,
    dsse::{self, Envelope},
};
use schemas::{
    manifest::{Fence, GRANT_TYPE, Grant, MANIFEST_TYPE, MANIFEST_V2_TYPE},
    runner::{Claimed, Consistency, Inclusion, LogSettings},
    secret::{EncryptedValue, SecretReference},
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{
    problem::{Code, Problem},
    sensitive,
    state::App,
    write_behind::grants,
};

/// Maximum time to wait until this server has read the claim.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to wait for the dispatcher before the claim is read from the database.
const DISPATCH_TIMEOUT: Duration = Duration::from_millis(50);

/// Builds the response to a claim. It contains all data with which the runner can verify the claim
/// and start.
pub(super) async fn claim_response(
    app: &App,
    job: JobId,
    (execution, position): (&Execution, u64),
    manifest: SignedManifest,
    seen: Option<&str>,
) -> Result<Claimed, Problem> {
    // The dispatcher receives the claim at the same time and usually has it in memory a moment
    // later.
    let _late = timeout(DISPATCH_TIMEOUT, app.dispatch.wait_until_applied(position)).await;
    let claimed = claim_event(app, job, execution.id).await?;
    let head = head(app, claimed.position).await?;
    let fence = Fence { epoch: app.engine.log().epoch(), position: claimed.position };
    let (now, deadline) = (app.now(), execution.deadline);
    let (grant, inclusion, consistency) = tokio::try_join!(
        grant(app, job, execution, fence, &claimed),
        inclusion(app, &claimed, &head),
        consistency(app, seen, &head),
    )?;
    let job_token = app
        .tokens
        .job(execution.runner, job, execution.id, fence, deadline, now)
        .map_err(Problem::internal)?;
    Ok(Claimed {
        execution: execution.id,
        attempt: execution.attempt,
        lease_s: app.dispatch.timing().lease.as_secs().max(1),
        deadline,
        server_time: now,
        manifest: manifest.envelope,
        grant,
        job_token,
        log: LogSettings::default(),
        checkpoint: head.sign(app.keys.current().checkpoints()),
        inclusion,
        consistency,
        values: manifest.values,
    })
}

/// Returns a tree head that includes the claim and for which this server can build proofs.
async fn head(app: &App, position: u64) -> Result<Checkpoint, Problem> {
    let log = app.engine.log();
    // Another server may have written the claim, ahead of the position that this server has read.
    let known = timeout(CATCH_UP_TIMEOUT, log.wait_for(position));
    let late = |_| {
        let detail =
            "cannot return the grant: this server has not read the claim yet; send the claim again";
        Problem::new(Code::ProjectionLag, detail).retry_after(1)
    };
    known.await.map_err(late)??;
    Ok(log.head())
}

/// Position of the claim of this execution.
pub(super) async fn claim_position(
    app: &App,
    job: JobId,
    held: ExecutionId,
) -> Result<u64, Problem> {
    Ok(claim_event(app, job, held).await?.position)
}

/// Stored `job.claimed` event of this execution.
async fn claim_event(app: &App, job: JobId, held: ExecutionId) -> Result<StoredEvent, Problem> {
    let found = find_claim(app, job, held).await?;
    found.ok_or_else(|| Problem::internal(format!("{job} has no claim of {held}")))
}

async fn find_claim(
    app: &App,
    job: JobId,
    held: ExecutionId,
) -> Result<Option<StoredEvent>, Problem> {
    if let Some(claimed) = app.dispatch.claim(job, held) {
        return Ok(Some(claimed));
    }
    let events = app.engine.log().read_stream(&StreamId::of::<Job>(job), 0).await?;
    for stored in events.into_iter().rev() {
        let is_it = |event: &JobEvent| matches!(event, JobEvent::Claimed { execution, .. } if *execution == held);
        if stored.event_type == "job.claimed" && stored.decode()?.iter().any(is_it) {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

/// Manifest that the server does not have any more, or whose bytes are damaged.
#[derive(Debug, thiserror::Error)]
#[error("the server lost the manifest {0} of the job; start the run or the build again")]
pub(super) struct LostManifest(pub Digest);

/// Signed manifest of the job.
///
/// # Errors
/// The manifest is lost, or cannot be read now.
pub(super) async fn manifest(
    app: &App,
    job: JobId,
) -> Result<Result<SignedManifest, LostManifest>, Problem> {
    let work = app.engine.load::<Job>(job).await?.work.clone();
    let work = work.ok_or_else(|| Problem::not_found(job))?;
    let digest = work.manifest;
    let Some(payload) = stored_manifest(app, &digest).await? else {
        return Ok(Err(LostManifest(digest)));
    };
    let secrets = references(&payload);
    let values = match work.origin {
        Origin::Step { install, .. } => {
            let ids: BTreeSet<_> = secrets.iter().map(|reference| reference.id).collect();
            sensitive::fetch(&app.pool, install, &ids.into_iter().collect::<Vec<_>>()).await?
        }
        Origin::Build { .. } | Origin::Source { .. } | Origin::Preflight { .. } => vec![],
    };
    let payload_type = if secrets.is_empty() { MANIFEST_TYPE } else { MANIFEST_V2_TYPE };
    let key = app.keys.current();
    let envelope = dsse::sign(payload_type, &payload, key.manifests_at(app.now()));
    Ok(Ok(SignedManifest { envelope, values }))
}

/// Returns the bytes of a manifest. `None` if they are lost or damaged.
async fn stored_manifest(app: &App, digest: &Digest) -> Result<Option<Vec<u8>>, Problem> {
    match blob::get(&app.pool, digest).await {
        Ok(payload) => Ok(payload),
        Err(BlobError::Damaged(_)) => Ok(None),
        Err(error @ (BlobError::Database(_) | BlobError::Digest(_))) => Err(error.into()),
    }
}

/// Returns true if the manifest of the job refers to sensitive values.
pub(super) async fn has_references(app: &App, job: JobId) -> Result<bool, Problem> {
    let work = app.engine.load::<Job>(job).await?.work.clone();
    let digest = work.ok_or_else(|| Problem::not_found(job))?.manifest;
    let payload = stored_manifest(app, &digest).await?.unwrap_or_default();
    Ok(!references(&payload).is_empty())
}

/// Returns the references of a manifest. A payload that is no manifest has none: the runner refuses
/// it.
fn references(payload: &[u8]) -> Vec<SecretReference> {
    serde_json::from_slice::<References>(payload).map(|found| found.secrets).unwrap_or_default()
}

/// Part of a manifest that its payload type depends on.
#[derive(Deserialize)]
struct References {
    #[serde(default)]
    secrets: Vec<SecretReference>,
}

/// Manifest as the runner receives it, with the sensitive values that it refers to.
pub(super) struct SignedManifest {
    envelope: Envelope,
    values: Vec<EncryptedValue>,
}

async fn grant(
    app: &App,
    job: JobId,
    execution: &Execution,
    fence: Fence,
    claimed: &StoredEvent,
) -> Result<Envelope, Problem> {
    let Execution { id, attempt, runner, deadline, .. } = *execution;
    let grant = issued(app, job, (id, attempt, runner, deadline), fence, claimed).await?;
    let payload = canonical::json(&grant).map_err(Problem::internal)?;
    let envelope = dsse::sign(GRANT_TYPE, &payload, app.keys.current().manifests_at(app.now()));
    grants::store(&app.grants, &app.pool, payload).await?;
    Ok(envelope)
}

/// Returns true if the server issued a grant with this digest to the execution. The grant is computed
/// from the log, because it is stored only after the claim: a crash can lose it. It contains the key of
/// the runner and the epoch of the log at the time of the claim, which may have changed since.
pub(super) async fn is_issued(
    app: &App,
    job: JobId,
    held: ExecutionId,
    digest: &Digest,
) -> Result<bool, Problem> {
    let Some(claimed) = find_claim(app, job, held).await? else { return Ok(false) };
    let event = claimed.decode::<JobEvent>()?.into_iter().next();
    let Some(JobEvent::Claimed { runner, attempt, deadline, .. }) = event else { return Ok(false) };
    let epoch = app.engine.log().epoch();
    let fence = Fence { epoch, position: claimed.position };
    let mut grant = issued(app, job, (held, attempt, runner, deadline), fence, &claimed).await?;
    let former = app.engine.load::<Runner>(runner).await?.former_keys.clone();
    for key in std::iter::once(grant.runner_key.clone()).chain(former) {
        grant.runner_key = key;
        for epoch in (0..=epoch).rev() {
            grant.fence.epoch = epoch;
            let payload = canonical::json(&grant).map_err(Problem::internal)?;
            if blob::digest(&payload).map_err(Problem::internal)? == *digest {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

async fn issued(
    app: &App,
    job: JobId,
    (execution, attempt, runner, deadline): (ExecutionId, u32, RunnerId, DateTime<Utc>),
    fence: Fence,
    claimed: &StoredEvent,
) -> Result<Grant, Problem> {
    let work = app.engine.load::<Job>(job).await?.work.clone();
    let key = app.engine.load::<Runner>(runner).await?.key().cloned();
    Ok(Grant {
        version: 1,
        log_id: app.engine.log().log_id().to_string(),
        manifest: work.ok_or_else(|| Problem::not_found(job))?.manifest,
        job,
        execution,
        attempt,
        runner,
        runner_key: key.unwrap_or_default(),
        fence,
        // The time of the claim, so that a repeated claim gets the same bytes.
        issued_at: claimed.recorded_at,
        deadline,
    })
}

async fn inclusion(
    app: &App,
    claimed: &StoredEvent,
    head: &Checkpoint,
) -> Result<Inclusion, Problem> {
    let unread = || Problem::internal("event version of a claim is not a number");
    let leaf = claimed.computed_leaf().ok_or_else(unread)?;
    let path = app.engine.log().inclusion(claimed.position, head.size).await;
    let path = path.map_err(proof_problem)?;
    Ok(Inclusion {
        position: claimed.position,
        entry: hex::encode(leaf.canonical()),
        path: path.iter().map(hex::encode).collect(),
    })
}

/// Returns a proof that the log still contains every event that the runner has seen. Returns `None`
/// if the runner has seen no event, a longer log or another log. The runner then decides how to
/// react.
async fn consistency(
    app: &App,
    seen: Option<&str>,
    head: &Checkpoint,
) -> Result<Option<Consistency>, Problem> {
    let Some(note) = seen else { return Ok(None) };
    let seen = Checkpoint::read_unverified(note)
        .map_err(|error| Problem::new(Code::Invalid, error.to_string()))?;
    if seen.size == 0 || seen.size > head.size || seen.log_id != head.log_id {
        return Ok(None);
    }
    let path = app.engine.log().consistency(seen.size, head.size).await;
    let path = path.map_err(proof_problem)?;
    Ok(Some(Consistency { from: seen.size, path: path.iter().map(hex::encode).collect() }))
}

/// Converts a log error. An unavailable database is a temporary problem, and a proof that cannot be
/// built is an internal error.
fn proof_problem(error: LogError) -> Problem {
    match error {
        LogError::Proof(error) => Problem::internal(error),
        error @ (LogError::Database(_)
        | LogError::NoLog
        | LogError::Encoding(_)
        | LogError::Format(_)
        | LogError::Damaged { .. }
        | LogError::Archived { .. }
        | LogError::WrappingKey(_)) => error.into(),
    }
}
