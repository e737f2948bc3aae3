//! End of adopted processes that belong to no known job: they have left their group, their session and their control
//! group, and have removed the execution's id from their environment.
use std::{
    collections::BTreeSet,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tracing::warn;

use super::{AGAIN, KILL_TIMEOUT, LOOK, Orphans};
use crate::{
    processes::{self, Found},
    shim::leftovers::labels,
    supervisor::{
        Agent,
        adopt::{self, Stage},
    },
};

/// Time between two looks while a job is known that these processes may belong to.
const WAIT: Duration = Duration::from_secs(1);

/// Ends them: SIGTERM, the longest grace period of the jobs that were ended, then SIGKILL until nothing is left.
pub(super) async fn run(agent: &Arc<Agent>) {
    let _one_at_a_time = agent.sweeps.lock().await;
    let (mut asked, mut until, mut killed_at) = (BTreeSet::new(), None, None);
    loop {
        let strays = match strays(agent) {
            Ok(Some(strays)) => strays,
            Ok(None) => {
                // Another job may have left the next ones behind: they get their own grace period.
                until = None;
                tokio::time::sleep(WAIT).await;
                continue;
            }
            Err(error) => {
                warn!(%error, "Cannot look for processes that belong to no job, trying again");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if strays.is_empty() {
            break;
        }
        let until = *until.get_or_insert_with(|| {
            let processes = labels(&strays).join(", ");
            warn!(
                processes,
                "Ending processes that dead shims left behind and that belong to no known job"
            );
            Instant::now() + agent.state().orphans.grace
        });
        if Instant::now() < until {
            for process in processes::topmost(&strays).filter(|of| asked.insert(of.pid())) {
                process.signal(Signal::SIGTERM);
            }
        } else {
            let killed_at = *killed_at.get_or_insert_with(Instant::now);
            strays.iter().for_each(|process| process.signal(Signal::SIGSTOP));
            strays.iter().for_each(|process| process.signal(Signal::SIGKILL));
            if killed_at.elapsed() > KILL_TIMEOUT {
                let processes = labels(&strays).join(", ");
                warn!(processes, "These processes could not be ended");
                break;
            }
        }
        processes::reap();
        tokio::time::sleep(LOOK).await;
    }
    let mut state = agent.state();
    if !state.orphans.is_busy() {
        state.orphans.grace = Duration::ZERO;
    }
}

/// Adopted processes that no record of a known job leads to. `None`: they may be those of a job that is not ended yet.
fn strays(agent: &Arc<Agent>) -> io::Result<Option<Vec<Found>>> {
    // First: a shim that ends after this look has left none of these behind.
    let look = processes::adopted;
    let mut strays = match look()? {
        none if none.is_empty() => look()?,
        some => some,
    };
    if strays.is_empty() {
        return Ok(Some(strays));
    }
    let entries = agent.journal.read()?;
    for known in adopt::left_behind(entries.clone()) {
        // Its shim was alive when it was given up.
        let is_new = |execution| !agent.state().orphans.jobs.contains_key(&execution);
        if known.execution.is_some_and(is_new) {
            super::end(agent, &known);
        }
    }
    if agent.state().orphans.is_busy() {
        return Ok(None);
    }
    for known in adopt::fold(entries) {
        let Some(execution) = known.execution else { continue };
        // It is ended once the server has heard of it.
        if let Stage::Spawned(shim) = &known.stage
            && !shim.is_alive()?
        {
            return Ok(None);
        }
        let its = Orphans::of(&agent.data, &known, execution).left()?;
        let its: BTreeSet<u32> = its.iter().map(Found::pid).collect();
        strays.retain(|stray| !its.contains(&stray.pid()));
    }
    Ok(Some(strays))
}
