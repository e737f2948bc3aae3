//! Polls the server and applies the directives in its responses.
use std::{sync::Arc, time::Duration};

use reqwest::Method;
use schemas::runner::{Directive, DiskUsage, Poll, PollResponse, SentDirective, SessionOpened};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::{Agent, Ended, Stopping, claim, rekey, session, tidy};
use crate::{
    client::{Ask, Refused},
    disable,
    host::{self, Process},
    shim::order::CancelOrder,
};

/// Shortest interval between two polls.
const LEAST: Duration = Duration::from_millis(500);
/// Interval between checks of the disable file and of the signals while a poll is parked.
const LOOK: Duration = Duration::from_millis(250);
/// Time without contact to the server after which a draining agent exits. It is longer than the
/// long poll of a busy runner.
const SILENCE: Duration = Duration::from_secs(30);
/// Interval between fetches of the server's keys within one session.
const KEYS: Duration = Duration::from_secs(24 * 3600);
/// Interval between checks of the identity key's age. The start of a session checks it, too.
const REKEY: Duration = Duration::from_secs(3600);
/// Pause after the server rejected the runner, and longest back-off.
const UNWANTED: Duration = Duration::from_secs(30);

/// Polls until the agent must exit.
pub async fn run(agent: &Arc<Agent>) -> anyhow::Result<Ended> {
    let mut next = Instant::now();
    let mut wait = None;
    let mut keys_at = Instant::now() + KEYS;
    let mut rekey_at = Instant::now() + REKEY;
    // Number of consecutive rejected session requests.
    let mut refusals = 0;
    loop {
        if Instant::now() >= keys_at {
            keys_at = Instant::now() + KEYS;
            session::renew_keys(agent);
        }
        if Instant::now() >= rekey_at {
            rekey_at = Instant::now() + REKEY;
            if rekey::is_due(agent) {
                rekey::begin(agent);
            }
        }
        agent.mend_journal();
        tidy::tidy_when_due(agent);
        if is_due(agent) {
            agent.state().session = None;
        }
        // Local state of this round. A later difference ends the wait.
        let seen = Seen::of(agent);
        if let Some(ended) = look(agent) {
            return Ok(ended);
        }
        let held = agent.state().session.clone();
        let session = match held {
            Some(session) => session,
            None => {
                tokio::select! {
                    opened = session::open(agent) => match opened {
                        Ok(()) => refusals = 0,
                        Err(refused) => {
                            not_opened(agent, &refused, &seen, refusals).await;
                            refusals = refusals.saturating_add(1);
                        }
                    },
                    () = must_end(agent, &seen) => {}
                }
                continue;
            }
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = news(agent, &seen) => continue,
        }
        next = Instant::now() + LEAST;
        let ask = ask(agent, &session, wait.take())?;
        tokio::select! {
            answer = agent.client.send::<PollResponse>(&ask.0) => match answer {
                Ok(answer) => {
                    forget_acks(agent, &ask.1);
                    if let Some(body) = answer.body {
                        host::server_said(body.server_time);
                        next = next.max(Instant::now() + Duration::from_millis(body.next.delay_ms));
                        wait = body.next.wait_s;
                        apply_all(agent, body.directives);
                    }
                }
                Err(refused) => not_polled(agent, &refused, &seen).await,
            },
            // The parked poll sent an older state, so drop it and send the current one.
            () = news(agent, &seen) => {}
        }
    }
}

/// Local state that the server has, or is about to receive.
#[derive(PartialEq)]
struct Seen {
    free_slots: u32,
    off: Option<String>,
    stopping: Stopping,
}

impl Seen {
    fn of(agent: &Agent) -> Self {
        let stopping = *agent.stopping.borrow();
        Seen { free_slots: agent.free_slots(), off: reason_off(agent), stopping }
    }
}

