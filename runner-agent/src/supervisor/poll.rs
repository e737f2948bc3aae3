//! Polls the server and applies the directives in its responses.
use std::{sync::Arc, time::Duration};

use reqwest::Method;
use schemas::runner::{Directive, DiskUsage, Poll, PollResponse, SentDirective, SessionOpened};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::{Agent, ExitReason, StopLevel, claim, cleanup, rekey, session};
use crate::{
    client::{ApiRequest, ServerRejection},
    disable,
    host::{self, Process},
    recovery,
    shim::order::CancelOrder,
    values::customer,
};

/// Shortest interval between two polls.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between checks of the disable file and of the signals during a long poll.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time without contact to the server after which a draining agent exits. It is longer than the
/// usual long poll of a busy runner.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between fetches of the server's keys within one session.
const KEY_FETCH_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Interval between checks of the identity key's age. The start of a session checks it, too.
const REKEY_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Pause after the server rejected the runner, and longest back-off.
const REJECTION_PAUSE: Duration = Duration::from_secs(30);

/// Polls until the agent must exit.
pub async fn run(agent: &Arc<Agent>) -> anyhow::Result<ExitReason> {
    let mut next = Instant::now();
    let mut wait = None;
    let mut keys_at = Instant::now() + KEY_FETCH_INTERVAL;
    let mut rekey_at = Instant::now() + REKEY_CHECK_INTERVAL;
    // Number of consecutive rejected session requests.
    let mut rejections = 0;
    loop {
        if Instant::now() >= keys_at {
            keys_at = Instant::now() + KEY_FETCH_INTERVAL;
            session::start_key_renewal(agent);
        }
        if Instant::now() >= rekey_at {
            rekey_at = Instant::now() + REKEY_CHECK_INTERVAL;
            if rekey::is_due(agent) {
                rekey::begin(agent);
            }
        }
        agent.recover_journal();
        cleanup::clean_up_if_due(agent);
        if has_unreported(agent) {
            agent.request_session();
        }
        if is_renewal_due(agent) || are_values_due(agent) {
            agent.state().session = None;
        }
        // Local state of this round. A later difference ends the wait.
        let seen = LocalState::of(agent);
        if let Some(ended) = check_exit(agent) {
            return Ok(ended);
        }
        let open_session = agent.state().session.clone();
        let session = match open_session {
            Some(session) => session,
            None => {
                tokio::select! {
                    opened = session::open(agent) => match opened {
                        Ok(()) => rejections = 0,
                        Err(rejection) => {
                            handle_open_rejection(agent, &rejection, &seen, rejections).await;
                            rejections = rejections.saturating_add(1);
                        }
                    },
                    () = wait_for_exit(agent, &seen) => {}
                }
                continue;
            }
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = wait_for_change(agent, &seen) => continue,
        }
        next = Instant::now() + MIN_INTERVAL;
        let request = poll_request(agent, &session, wait.take())?;
        tokio::select! {
            response = agent.client.send::<PollResponse>(&request.0) => match response {
                Ok(response) => {
                    remove_acks(agent, &request.1);
                    if let Some(body) = response.body {
                        host::set_server_time(body.server_time);
                        next = next.max(Instant::now() + Duration::from_millis(body.next.delay_ms));
                        wait = body.next.wait_s;
                        apply_all(agent, body.directives);
                    }
                }
                Err(rejection) => handle_poll_rejection(agent, &rejection, &seen).await,
            },
            // The pending poll sent an older state: drop the poll and send the current state.
            () = wait_for_change(agent, &seen) => {}
        }
    }
}

/// Local state that the server has, or is about to receive.
#[derive(PartialEq)]
struct LocalState {
    free_slots: u32,
    disable_reason: Option<String>,
    stopping: StopLevel,
}

impl LocalState {
    fn of(agent: &Agent) -> Self {
        let stopping = *agent.stop_level.borrow();
        LocalState {
            free_slots: agent.free_slots(),
            disable_reason: disable_reason(agent),
            stopping,
        }
    }
}

