//! Handles a job offer: claims the job, verifies and authorizes it, and starts its shim. A refusal
//! names the rule.
use std::{sync::Arc, time::Duration};

use domain::ids::{ExecutionId, JobId};
use reqwest::Method;
use schemas::{
    keys::KeyList,
    runner::{Claim, Claimed, JobKind, RefusedBy},
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{
    Agent, Attended, Ended, Stopping,
    adopt::{Known, Stage},
    attend, session, spawn,
};
use crate::{
    approval::{self, ApprovalRequest, Asked},
    client::Ask,
    disable, host,
    journal::JournalEvent,
    policy::{Policy, Refusal},
    shim::order::CancelOrder,
    witness::{Doubt, Expected, Verified},
};

/// Longest wait of an offer for a free slot. The server can learn of the end of a job before the
/// runner releases its slot.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait for a server key that signed a claim and is not known yet. Every server reads new
/// keys within this time.
const ROTATION: Duration = Duration::from_secs(8);
const AGAIN: Duration = Duration::from_secs(1);

/// Handles an offer. The runner claims the job if a slot is free now or soon; otherwise the offer
/// expires.
pub(super) fn offered(agent: &Arc<Agent>, job: JobId, kind: JobKind) {
    if !agent.capabilities().contains(&kind) || agent.state().running.contains_key(&job) {
        return;
    }
    let held = hold(agent, job);
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        if !held && !hold_soon(&agent, job).await {
            return;
        }
        let mut granted = None;
        match take(&agent, (job, kind), &mut granted).await {
            Ok(Some(known)) => attend::begin(&agent, known),
            Ok(None) => agent.release(job, granted),
            Err(error) => {
                warn!(job.id = %job, error = format!("{error:#}"), "Cannot process the offer");
                agent.release(job, granted);
                // The next session reconciles the claim. Without one, the server would wait until
                // the deadline for a job that never started.
                agent.ask_anew();
            }
        }
    });
}

/// Reserves a slot for a job, if one is free and the job has none yet.
fn hold(agent: &Agent, job: JobId) -> bool {
    if agent.free_slots() == 0 {
        return false;
    }
    let mut state = agent.state();
    let full = state.running.len() >= agent.settings.slots as usize;
    if full || state.running.contains_key(&job) {
        return false;
    }
    state.running.insert(job, Attended::default());
    true
}

async fn hold_soon(agent: &Agent, job: JobId) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        sleep(LOOK).await;
        if hold(agent, job) {
            return true;
        }
    }
    false
}

async fn take(
    agent: &Arc<Agent>,
    (job, kind): (JobId, JobKind),
    granted: &mut Option<ExecutionId>,
) -> anyhow::Result<Option<Known>> {
    let one_after_the_other = agent.claims.lock().await;
    // The runner may have been disabled or stopped while this task waited for the lock.
    let stays = disable::off(&agent.data).is_none() && *agent.stopping.borrow() == Stopping::No;
    let held = agent.state().session.clone();
    let Some(session) = held.filter(|_| stays) else { return Ok(None) };
    let claim_id = ulid::Ulid::new().to_string();
    agent.journal.write(JournalEvent::Claiming { job, claim_id: claim_id.clone() })?;
    let body = Claim {
        session_id: session.session_id,
        generation: session.generation,
        claim_id: claim_id.clone(),
        checkpoint: agent.witness.last()?,
    };
    let ask = Ask::json(Method::PUT, format!("/runner/v1/jobs/{job}/claim"), &body)?;
    let answer = match agent.client.send::<Claimed>(&ask).await {
        Ok(answer) => answer,
        Err(refused) => {
            info!(job.id = %job, error = %refused, "The server did not grant the claim");
            let why = refused.to_string();
            agent.journal.write(JournalEvent::ClaimRejected { job, claim_id, reason: why })?;
            if refused.is_superseded() {
                agent.end(Ended::Superseded);
            }
            return Ok(None);
        }
    };
    let received = host::uptime_ms();
    let Some(claimed) = answer.body else {
        anyhow::bail!("cannot read the response to the claim: it has no body")
    };
    host::server_said(claimed.server_time);
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
    agent.note(job, None, |attended| attended.execution = Some(execution));
    *granted = Some(execution);
    let (execution, children) = (Some(execution), Vec::new());
    let mut known = Known { job, execution, claim_id, stage: Stage::Claimed, children };
    let mut allowed = allowed(agent, (job, kind), &claimed).await;
    drop(one_after_the_other);
    if let Ok((verified, policy)) = &allowed
        && policy.require_approval.contains(&verified.manifest.kind)
    {
        let phase = Some("waiting for the customer's approval".into());
        agent.note(job, execution, |attended| attended.phase = phase);
        let patience = spawn::patience(&claimed, verified, policy, received);
        let question = ApprovalRequest::new(&agent.data, verified, claimed.execution, patience);
        info!(job.id = %job, "Job waits for the customer's approval: see stead-runner approvals");
        match approval::wait(&agent.data, &agent.journal, &question, patience).await {
            // An approval is one of several rules, and the others may have changed.
            Ok(Asked::Approved) => {
                if let Ok((verified, _)) = allowed {
                    allowed = still_allowed(agent, verified).await;
                }
            }
            Ok(Asked::Cancelled) => {}
            Err(no) => allowed = Err(no),
        }
    }
    // No session may open between this check and the start: its request would report that nothing
    // was started.
    let _no_session_meanwhile = agent.claims.lock().await;
    if agent.state().running.get(&job).is_none_or(|held| held.execution != known.execution) {
        info!(job.id = %job, "The job lost its slot before it was started");
        return Ok(None);
    }
    known.stage = match allowed {
        Ok((verified, policy)) => match CancelOrder::of(&agent.data.job(claimed.execution)) {
            Some(order) => spawn::cancelled(agent, job, claimed.execution, &order)?,
            None => spawn::start(agent, job, &claimed, &verified, &policy, received).await?,
        },
        Err(Refusal { by, rule, detail }) => {
            let execution = claimed.execution;
            warn!(job.id = %job, execution.id = %execution, rule, detail, "Refused the job");
            let (rule_of, told) = (rule.clone(), detail.clone());
            let fact = JournalEvent::Refused {
                job,
                execution,
                refused_by: by,
                rule: rule_of,
                detail: told,
            };
            agent.journal.write(fact)?;
            Stage::Refused { by, rule, detail }
        }
    };
    Ok(Some(known))
}