/// Checks the children, the disable file and the signals. Returns the reason to exit, if there is
/// one.
fn look(agent: &Agent) -> Option<Ended> {
    let (ended, idle) = {
        let state = agent.state();
        // A requested session reports what no other request reports.
        let told = !state.anew.holds_up(std::time::Instant::now());
        (state.ended.clone(), state.running.is_empty() && told)
    };
    stop_what_has_to(agent);
    let wanted = *agent.stopping.borrow();
    match wanted {
        Stopping::Leave => Some(Ended::Left),
        Stopping::Drain | Stopping::StopJobs if idle => Some(Ended::Drained),
        Stopping::Drain | Stopping::StopJobs if stranded(agent) => {
            warn!(
                "Cannot reach the server, exiting: the next agent reports the results of the ended jobs"
            );
            Some(Ended::Left)
        }
        Stopping::No | Stopping::Drain | Stopping::StopJobs => ended,
    }
}

/// Returns whether a draining agent waits for nothing but an unreachable server. Its unsent results
/// are in the journal, so the exit does not lose them.
fn stranded(agent: &Agent) -> bool {
    *agent.stopping.borrow() != Stopping::No
        && agent.client.silence() >= SILENCE
        && agent
            .state()
            .running
            .values()
            .all(|attended| !attended.shim.as_ref().is_some_and(Process::may_be_alive))
}

/// Returns whether a session renewal is due.
fn is_due(agent: &Agent) -> bool {
    agent.state().anew.is_due(std::time::Instant::now())
}

/// Applies the signals and the customer's disable file, with or without a connection to the server.
fn stop_what_has_to(agent: &Agent) {
    if *agent.stopping.borrow() == Stopping::StopJobs {
        agent.stop_all("the agent received a signal to stop all jobs");
    }
    if disable::off(&agent.data).is_some_and(|off| off.stop_jobs) {
        agent.stop_all("the customer disabled the runner");
    }
}

/// Waits for a change that the server must receive.
async fn news(agent: &Agent, seen: &Seen) {
    let look = async {
        loop {
            sleep(LOOK).await;
            if Seen::of(agent) != *seen || stranded(agent) || is_due(agent) {
                return;
            }
        }
    };
    tokio::select! {
        () = look => {}
        () = agent.changed.notified() => {}
    }
}

/// Waits for a reason to exit. Nothing less interrupts a session request: the server may have
/// opened the session, and limits their number.
async fn must_end(agent: &Agent, seen: &Seen) {
    loop {
        sleep(LOOK).await;
        stop_what_has_to(agent);
        if *agent.stopping.borrow() != seen.stopping || stranded(agent) {
            return;
        }
    }
}

fn reason_off(agent: &Agent) -> Option<String> {
    disable::off(&agent.data).map(|off| off.reason)
}

fn ask(
    agent: &Agent,
    session: &SessionOpened,
    wait: Option<u64>,
) -> anyhow::Result<(Ask, Vec<String>)> {
    let running = agent.running();
    let spool_bytes = {
        let state = agent.state();
        let waiting = |job: &super::Attended| job.log_len.saturating_sub(job.log_sent);
        state.running.values().map(waiting).sum()
    };
    let busy = !agent.state().running.is_empty();
    let ack = agent.state().acks.clone();
    let wait = wait.unwrap_or(session.wait_s);
    // Each poll renews the leases of running jobs, so it must return well before they expire.
    let wait = if busy { wait.min((session.lease_s / 3).max(1)) } else { wait };
    let body = Poll {
        session_id: session.session_id,
        generation: session.generation,
        free_slots: agent.free_slots(),
        ack: ack.clone(),
        running,
        pressure: Some(DiskUsage { spool_bytes, disk_free: host::disk_free(agent.data.root()) }),
        disabled: reason_off(agent),
    };
    let ask = Ask::json(Method::POST, format!("/runner/v1/poll?wait={wait}"), &body)?
        .parked(Duration::from_secs(wait));
    Ok((if busy { ask } else { ask.idle() }, ack))
}