/// Checks the running jobs, the disable file and the signals. Returns the reason to exit, if there
/// is one.
fn check_exit(agent: &Agent) -> Option<ExitReason> {
    let (ended, idle) = {
        let state = agent.state();
        // A requested session must open before the exit: no other request reconciles the open
        // claims.
        let can_exit = !state.session_renewal.delays_exit(std::time::Instant::now());
        (state.ended.clone(), state.running.is_empty() && can_exit)
    };
    stop_jobs_if_requested(agent);
    let stop_level = *agent.stop_level.borrow();
    match stop_level {
        StopLevel::Detach => Some(ExitReason::Detached),
        StopLevel::Drain | StopLevel::StopJobs if idle => Some(ExitReason::Drained),
        StopLevel::Drain | StopLevel::StopJobs if is_unreachable(agent) => {
            warn!(
                "Cannot reach the server, exiting: the next agent reports the results of the ended jobs"
            );
            Some(ExitReason::Detached)
        }
        StopLevel::KeepRunning | StopLevel::Drain | StopLevel::StopJobs => ended,
    }
}

/// Returns whether a draining agent runs no shim and cannot reach the server. Its unsent results
/// are in the journal, so the exit does not lose them.
fn is_unreachable(agent: &Agent) -> bool {
    *agent.stop_level.borrow() != StopLevel::KeepRunning
        && agent.client.time_since_contact() >= CONTACT_TIMEOUT
        && agent
            .state()
            .running
            .values()
            .all(|running| !running.shim.as_ref().is_some_and(Process::may_be_alive))
}

fn is_renewal_due(agent: &Agent) -> bool {
    agent.state().session_renewal.is_due(std::time::Instant::now())
}

fn are_values_due(agent: &Agent) -> bool {
    agent.state().values_retry_at.is_some_and(|at| std::time::Instant::now() >= at)
}

/// Stops the jobs if a signal or the customer's disable file requires that, with or without a
/// connection to the server.
fn stop_jobs_if_requested(agent: &Agent) {
    if *agent.stop_level.borrow() == StopLevel::StopJobs {
        agent.stop_all("the agent received a signal to stop all jobs");
    }
    if disable::disabled(&agent.data).is_some_and(|file| file.stop_jobs) {
        agent.stop_all("the customer disabled the runner");
    }
}

/// Returns whether the customer changed values or recovery recipients that only a session reports.
fn has_unreported(agent: &Agent) -> bool {
    let changed_at = (customer::changed_at(&agent.data), recovery::changed_at(&agent.data));
    let state = agent.state();
    changed_at != (state.values_reported_at, state.recipients_reported_at)
}

/// Waits for a change that the server must receive.
async fn wait_for_change(agent: &Agent, seen: &LocalState) {
    let changed = async {
        loop {
            sleep(CHECK_INTERVAL).await;
            if has_unreported(agent) && !agent.state().session_renewal.is_requested() {
                return;
            }
            let is_session_due = is_renewal_due(agent) || are_values_due(agent);
            if LocalState::of(agent) != *seen || is_unreachable(agent) || is_session_due {
                return;
            }
        }
    };
    tokio::select! {
        () = changed => {}
        () = agent.changed.notified() => {}
    }
}

/// Waits for a reason to exit. No other change interrupts a session request: the server may have
/// opened the session, and limits the number of sessions.
async fn wait_for_exit(agent: &Agent, seen: &LocalState) {
    loop {
        sleep(CHECK_INTERVAL).await;
        stop_jobs_if_requested(agent);
        if *agent.stop_level.borrow() != seen.stopping || is_unreachable(agent) {
            return;
        }
    }
}

fn disable_reason(agent: &Agent) -> Option<String> {
    disable::disabled(&agent.data).map(|file| file.reason)
}

fn poll_request(
    agent: &Agent,
    session: &SessionOpened,
    wait: Option<u64>,
) -> anyhow::Result<(ApiRequest, Vec<String>)> {
    let running = agent.running();
    let spool_bytes = {
        let state = agent.state();
        let waiting = |job: &super::RunningJob| job.log_len.saturating_sub(job.log_sent);
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
        disabled: disable_reason(agent),
    };
    let request = ApiRequest::json(Method::POST, format!("/runner/v1/poll?wait={wait}"), &body)?
        .parked(Duration::from_secs(wait));
    Ok((if busy { request } else { request.idle() }, ack))
}