/// Checks the proofs, the customer's policy and the customer's veto command.
async fn allowed(
    agent: &Agent,
    offered: (JobId, JobKind),
    claimed: &Claimed,
) -> Result<(Verified, Policy), Refusal> {
    let verified = verified(agent, offered, claimed).await?;
    let digest = &verified.digest;
    agent.claim_index(|index| index.starts().check(digest)).map_err(unwritten)??;
    let manifest = &verified.manifest;
    let believed = JournalEvent::Verified {
        execution: claimed.execution,
        manifest: verified.digest.clone(),
        grant: Some(proof::sha256(&verified.grant_bytes).into()),
        kind: manifest.kind,
        class: manifest.class,
        plugin: manifest.plugin.name.clone(),
        fence: verified.grant.fence,
    };
    let note = claimed.checkpoint.clone();
    let journalled = agent.journal.write(JournalEvent::Checkpoint { note });
    journalled.and_then(|()| agent.journal.write(believed)).map_err(unwritten)?;
    let policy = policy(agent)?;
    policy.allows(manifest, host::now())?;
    spawn::veto(&policy, &verified, spawn::VETO).await?;
    Ok((verified, policy))
}

/// Reads the customer's policy. A policy that cannot be read refuses every job.
fn policy(agent: &Agent) -> Result<Policy, Refusal> {
    Policy::current(&agent.data)
        .map_err(|error| Refusal::policy("policy_unreadable", error.to_string()))
}

fn unwritten(error: std::io::Error) -> Refusal {
    let detail = format!("cannot use the journal: {error}");
    Refusal { by: RefusedBy::Verification, rule: "journal".into(), detail }
}

/// Checks the rules again that may have changed while an approval was pending.
pub(super) async fn still_allowed(
    agent: &Agent,
    verified: Verified,
) -> Result<(Verified, Policy), Refusal> {
    if let Some(off) = disable::off(&agent.data) {
        return Err(Refusal::policy("disabled", format!("the runner is disabled: {}", off.reason)));
    }
    let policy = policy(agent)?;
    policy.allows(&verified.manifest, host::now())?;
    spawn::veto(&policy, &verified, spawn::VETO).await?;
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
    let verified = under_its_keys(agent, verify).await;
    if let Err(refusal) = &verified
        && Doubt::is_about_the_log(refusal)
    {
        keep_evidence(agent, job, claimed, refusal);
    }
    verified
}

/// Saves both heads of a rejected log on this host, so that the evidence does not depend on the
/// server.
fn keep_evidence(agent: &Agent, job: JobId, claimed: &Claimed, refusal: &Refusal) {
    let kept = agent.witness.keep(job, claimed, refusal, host::now()).and_then(|name| {
        let evidence = name.unwrap_or_default();
        agent.journal.write(JournalEvent::LogRejected { job, rule: refusal.rule.clone(), evidence })
    });
    match kept {
        Ok(()) => {
            warn!(job.id = %job, "Rejected the vendor's log: see `stead-runner witness evidence`")
        }
        Err(error) => {
            warn!(job.id = %job, %error, "Cannot save the evidence about the vendor's log")
        }
    }
}

/// Verifies with the server keys that the runner trusts, and fetches newer keys until a signature
/// matches.
///
/// Servers read new keys at different times: the one that responds may not know the key of the one
/// that signed.
async fn under_its_keys<T>(
    agent: &Agent,
    verify: impl Fn(&KeyList) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let until = Instant::now() + ROTATION;
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
        if let Err(error) = session::keys_renewed(agent, ROTATION).await {
            warn!(error = format!("{error:#}"), "Cannot renew the server's keys, retrying");
        }
        let renewed = agent.state().server_keys.clone();
        if renewed.keys == keys.keys {
            sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests;