fn forget_acks(agent: &Agent, told: &[String]) {
    agent.state().acks.retain(|ack| !told.contains(ack));
}

fn apply_all(agent: &Arc<Agent>, directives: Vec<SentDirective>) {
    for SentDirective { id, directive } in directives {
        apply(agent, directive);
        agent.state().acks.push(id);
        agent.changed.notify_one();
    }
}

fn apply(agent: &Arc<Agent>, directive: Directive) {
    match directive {
        Directive::Offer { job, kind, .. } => claim::offered(agent, job, kind),
        Directive::Cancel { execution, reason, grace_s, force, .. } => {
            agent.cancel(execution, &CancelOrder::of_vendor(reason, grace_s, force));
        }
        Directive::Tail { job, on } => {
            debug!(job.id = %job, on, "Changed log tailing");
            if let Some(attended) = agent.state().running.get_mut(&job) {
                attended.tailed = on;
            }
        }
        Directive::Drain { reason } => {
            info!(reason, "Draining at the request of the server");
            agent.state().draining = true;
        }
        Directive::Resume => agent.state().draining = false,
        Directive::Upgrade { version, by, .. } => {
            // The customer decides which version of the agent runs.
            warn!(version, by = %by, "The server recommends another agent version");
        }
        Directive::Rekey => {
            agent.state().rekey_wanted = true;
            rekey::begin(agent);
        }
        Directive::Config { log } => agent.state().log = log,
        Directive::Unknown => debug!("Ignoring a directive of a later version"),
    }
}

/// Handles a session request that was rejected or could not be built. The cause may persist, so it
/// backs off.
async fn not_opened(agent: &Agent, refused: &Refused, seen: &Seen, before: u32) {
    if ends(agent, refused) {
        return;
    }
    error!(error = %refused, "Cannot open a session");
    let pause = match refused.status {
        401 | 403 => UNWANTED,
        _ => LEAST.saturating_mul(1 << before.min(16)).min(UNWANTED),
    };
    stay_away(agent, seen, pause).await;
}

/// Handles a rejected poll.
async fn not_polled(agent: &Arc<Agent>, refused: &Refused, seen: &Seen) {
    if ends(agent, refused) {
        return;
    }
    if matches!(refused.status, 401 | 403) {
        error!(error = %refused, "The server rejects this runner");
        // The server may know only the pending key and no longer the current one.
        if rekey::has_begun(agent) {
            rekey::begin(agent);
        }
        stay_away(agent, seen, UNWANTED).await;
    } else {
        info!(error = %refused, "The session has ended, opening another");
        agent.state().session = None;
        sleep(LEAST).await;
    }
}

/// Ends the agent if the rejection requires it, and returns whether it does.
fn ends(agent: &Agent, refused: &Refused) -> bool {
    if refused.is_superseded() {
        agent.end(Ended::Superseded);
    } else if refused.status == 426 {
        let server = refused.problem.more.get("protocol").cloned();
        let server = server.and_then(|range| serde_json::from_value(range).ok());
        agent.end(Ended::NoProtocol { server });
    } else {
        return false;
    }
    true
}

async fn stay_away(agent: &Agent, seen: &Seen, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        () = must_end(agent, seen) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::supervisor::tests::agent_with_signals;

    #[tokio::test]
    async fn a_signal_between_the_look_and_the_call_is_news_once() {
        let (_dir, agent, _, signals) = agent_with_signals(vec![]).await;
        let seen = Seen::of(&agent);
        signals.send(Stopping::Drain).unwrap();
        let soon = Duration::from_secs(2);
        assert!(timeout(soon, news(&agent, &seen)).await.is_ok());
        assert!(timeout(soon, must_end(&agent, &seen)).await.is_ok());
        // A change that was seen causes no further requests to a server that rejects the runner.
        let seen = Seen::of(&agent);
        assert!(timeout(soon, must_end(&agent, &seen)).await.is_err());
    }
}
