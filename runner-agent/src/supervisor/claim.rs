//! Handles a job offer: claims the job, verifies and authorizes it, and starts its shim. A refusal
//! names the rule.
use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use domain::ids::{ExecutionId, JobId};
use reqwest::Method;
use schemas::{
    keys::KeyList,
    manifest::Manifest,
    runner::{Claim, Claimed, JobKind, RefusedBy, SessionOpened},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::{
    Agent, ExitReason, RunningJob, StopLevel, monitor,
    recover::{ClaimStage, OpenClaim},
    session, spawn,
};
use crate::{
    approval::{self, ApprovalOutcome, ApprovalRequest},
    client::{ApiRequest, ApiResponse},
    disable, host, ids,
    isolation::{self, Trial},
    journal::JournalEvent,
    policy::{Policy, Refusal, publishers},
    shim::order::CancelOrder,
    tasks,
    values::Opener,
    witness::{Expected, LogRejection, Verified},
};

/// Longest wait of an offer for a free slot. The server can learn of the end of a job before the
/// runner releases its slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
const SLOT_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time for a conclusive response to a claim.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait until the runner can fetch an unknown server key that signed a claim. Servers read
/// new keys at shorter intervals.
const KEY_ROTATION_TIMEOUT: Duration = Duration::from_secs(8);
const KEY_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Handles an offer. The runner claims the job if a slot is free now or soon; otherwise the offer
/// expires.
pub(super) fn handle_offer(agent: &Arc<Agent>, job: JobId, kind: JobKind) {
    if !agent.capabilities().contains(&kind) || agent.state().running.contains_key(&job) {
        return;
    }
    let is_reserved = reserve_slot(agent, job);
    let agent = Arc::clone(agent);
    tasks::detach("offer", async move {
        if !is_reserved && !wait_for_slot(&agent, job).await {
            return;
        }
        let mut granted = None;
        match claim_job(&agent, (job, kind), &mut granted).await {
            Ok(Some(claim)) => monitor::begin(&agent, claim),
            Ok(None) => agent.release(job, granted),
            Err(error) => {
                warn!(job.id = %job, error = format!("{error:#}"), "Cannot process the offer");
                agent.release(job, granted);
                // The next session reconciles the claim. Without that session, the server would
                // wait until the deadline for a job that never started.
                agent.request_session();
            }
        }
    });
}

/// Reserves a slot for a job, if one is free and the job has none yet.
fn reserve_slot(agent: &Agent, job: JobId) -> bool {
    if agent.free_slots() == 0 {
        return false;
    }
    let mut state = agent.state();
    let full = state.running.len() >= agent.settings.slots as usize;
    if full || state.running.contains_key(&job) {
        return false;
    }
    state.running.insert(job, RunningJob::default());
    true
}

async fn wait_for_slot(agent: &Agent, job: JobId) -> bool {
    let until = Instant::now() + SLOT_TIMEOUT;
    while Instant::now() < until {
        sleep(SLOT_CHECK_INTERVAL).await;
        if reserve_slot(agent, job) {
            return true;
        }
    }
    false
}

async fn claim_job(
    agent: &Arc<Agent>,
    (job, kind): (JobId, JobKind),
    granted: &mut Option<ExecutionId>,
) -> anyhow::Result<Option<OpenClaim>> {
    let claim_guard = agent.claim_lock.lock().await;
    // The runner may have been disabled or stopped while this task waited for the lock.
    let is_accepting = disable::disabled(&agent.data).is_none()
        && *agent.stop_level.borrow() == StopLevel::KeepRunning;
    let open_session = agent.state().session.clone();
    let Some(session) = open_session.filter(|_| is_accepting) else { return Ok(None) };
    let claim_id = ids::new_ulid().to_string();
    let Some(response) = send_claim(agent, &session, job, &claim_id).await? else {
        return Ok(None);
    };
    let received = host::uptime_ms();
    let Some(claimed) = response.body else {
        anyhow::bail!("cannot read the response to the claim: it has no body")
    };
    host::set_server_time(claimed.server_time);
    let (execution, attempt) = (claimed.execution, claimed.attempt);
    if agent.claim_index(|index| index.was_granted(execution))? {
        warn!(
            job.id = %job,
            execution.id = %execution,
            "Ignoring the replayed response to an earlier claim"
        );
        let why = "execution_known: this runner has claimed the execution before".into();
        agent.journal.write(JournalEvent::ClaimRejected { job, claim_id, reason: why })?;
        return Ok(None);
    }
    agent.journal.write(JournalEvent::Claimed {
        job,
        execution,
        claim_id: claim_id.clone(),
        attempt,
    })?;
    agent.update_job(job, None, |running| running.execution = Some(execution));
    *granted = Some(execution);
    let (execution, children) = (Some(execution), Vec::new());
    let mut claim = OpenClaim { job, execution, claim_id, stage: ClaimStage::Claimed, children };
    let allowed = authorize(agent, (job, kind), &claimed).await;
    drop(claim_guard);
    let allowed = match allowed {
        Ok(allowed) => await_approval(agent, job, &claimed, allowed, received).await,
        Err(refusal) => Err(refusal),
    };
    // No session may open between this check and the start: its request would report that nothing
    // was started.
    let _no_session_meanwhile = agent.claim_lock.lock().await;
    if agent.state().running.get(&job).is_none_or(|running| running.execution != claim.execution) {
        info!(job.id = %job, "The job lost its slot before it was started");
        return Ok(None);
    }
    let allowed = allowed.and_then(|(verified, policy)| {
        let opener = Opener {
            data: &agent.data,
            keys: agent.keys.install.as_ref(),
            log_id: &agent.identity.log_id,
            install: agent.identity.install,
        };
        let values = opener.open(&verified.manifest, &claimed.values)?;
        Ok((verified, policy, values))
    });
    claim.stage = match allowed {
        Ok((verified, policy, values)) => match CancelOrder::of(&agent.data.job(claimed.execution))
        {
            Some(order) => spawn::end_cancelled(agent, job, claimed.execution, &order)?,
            None => {
                let job_of = (&verified, &policy, values);
                spawn::start(agent, job, &claimed, job_of, received).await?
            }
        },
        Err(Refusal { by, rule, detail }) => {
            let execution = claimed.execution;
            warn!(job.id = %job, execution.id = %execution, rule, detail, "Refused the job");
            agent.journal.write(JournalEvent::Refused {
                job,
                execution,
                refused_by: by,
                rule: rule.clone(),
                detail: detail.clone(),
            })?;
            ClaimStage::Refused { by, rule, detail }
        }
    };
    Ok(Some(claim))
}

/// Sends a claim. Returns `None` if the server rejected it.
async fn send_claim(
    agent: &Agent,
    session: &SessionOpened,
    job: JobId,
    claim_id: &str,
) -> anyhow::Result<Option<ApiResponse<Claimed>>> {
    agent.journal.write(JournalEvent::Claiming { job, claim_id: claim_id.into() })?;
    let body = Claim {
        session_id: session.session_id,
        generation: session.generation,
        claim_id: claim_id.into(),
        checkpoint: agent.witness.last()?,
    };
    let request = ApiRequest::json(Method::PUT, format!("/runner/v1/jobs/{job}/claim"), &body)?;
    // The client repeats a request without a conclusive response. The lock of the claims delays all
    // other jobs and the next session, so a server that cannot respond to one claim must not hold it.
    let sent = timeout(CLAIM_TIMEOUT, agent.client.send::<Claimed>(&request)).await;
    let seconds = CLAIM_TIMEOUT.as_secs();
    let sent = sent.with_context(|| {
        format!("cannot claim the job: no conclusive response from the server within {seconds} s")
    })?;
    match sent {
        Ok(response) => Ok(Some(response)),
        Err(rejection) => {
            info!(job.id = %job, error = %rejection, "Cannot claim the job: the server rejected the claim");
            let (claim_id, reason) = (claim_id.into(), rejection.to_string());
            agent.journal.write(JournalEvent::ClaimRejected { job, claim_id, reason })?;
            if rejection.is_superseded() {
                agent.end(ExitReason::Superseded);
            }
            Ok(None)
        }
    }
}

/// Waits for the customer's approval, if the policy requires one for this kind of job.
async fn await_approval(
    agent: &Agent,
    job: JobId,
    claimed: &Claimed,
    (verified, policy): (Verified, Policy),
    received: u64,
) -> Result<(Verified, Policy), Refusal> {
    if !policy.requires_approval(verified.manifest.kind) {
        return Ok((verified, policy));
    }
    let execution = claimed.execution;
    let phase = Some("waiting for the customer's approval".into());
    agent.update_job(job, Some(execution), |running| running.phase = phase);
    let timeout = spawn::approval_timeout(claimed, &verified, &policy, received);
    let request = ApprovalRequest::new(&agent.data, &verified, execution, timeout);
    info!(job.id = %job, "Job waits for the customer's approval: see stead-runner approvals");
    match approval::wait(&agent.data, &agent.journal, &request, timeout).await? {
        // Check the other rules again, because they may have changed during the wait.
        ApprovalOutcome::Approved => reauthorize(agent, verified).await,
        ApprovalOutcome::Cancelled => Ok((verified, policy)),
    }
}

/// Checks the proofs, the customer's policy and the customer's veto command.
async fn authorize(
    agent: &Agent,
    offered: (JobId, JobKind),
    claimed: &Claimed,
) -> Result<(Verified, Policy), Refusal> {
    let verified = verified(agent, offered, claimed).await?;
    let digest = &verified.digest;
    agent.claim_index(|index| index.starts().check(digest)).map_err(journal_refusal)??;
    let manifest = &verified.manifest;
    let verified_event = JournalEvent::Verified {
        execution: claimed.execution,
        manifest: verified.digest.clone(),
        grant: Some(proof::sha256(&verified.grant_bytes).into()),
        kind: manifest.kind,
        class: manifest.class,
        plugin: manifest.plugin.name.clone(),
        fence: verified.grant.fence,
    };
    let note = claimed.checkpoint.clone();
    let written = agent.journal.write(JournalEvent::Checkpoint { note });
    written.and_then(|()| agent.journal.write(verified_event)).map_err(journal_refusal)?;
    let policy = policy(agent)?;
    allows(agent, &policy, manifest)?;
    isolation::choose(&policy, manifest.kind, &Trial::of(&agent.data)).await?;
    spawn::veto(&policy, &verified, spawn::VETO_TIMEOUT).await?;
    Ok((verified, policy))
}

/// Reads the customer's policy. If the policy cannot be read, every job is refused.
fn policy(agent: &Agent) -> Result<Policy, Refusal> {
    Policy::current(&agent.data)
        .map_err(|error| Refusal::policy("policy_unreadable", error.to_string()))
}

/// Checks the policy, and the publisher of a published plugin.
fn allows(agent: &Agent, policy: &Policy, manifest: &Manifest) -> Result<(), Refusal> {
    policy.allows(manifest, host::now())?;
    if manifest.plugin.artifact.is_none() {
        return Ok(());
    }
    let recorded = publishers::recorded(&agent.data).map_err(|error| {
        let detail = format!("cannot read the recorded plugin publishers: {error}; correct plugin-publishers.json in the data directory");
        Refusal::policy("policy_unreadable", detail)
    })?;
    policy.allows_publisher(manifest, &recorded)
}

fn journal_refusal(error: std::io::Error) -> Refusal {
    let detail = format!("cannot use the journal: {error}");
    Refusal { by: RefusedBy::Verification, rule: "journal".into(), detail }
}

/// Checks the rules again that may have changed while an approval was pending.
pub(super) async fn reauthorize(
    agent: &Agent,
    verified: Verified,
) -> Result<(Verified, Policy), Refusal> {
    if let Some(file) = disable::disabled(&agent.data) {
        return Err(Refusal::policy(
            "disabled",
            format!("the runner is disabled: {}", file.reason),
        ));
    }
    let policy = policy(agent)?;
    allows(agent, &policy, &verified.manifest)?;
    isolation::choose(&policy, verified.manifest.kind, &Trial::of(&agent.data)).await?;
    spawn::veto(&policy, &verified, spawn::VETO_TIMEOUT).await?;
    Ok((verified, policy))
}

async fn verified(
    agent: &Agent,
    (job, kind): (JobId, JobKind),
    claimed: &Claimed,
) -> Result<Verified, Refusal> {
    let expected = Expected {
        log_id: agent.identity.log_id.clone(),
        runner: agent.identity.runner,
        runner_key: agent.keys.identity_hex(),
        job,
        kind,
    };
    let verify =
        |keys: &KeyList| agent.witness.verify(claimed, &expected, keys, host::server_now());
    let verified = verify_with_current_keys(agent, verify).await;
    if let Err(refusal) = &verified
        && LogRejection::is_about_the_log(refusal)
    {
        save_evidence(agent, job, claimed, refusal);
    }
    verified
}

/// Saves both heads of a rejected log on this host, so that the evidence does not depend on the
/// server.
fn save_evidence(agent: &Agent, job: JobId, claimed: &Claimed, refusal: &Refusal) {
    let saved = agent.witness.store_evidence(job, claimed, refusal, host::now()).and_then(|name| {
        let evidence = name.unwrap_or_default();
        agent.journal.write(JournalEvent::LogRejected { job, rule: refusal.rule.clone(), evidence })
    });
    match saved {
        Ok(()) => {
            warn!(job.id = %job, "Rejected the vendor's log: see `stead-runner witness evidence`")
        }
        Err(error) => {
            warn!(job.id = %job, %error, "Cannot save the evidence about the vendor's log")
        }
    }
}

/// Verifies with the server keys that the runner trusts. Fetches newer keys until the signature
/// matches or [`KEY_ROTATION_TIMEOUT`] has passed.
///
/// Servers read new keys at different times: the server that responds may not know the key of the
/// server that signed.
async fn verify_with_current_keys<T>(
    agent: &Agent,
    verify: impl Fn(&KeyList) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let until = Instant::now() + KEY_ROTATION_TIMEOUT;
    loop {
        let keys = agent.state().server_keys.clone();
        let refusal = match verify(&keys) {
            Ok(verified) => return Ok(verified),
            Err(refusal) => refusal,
        };
        let of_a_key = matches!(
            refusal.rule.as_str(),
            "manifest_signature" | "grant_signature" | "checkpoint"
        );
        if !of_a_key || Instant::now() >= until {
            return Err(refusal);
        }
        if let Err(error) = session::renew_keys(agent, KEY_ROTATION_TIMEOUT).await {
            warn!(error = format!("{error:#}"), "Cannot fetch the server's keys, retrying");
        }
        let renewed = agent.state().server_keys.clone();
        if renewed.keys == keys.keys {
            sleep(KEY_RETRY_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests;