fn remove_acks(agent: &Agent, acknowledged: &[String]) {
    agent.state().acks.retain(|ack| !acknowledged.contains(ack));
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
        Directive::Offer { job, kind, .. } => claim::handle_offer(agent, job, kind),
        Directive::Cancel { execution, reason, grace_s, force, .. } => {
            agent.cancel(execution, &CancelOrder::of_vendor(reason, grace_s, force));
        }
        Directive::Tail { job, on } => {
            debug!(job.id = %job, on, "Changed log tailing");
            if let Some(running) = agent.state().running.get_mut(&job) {
                running.tailed = on;
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
            agent.state().rekey_requested = true;
            rekey::begin(agent);
        }
        Directive::Config { log } => agent.state().log = log,
        Directive::Unknown => debug!("Ignoring a directive of a later version"),
    }
}

/// Handles a session request that was rejected or could not be built. Backs off, because the cause
/// may persist.
async fn handle_open_rejection(
    agent: &Agent,
    rejection: &ServerRejection,
    seen: &LocalState,
    before: u32,
) {
    if end_if_required(agent, rejection) {
        return;
    }
    error!(error = %rejection, "Cannot open a session");
    let pause = match rejection.status {
        401 | 403 => REJECTION_PAUSE,
        _ => MIN_INTERVAL.saturating_mul(1 << before.min(16)).min(REJECTION_PAUSE),
    };
    back_off(agent, seen, pause).await;
}

async fn handle_poll_rejection(agent: &Arc<Agent>, rejection: &ServerRejection, seen: &LocalState) {
    if end_if_required(agent, rejection) {
        return;
    }
    if matches!(rejection.status, 401 | 403) {
        error!(error = %rejection, "Cannot poll: the server rejects this runner");
        // The server may know only the pending key and no longer the current one.
        if rekey::is_pending(agent) {
            rekey::begin(agent);
        }
        back_off(agent, seen, REJECTION_PAUSE).await;
    } else {
        info!(error = %rejection, "Session has ended; the runner opens another");
        agent.state().session = None;
        sleep(MIN_INTERVAL).await;
    }
}

/// Ends the agent if the rejection requires it, and returns whether it does.
fn end_if_required(agent: &Agent, rejection: &ServerRejection) -> bool {
    if rejection.is_superseded() {
        agent.end(ExitReason::Superseded);
    } else if rejection.status == 426 {
        let server = rejection.problem.more.get("protocol").cloned();
        let server = server.and_then(|range| serde_json::from_value(range).ok());
        agent.end(ExitReason::NoProtocol { server });
    } else {
        return false;
    }
    true
}

async fn back_off(agent: &Agent, seen: &LocalState, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        () = wait_for_exit(agent, seen) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::supervisor::tests::agent_with_signals;

    #[tokio::test]
    async fn a_repeated_request_for_a_session_does_not_wake_the_loop_again() {
        let (_dir, agent, ..) = agent_with_signals(vec![]).await;
        agent.request_session();
        let seen = LocalState::of(&agent);
        let soon = Duration::from_millis(500);
        assert!(timeout(soon, wait_for_change(&agent, &seen)).await.is_ok());
        agent.request_session();
        assert!(timeout(soon, wait_for_change(&agent, &seen)).await.is_err());
    }

    #[tokio::test]
    async fn a_signal_between_check_and_request_ends_the_wait_once() {
        let (_dir, agent, _, signals) = agent_with_signals(vec![]).await;
        let seen = LocalState::of(&agent);
        signals.send(StopLevel::Drain).unwrap();
        let soon = Duration::from_secs(2);
        assert!(timeout(soon, wait_for_change(&agent, &seen)).await.is_ok());
        assert!(timeout(soon, wait_for_exit(&agent, &seen)).await.is_ok());
        // A change that was seen causes no further requests to a server that rejects the runner.
        let seen = LocalState::of(&agent);
        assert!(timeout(soon, wait_for_exit(&agent, &seen)).await.is_err());
    }
}
