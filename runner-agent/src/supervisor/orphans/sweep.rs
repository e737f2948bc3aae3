//! Ends adopted processes that belong to no known job. Such a process has left its group, its
//! session and its control group, and has removed the execution id from its environment.
use std::{
    collections::BTreeSet,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tracing::warn;

use super::{CHECK_INTERVAL, KILL_TIMEOUT, Orphans, RETRY_INTERVAL};
use crate::{
    processes::{self, RunningProcess},
    shim::leftovers::labels,
    supervisor::{
        Agent,
        recover::{self, ClaimStage},
    },
};

/// Interval between checks while the adopted processes may belong to a known job.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);

/// Ends the adopted processes that belong to no known job: SIGTERM, then the longest grace period
/// of the ended jobs, then SIGKILL until none is left or [`KILL_TIMEOUT`] has passed.
pub(super) async fn run(agent: &Arc<Agent>) {
    let _one_at_a_time = agent.sweep_lock.lock().await;
    let (mut signalled, mut until, mut killed_at) = (BTreeSet::new(), None, None);
    loop {
        let strays = match strays(agent) {
            Ok(Some(strays)) => strays,
            Ok(None) => {
                // The next processes may be those of another job, so they get their own grace
                // period.
                until = None;
                tokio::time::sleep(BUSY_INTERVAL).await;
                continue;
            }
            Err(error) => {
                warn!(%error, "Cannot list processes that belong to no job, retrying");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        if strays.is_empty() {
            break;
        }
        let until = *until.get_or_insert_with(|| {
            let processes = labels(&strays).join(", ");
            warn!(processes, "Ending processes of dead shims that belong to no known job");
            Instant::now() + agent.state().orphans.grace
        });
        if Instant::now() < until {
            for process in processes::topmost(&strays).filter(|of| signalled.insert(of.pid())) {
                process.signal(Signal::SIGTERM);
            }
        } else {
            let killed_at = *killed_at.get_or_insert_with(Instant::now);
            strays.iter().for_each(|process| process.signal(Signal::SIGSTOP));
            strays.iter().for_each(|process| process.signal(Signal::SIGKILL));
            if killed_at.elapsed() > KILL_TIMEOUT {
                let processes = labels(&strays).join(", ");
                warn!(processes, "Cannot end processes that belong to no known job");
                break;
            }
        }
        processes::reap();
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    let mut state = agent.state();
    if !state.orphans.is_busy() {
        state.orphans.grace = Duration::ZERO;
    }
}

/// Returns the adopted processes that no record of a known job identifies. Returns `None` if the
/// processes may belong to a job that has not ended yet.
fn strays(agent: &Arc<Agent>) -> io::Result<Option<Vec<RunningProcess>>> {
    // List the processes before reading the journal: a shim that ends later has left none of them
    // behind.
    let adopted = processes::adopted;
    let mut strays = match adopted()? {
        none if none.is_empty() => adopted()?,
        some => some,
    };
    if strays.is_empty() {
        return Ok(Some(strays));
    }
    let entries = agent.journal.read()?;
    for claim in recover::abandoned_without_shim(entries.clone()) {
        // The shim was alive when its claim was abandoned.
        let is_new = |execution| !agent.state().orphans.jobs.contains_key(&execution);
        if claim.execution.is_some_and(is_new) {
            super::end(agent, &claim);
        }
    }
    if agent.state().orphans.is_busy() {
        return Ok(None);
    }
    for claim in recover::fold(entries) {
        let Some(execution) = claim.execution else { continue };
        // The job's processes are ended once a session has reported the job.
        if let ClaimStage::Spawned(shim) = &claim.stage
            && !shim.is_alive()?
        {
            return Ok(None);
        }
        let claim_processes = Orphans::of(&agent.data, &claim, execution).remaining()?;
        let claim_processes: BTreeSet<u32> =
            claim_processes.iter().map(RunningProcess::pid).collect();
        strays.retain(|stray| !claim_processes.contains(&stray.pid()));
    }
    Ok(Some(strays))
}
