//! One life of the agent: what the server and the journal agree on at its beginning.
use std::{io, sync::Arc, time::Duration};

use anyhow::Context as _;
use domain::ids::SessionId;
use reqwest::Method;
use schemas::{
    problem::Problem,
    runner::{
        ExecutionState, JournalEntry, OpenSession, PROTOCOL, ProtocolRange, Resume, ResumeAction,
        SessionOpened,
    },
    token::{AUD_SESSION, Opening},
};
use tracing::{info, warn};

use super::{
    Agent,
    adopt::{self, Known},
    attend, orphans, rekey,
};
use crate::{
    client::{Ask, Refused},
    data, enrol, host,
    journal::Fact,
    shim::order::{CancelOrder, Cause},
};

/// How long a server may take to show its keys.
const KEYS: Duration = Duration::from_secs(60);

/// Open a session and go on with everything that the journal knows.
pub async fn open(agent: &Arc<Agent>) -> Result<(), Refused> {
    rekey::finish(agent).await;
    // A claim that is on its way is in the journal already, and is not lost.
    let _no_claim_meanwhile = agent.claims.lock().await;
    let known = adopt::open_ends(agent).map_err(|error| ours(&error))?;
    // A shim that cannot be inspected must not be reported as gone.
    let journal = known.iter().map(|known| entry(agent, known)).collect::<io::Result<Vec<_>>>();
    let journal = journal.map_err(|error| ours(&error))?;
    let told: Vec<_> = journal.iter().map(|entry| entry.state).collect();
    let journal_id = agent.journal.id().map_err(|error| ours(&error))?;
    let body = OpenSession {
        assertion: String::new(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: ProtocolRange { min: PROTOCOL, max: PROTOCOL },
        capabilities: agent.capabilities(),
        slots: agent.settings.slots,
        journal,
        checkpoint: agent.witness.last().map_err(|error| ours(&error))?,
        journal_head: agent.sign_journal(),
    };
    let ask = || {
        let assertion = sign(agent, &journal_id)?;
        let body = OpenSession { assertion, ..body.clone() };
        let ask = Ask::json(Method::POST, "/runner/v1/sessions", &body);
        let ask = ask?.without_token();
        Ok(if known.is_empty() { ask.idle() } else { ask })
    };
    let mut answer = agent.client.send_anew::<SessionOpened>(ask).await;
    // The server says what time it is, and this host's clock was off.
    if let Some(refused) = answer.as_ref().err().filter(|no| no.code() == "clock_skew") {
        agent.client.correct_clock(refused);
        answer = agent.client.send_anew(ask).await;
    }
    // An opening that was sent more than once may be refused because of what became of an earlier copy. Whether
    // another agent has this identity is only certain with a name that the server cannot know.
    if answer.as_ref().is_err_and(Refused::is_superseded) {
        agent.state().opening = None;
        answer = agent.client.send_anew(ask).await;
    }
    let answer = answer?;
    let opened = answer.body.ok_or_else(|| ours(&"the answer is empty"))?;
    host::server_said(opened.server_time);
    agent.client.opened(&opened).await;
    let (session, generation) = (opened.session_id, opened.generation);
    info!(session.id = %session, "Session {session} is open");
    if let Err(error) = agent.journal.write(Fact::SessionOpened { session, generation }) {
        warn!(%error, "The journal cannot be written");
    }
    let resume = opened.resume.clone();
    {
        let mut state = agent.state();
        state.log = opened.log;
        state.opening = None;
        state.anew.opened();
        state.session = Some(opened);
    }
    renew_keys(agent);
    if rekey::is_due(agent) {
        rekey::begin(agent);
    }
    for (known, told) in known.into_iter().zip(told) {
        let action = said_of(&resume, &known);
        let now = known.state(&agent.data).unwrap_or_else(|error| {
            warn!(job.id = %known.job, %error, "Cannot tell whether the shim runs, assuming what it was");
            told
        });
        if told == ExecutionState::Alive && now == ExecutionState::Unknown {
            // It ended while this was said. That nobody knows how is for the server to hear, too.
            agent.ask_anew();
            continue;
        }
        settle(agent, known, now, action);
    }
    Ok(())
}

/// A key that was taken back must not be believed because what it signed once still verifies.
pub(super) fn renew_keys(agent: &Arc<Agent>) {
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        if let Err(error) = keys_renewed(&agent, KEYS).await {
            warn!("The server's keys are not believed: {error:#}");
        }
    });
}

