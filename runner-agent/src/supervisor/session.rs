//! Opens and closes sessions. A new session reconciles the journal with the server.
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use domain::ids::SessionId;
use install_keys::Of;
use reqwest::Method;
use schemas::{
    problem::Problem,
    runner::{
        CustomerValue, ExecutionState, JournalEntry, OpenSession, PROTOCOL, ProtocolRange, Resume,
        ResumeAction, SessionOpened, WrappedSeed,
    },
    secret::FEATURE,
    token::{AUD_SESSION, SessionAssertion},
};
use tracing::{info, warn};

use super::{
    Agent, monitor, orphans,
    recover::{self, OpenClaim},
    rekey,
};
use crate::{
    client::{ApiRequest, ServerRejection},
    data, enrol, host, ids,
    journal::JournalEvent,
    policy::Choice,
    recovery,
    shim::order::{CancelOrder, StopCause},
    tasks,
    values::customer,
};

/// Pause before another report of values that the server could not record.
const VALUES_RETRY: Duration = Duration::from_secs(15);
/// Timeout for fetching the server's keys.
const KEYS_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens a session and continues every open claim of the journal.
pub async fn open(agent: &Arc<Agent>) -> Result<(), ServerRejection> {
    rekey::complete_pending(agent).await;
    // The lock prevents new claims. A claim that was sent before is in the journal, so the session
    // reports it.
    let _no_claim_meanwhile = agent.claim_lock.lock().await;
    let claims = recover::open_claims(agent).map_err(|error| local_error(&error))?;
    // A shim that cannot be inspected must not be reported as ended.
    let journal =
        claims.iter().map(|claim| session_entry(agent, claim)).collect::<io::Result<Vec<_>>>();
    let journal = journal.map_err(|error| local_error(&error))?;
    let reported_states: Vec<_> = journal.iter().map(|entry| entry.state).collect();
    let journal_id = agent.journal.id().map_err(|error| local_error(&error))?;
    let body = OpenSession {
        assertion: String::new(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: ProtocolRange { min: PROTOCOL, max: PROTOCOL },
        capabilities: agent.capabilities(),
        slots: agent.settings.slots,
        journal,
        checkpoint: agent.witness.last().map_err(|error| local_error(&error))?,
        journal_head: agent.sign_journal(),
        install_keys: agent.keys.signed_install_keys(),
        features: vec![FEATURE.into()],
        policy: Choice::digest(&agent.data),
        customer_values: reported_values(agent),
        wrapped_seeds: reported_seeds(agent),
    };
    let request = || {
        let assertion = sign_request(agent, &journal_id)?;
        let body = OpenSession { assertion, ..body.clone() };
        let request = ApiRequest::json(Method::POST, "/runner/v1/sessions", &body);
        let request = request?.without_token();
        Ok(if claims.is_empty() { request.idle() } else { request })
    };
    let mut response = agent.client.send_signed::<SessionOpened>(request).await;
    // The host's clock is wrong: correct the estimated server time and retry.
    if let Some(rejection) = response.as_ref().err().filter(|error| error.code() == "clock_skew") {
        agent.client.correct_clock(rejection);
        response = agent.client.send_signed(request).await;
    }
    // A repeated request can be rejected because of its earlier copy. Only a new session id shows
    // whether another agent uses this identity.
    if response.as_ref().is_err_and(ServerRejection::is_superseded) {
        agent.state().opening_session = None;
        response = agent.client.send_signed(request).await;
    }
    let response = response?;
    let opened = response.body.ok_or_else(|| local_error(&"the response has no body"))?;
    host::set_server_time(opened.server_time);
    agent.client.opened(&opened).await;
    let (session, generation) = (opened.session_id, opened.generation);
    info!(session.id = %session, "Opened a session");
    if let Err(error) = agent.journal.write(JournalEvent::SessionOpened { session, generation }) {
        warn!(%error, "Cannot write the journal");
    }
    let are_missing = opened.recorded_values.as_ref().is_some_and(|recorded| {
        body.customer_values.iter().flatten().any(|value| !recorded.contains(&value.id))
    });
    // For example, a run is in progress. It needs the slots of this runner, so this is no request for
    // a session, before which the agent accepts no jobs.
    agent.state().values_retry_at = are_missing.then(|| Instant::now() + VALUES_RETRY);
    let resume = opened.resume.clone();
    {
        let mut state = agent.state();
        state.log = opened.log;
        state.opening_session = None;
        state.session_renewal.opened();
        state.session = Some(opened);
    }
    start_key_renewal(agent);
    if rekey::is_due(agent) {
        rekey::begin(agent);
    }
    for (claim, reported) in claims.into_iter().zip(reported_states) {
        let action = action_for(&resume, &claim);
        let now = claim.state(&agent.data).unwrap_or_else(|error| {
            warn!(job.id = %claim.job, %error, "Cannot determine whether the shim runs, assuming the reported state");
            reported
        });
        if reported == ExecutionState::Alive && now == ExecutionState::Unknown {
            // The shim ended during the request. A further session must report the unknown outcome.
            agent.request_session();
            continue;
        }
        resume_or_abandon(agent, claim, now, action);
    }
    Ok(())
}

/// Returns what the server may know of the customer's values. The poll loop compares the time of the
/// last change with the one that is recorded here.
fn reported_values(agent: &Agent) -> Option<Vec<CustomerValue>> {
    let changed_at = customer::changed_at(&agent.data);
    match customer::list(&agent.data) {
        Ok(values) => {
            agent.state().values_reported_at = changed_at;
            Some(values)
        }
        Err(error) => {
            warn!(%error, "Cannot read the values that the customer set; the server does not learn of new ones");
            None
        }
    }
}

/// Returns the wrapped seeds for the server. Those of other keys are useless, so it does not get
/// them.
fn reported_seeds(agent: &Agent) -> Option<Vec<WrappedSeed>> {
    let (keys, install) = (agent.keys.install.as_ref()?, agent.identity.install?);
    let of = Of { log_id: &agent.identity.log_id, install };
    agent.state().recipients_reported_at = recovery::changed_at(&agent.data);
    match recovery::reported(&agent.data, keys, &of) {
        Ok(seeds) => Some(seeds),
        Err(error) => {
            warn!(
                error = format!("{error:#}"),
                "Cannot read the wrapped seeds; the server keeps those that it has"
            );
            None
        }
    }
}

/// Fetches the server's keys in the background. The signatures of a revoked key still verify, so
/// the runner must learn of the revocation.
pub(super) fn start_key_renewal(agent: &Arc<Agent>) {
    let agent = Arc::clone(agent);
    tasks::detach("key renewal", async move {
        if let Err(error) = renew_keys(&agent, KEYS_TIMEOUT).await {
            warn!(error = format!("{error:#}"), "Cannot fetch the server's keys");
        }
    });
}

/// Fetches the server's key list. Accepts the list if a key that is trusted at the arrival of the
/// list has signed it.
pub(super) async fn renew_keys(agent: &Agent, timeout: Duration) -> anyhow::Result<()> {
    let fetched = tokio::time::timeout(timeout, enrol::fetch_keys(&agent.client)).await;
    let fetched =
        fetched.context("cannot fetch the server's keys: the server did not respond in time")??;
    // Fetches can run concurrently. An older response must not overwrite a newer list.
    let _one_at_a_time = agent.key_renewal_lock.lock().await;
    let current = agent.state().server_keys.clone();
    let renewed = enrol::renew_keys(&agent.data, &fetched, &current)?;
    agent.state().server_keys = renewed;
    Ok(())
}

/// Signs the session request. A retry after a lost response keeps its session id, so the server
/// recognizes the request.
fn sign_request(agent: &Agent, journal_id: &str) -> anyhow::Result<String> {
    let new = || SessionId(ids::new_ulid());
    let session = *agent.state().opening_session.get_or_insert_with(new);
    let now = host::server_now().timestamp();
    let opening = SessionAssertion {
        sub: agent.identity.runner,
        aud: AUD_SESSION.into(),
        iat: now,
        exp: now + 60,
        session,
        boot_id: host::boot_id(),
        journal_id: journal_id.to_owned(),
        process_id: agent.process_id.clone(),
    };
    Ok(agent.keys.identity.assert(&opening)?)
}

/// Returns the session entry of one claim. An execution that this process is about to start counts
/// as alive.
fn session_entry(agent: &Agent, claim: &OpenClaim) -> io::Result<JournalEntry> {
    let entry = claim.entry(&agent.data)?;
    let current = agent.state().running.get(&claim.job).and_then(|running| running.execution);
    Ok(match entry.state {
        ExecutionState::NeverSpawned if current.is_some() && current == claim.execution => {
            JournalEntry { state: ExecutionState::Alive, ..entry }
        }
        ExecutionState::NeverSpawned
        | ExecutionState::Alive
        | ExecutionState::Exited
        | ExecutionState::Unknown => entry,
    })
}

/// Signs the journal, and ends the session on the server if one is open.
pub async fn close(agent: &Agent) {
    let session = agent.state().session.take();
    // Sign the entries since the last job, too.
    agent.sign_journal();
    if let Some(session) = session {
        let path = format!("/runner/v1/sessions/{}", session.session_id);
        let _courtesy =
            agent.client.send::<serde_json::Value>(&ApiRequest::new(Method::DELETE, path)).await;
    }
}

fn action_for(resume: &[Resume], claim: &OpenClaim) -> Option<ResumeAction> {
    let is_for_claim = |resume_entry: &&Resume| {
        resume_entry.job == claim.job
            && (resume_entry.execution.is_none() || resume_entry.execution == claim.execution)
    };
    resume.iter().find(is_for_claim).map(|resume_entry| resume_entry.action)
}

/// Continues one execution or abandons it.
fn resume_or_abandon(
    agent: &Arc<Agent>,
    claim: OpenClaim,
    state: ExecutionState,
    action: Option<ResumeAction>,
) {
    let abandoned = action == Some(ResumeAction::Abandon);
    let (job, claim_id) = (claim.job, claim.claim_id.clone());
    let Some(execution) = claim.execution else {
        return abandon(
            agent,
            JournalEvent::Abandoned { job, claim_id, reason: "the claim was not granted".into() },
        );
    };
    let current = agent.state().running.get(&job).and_then(|running| running.execution);
    let is_monitored = current == Some(execution);
    match state {
        ExecutionState::Alive if abandoned => {
            let reason = "the job no longer belongs to this runner".into();
            let cause = StopCause::AgentStop;
            agent.cancel(execution, &CancelOrder { reason, grace_ms: None, cause });
            abandon(
                agent,
                JournalEvent::Abandoned {
                    job,
                    claim_id,
                    reason: "the server reported that the job no longer belongs to this runner"
                        .into(),
                },
            );
            agent.release(job, Some(execution));
        }
        ExecutionState::Alive | ExecutionState::Exited if !abandoned => {
            if !is_monitored {
                info!(job.id = %job, execution.id = %execution, "Continuing the execution");
                monitor::begin(agent, claim);
            }
        }
        ExecutionState::Alive
        | ExecutionState::Exited
        | ExecutionState::NeverSpawned
        | ExecutionState::Unknown => {
            // This process handles the claim and has not started its shim yet.
            if state == ExecutionState::NeverSpawned && is_monitored && !abandoned {
                return;
            }
            orphans::end(agent, &claim);
            // The approval request of the earlier agent is invalid.
            let _best_effort = data::remove(&agent.data.job(execution).approval_request());
            let why =
                format!("the runner reported the execution to the server as {}", state_name(state));
            abandon(agent, JournalEvent::Abandoned { job, claim_id, reason: why });
            if recover::started_late(agent, execution) {
                let reason = "the job no longer belongs to this runner".into();
                let cause = StopCause::AgentStop;
                agent.cancel(execution, &CancelOrder { reason, grace_ms: None, cause });
            }
            agent.release(job, Some(execution));
        }
    }
}

fn state_name(state: ExecutionState) -> &'static str {
    match state {
        ExecutionState::Alive => "alive",
        ExecutionState::Exited => "exited",
        ExecutionState::NeverSpawned => "never spawned",
        ExecutionState::Unknown => "unknown",
    }
}

fn abandon(agent: &Agent, event: JournalEvent) {
    if let JournalEvent::Abandoned { job, reason: why, .. } = &event {
        info!(job.id = %job, reason = %why, "Abandoned the claim");
    }
    if let Err(error) = agent.journal.write(event) {
        warn!(%error, "Cannot write the journal");
    }
}

fn local_error(why: &dyn std::fmt::Display) -> ServerRejection {
    let problem = Problem::new(0, "internal", "The runner cannot open a session", why.to_string());
    ServerRejection { status: 0, problem, have: None }
}
