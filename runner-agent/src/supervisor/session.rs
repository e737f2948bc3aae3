//! One life of the agent: what the server and the journal agree on at its beginning.
use std::sync::Arc;

use reqwest::Method;
use schemas::{
    problem::Problem,
    runner::{
        ExecutionState, JournalEntry, OpenSession, PROTOCOL, ProtocolRange, Resume, ResumeAction,
        SessionOpened,
    },
};
use tracing::{info, warn};

use super::{
    Agent,
    adopt::{self, Known},
    attend,
};
use crate::{
    client::{Ask, Refused},
    data, host,
    journal::Fact,
    shim::order::{CancelOrder, Cause},
};

/// Open a session and go on with everything that the journal knows.
pub async fn open(agent: &Arc<Agent>) -> Result<(), Refused> {
    // A claim that is on its way is in the journal already, and is not lost.
    let _no_claim_meanwhile = agent.claims.lock().await;
    let known = adopt::open_ends(agent).map_err(|error| ours(&error))?;
    let journal = known.iter().map(|known| entry(agent, known)).collect();
    let body = OpenSession {
        boot_id: host::boot_id(),
        journal_id: agent.journal.id().map_err(|error| ours(&error))?,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: ProtocolRange { min: PROTOCOL, max: PROTOCOL },
        capabilities: agent.capabilities(),
        slots: agent.settings.slots,
        journal,
        checkpoint: agent.witness.last().map_err(|error| ours(&error))?,
    };
    let ask =
        Ask::json(Method::POST, "/runner/v1/sessions", &body).map_err(|error| ours(&error))?;
    let ask = if known.is_empty() { ask.idle() } else { ask };
    let answer = agent.client.send::<SessionOpened>(&ask).await?;
    let opened = answer.body.ok_or_else(|| ours(&"the answer is empty"))?;
    host::server_said(opened.server_time);
    let (session, generation) = (opened.session_id, opened.generation);
    info!(session.id = %session, "Session {session} is open");
    if let Err(error) = agent.journal.write(Fact::SessionOpened { session, generation }) {
        warn!(%error, "The journal cannot be written");
    }
    let resume = opened.resume.clone();
    {
        let mut state = agent.state();
        state.log = opened.log;
        state.session = Some(opened);
    }
    for known in known {
        let action = said_of(&resume, &known);
        settle(agent, known, action);
    }
    Ok(())
}

/// What is said of one claim. What this process is about to start is as good as alive.
fn entry(agent: &Agent, known: &Known) -> JournalEntry {
    let entry = known.entry(&agent.data);
    let held = agent.state().running.get(&known.job).and_then(|attended| attended.execution);
    match entry.state {
        ExecutionState::NeverSpawned if held.is_some() && held == known.execution => {
            JournalEntry { state: ExecutionState::Alive, ..entry }
        }
        ExecutionState::NeverSpawned
        | ExecutionState::Alive
        | ExecutionState::Exited
        | ExecutionState::Unknown => entry,
    }
}

/// Say good-bye.
pub async fn close(agent: &Agent) {
    let held = agent.state().session.take();
    if let Some(session) = held {
        let path = format!("/runner/v1/sessions/{}", session.session_id);
        let _courtesy =
            agent.client.send::<serde_json::Value>(&Ask::new(Method::DELETE, path)).await;
    }
}

fn said_of(resume: &[Resume], known: &Known) -> Option<ResumeAction> {
    let same = |said: &&Resume| {
        said.job == known.job && (said.execution.is_none() || said.execution == known.execution)
    };
    resume.iter().find(same).map(|said| said.action)
}

/// Go on with one execution, or leave it.
fn settle(agent: &Arc<Agent>, known: Known, action: Option<ResumeAction>) {
    let state = known.state(&agent.data);
    let abandoned = action == Some(ResumeAction::Abandon);
    let (job, claim_id) = (known.job, known.claim_id.clone());
    let Some(execution) = known.execution else {
        return abandon(agent, Fact::Abandoned { job, claim_id, why: "never granted".into() });
    };
    let attended = agent.state().running.get(&job).is_some_and(|held| held.execution.is_some());
    match state {
        ExecutionState::Alive if abandoned => {
            let reason = "the job is no longer this runner's".into();
            agent.cancel(
                execution,
                &CancelOrder { reason, grace_ms: 30_000, cause: Cause::AgentStop },
            );
            abandon(agent, Fact::Abandoned { job, claim_id, why: "no longer ours".into() });
            agent.release(job);
        }
        ExecutionState::Alive | ExecutionState::Exited if !abandoned => {
            if !attended {
                info!(job.id = %job, execution.id = %execution, "Going on with {execution}");
                attend::begin(agent, known);
            }
        }
        ExecutionState::Alive
        | ExecutionState::Exited
        | ExecutionState::NeverSpawned
        | ExecutionState::Unknown => {
            // A claim that is being carried out right now has not been started yet, and will be.
            if state == ExecutionState::NeverSpawned && attended && !abandoned {
                return;
            }
            adopt::end_orphans(&known);
            // What the former agent asked is not asked any more.
            let _best_effort = data::remove(&agent.data.job(execution).question());
            let why = format!("the server heard that it is {}", word(state));
            abandon(agent, Fact::Abandoned { job, claim_id, why });
            agent.release(job);
        }
    }
}

fn word(state: ExecutionState) -> &'static str {
    match state {
        ExecutionState::Alive => "alive",
        ExecutionState::Exited => "exited",
        ExecutionState::NeverSpawned => "never spawned",
        ExecutionState::Unknown => "unknown",
    }
}

fn abandon(agent: &Agent, fact: Fact) {
    if let Fact::Abandoned { job, why, .. } = &fact {
        info!(job.id = %job, "Leaving {job}: {why}");
    }
    if let Err(error) = agent.journal.write(fact) {
        warn!(%error, "The journal cannot be written");
    }
}

fn ours(why: &dyn std::fmt::Display) -> Refused {
    let problem = Problem::new(0, "internal", "The runner could not ask", why.to_string());
    Refused { status: 0, problem, have: None }
}