/// Ask for the server's keys and believe them, if the ones that are believed by then vouch for them.
pub(super) async fn keys_renewed(agent: &Agent, within: Duration) -> anyhow::Result<()> {
    let shown = tokio::time::timeout(within, enrol::fetch_keys(&agent.client)).await;
    let shown = shown.context("the server did not show them in time")??;
    // Several may have asked. One that was answered before another must not undo what that one brought.
    let _one_at_a_time = agent.renewals.lock().await;
    let held = agent.state().server_keys.clone();
    let renewed = enrol::renew_keys(&agent.data, &shown, &held)?;
    agent.state().server_keys = renewed;
    Ok(())
}

/// Our word that it is us who open this session. An opening whose answer was lost goes on under its name: the
/// server takes it for the same one.
fn sign(agent: &Agent, journal_id: &str) -> anyhow::Result<String> {
    let new = || SessionId(ulid::Ulid::new());
    let session = *agent.state().opening.get_or_insert_with(new);
    let now = host::server_now().timestamp();
    let opening = Opening {
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

/// What is said of one claim. What this process is about to start is as good as alive.
fn entry(agent: &Agent, known: &Known) -> io::Result<JournalEntry> {
    let entry = known.entry(&agent.data)?;
    let held = agent.state().running.get(&known.job).and_then(|attended| attended.execution);
    Ok(match entry.state {
        ExecutionState::NeverSpawned if held.is_some() && held == known.execution => {
            JournalEntry { state: ExecutionState::Alive, ..entry }
        }
        ExecutionState::NeverSpawned
        | ExecutionState::Alive
        | ExecutionState::Exited
        | ExecutionState::Unknown => entry,
    })
}

/// Say good-bye.
pub async fn close(agent: &Agent) {
    let held = agent.state().session.take();
    // What was written since the last job is signed, too. The server hears of it with the next session.
    agent.sign_journal();
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
fn settle(agent: &Arc<Agent>, known: Known, state: ExecutionState, action: Option<ResumeAction>) {
    let abandoned = action == Some(ResumeAction::Abandon);
    let (job, claim_id) = (known.job, known.claim_id.clone());
    let Some(execution) = known.execution else {
        return abandon(agent, Fact::Abandoned { job, claim_id, reason: "never granted".into() });
    };
    let held = agent.state().running.get(&job).and_then(|held| held.execution);
    let attended = held == Some(execution);
    match state {
        ExecutionState::Alive if abandoned => {
            let reason = "the job is no longer this runner's".into();
            let cause = Cause::AgentStop;
            agent.cancel(execution, &CancelOrder { reason, grace_ms: None, cause });
            abandon(agent, Fact::Abandoned { job, claim_id, reason: "no longer ours".into() });
            agent.release(job, Some(execution));
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
            orphans::end(agent, &known);
            // What the former agent asked is not asked any more.
            let _best_effort = data::remove(&agent.data.job(execution).question());
            let why = format!("the server heard that it is {}", word(state));
            abandon(agent, Fact::Abandoned { job, claim_id, reason: why });
            if adopt::began_late(agent, execution) {
                let reason = "the job is no longer this runner's".into();
                let cause = Cause::AgentStop;
                agent.cancel(execution, &CancelOrder { reason, grace_ms: None, cause });
            }
            agent.release(job, Some(execution));
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
    if let Fact::Abandoned { job, reason: why, .. } = &fact {
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
