//! Ends the processes that a dead shim left behind, which no process watches any more.
//!
//! Four records lead to the processes of a job, and each finds what the others miss: the groups of the children in the
//! journal, the session of its shim, the job's control group, and the execution's id in the environment. A job is ended
//! by these alone. What this agent adopted and no record leads to is ended by the [`sweep`], after every job.
mod sweep;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ids::ExecutionId;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tracing::{info, warn};

use super::{Agent, adopt::Known};
use crate::{
    cgroup::Cgroup,
    data::Data,
    host::Process,
    processes::{self, Found},
    shim::leftovers::labels,
};

/// Interval between checks.
const LOOK: Duration = Duration::from_millis(200);
/// Time until `/proc` is read again after an error.
const AGAIN: Duration = Duration::from_secs(5);
/// Time that the kernel gets to end killed processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Jobs whose processes this agent ends or has ended.
#[derive(Debug, Default)]
pub(crate) struct Register {
    /// Jobs of which processes are being ended (`true`) or were.
    jobs: BTreeMap<ExecutionId, bool>,
    /// Longest grace period of the jobs since the last sweep.
    grace: Duration,
}

impl Register {
    /// Returns `false` if the processes of this job are being ended already.
    fn begin(&mut self, execution: ExecutionId, grace: Duration) -> bool {
        self.grace = self.grace.max(grace);
        self.jobs.insert(execution, true) != Some(true)
    }

    fn finish(&mut self, execution: ExecutionId) {
        self.jobs.insert(execution, false);
    }

    /// Executions whose processes are being ended.
    pub(super) fn busy(&self) -> BTreeSet<ExecutionId> {
        let busy = self.jobs.iter().filter(|(_, goes_on)| **goes_on);
        busy.map(|(execution, _)| *execution).collect()
    }

    fn is_busy(&self) -> bool {
        self.jobs.values().any(|goes_on| *goes_on)
    }
}

/// Ends the processes of a job in the background: the signal and the grace period that the shim would have given, then SIGKILL
/// until none is left. Processes that belong to no job are ended afterwards.
pub(super) fn end(agent: &Arc<Agent>, known: &Known) {
    let Some(execution) = known.execution else { return };
    let orphans = Orphans::of(&agent.data, known, execution);
    // Two that signal the same job would make Terraform abort: it takes a second SIGINT for that.
    if !agent.state().orphans.begin(execution, orphans.grace()) {
        return;
    }
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        orphans.end().await;
        agent.state().orphans.finish(execution);
        sweep::run(&agent).await;
    });
}

struct Orphans {
    known: Known,
    execution: String,
    cgroup: Option<Cgroup>,
}

impl Orphans {
    fn of(data: &Data, known: &Known, execution: ExecutionId) -> Orphans {
        let cgroup = Cgroup::of(&data.job(execution));
        Orphans { cgroup, execution: execution.to_string(), known: known.clone() }
    }

    fn grace(&self) -> Duration {
        let graces = self.known.children.iter().map(|(_, stop)| stop.grace_ms);
        Duration::from_millis(graces.max().unwrap_or_default())
    }

    async fn end(&self) {
        let job = self.known.job;
        let until = Instant::now() + self.grace();
        let (mut stopped, mut asked, mut killed_at) = (false, BTreeSet::new(), None);
        loop {
            let (left, groups) = match self.left().and_then(|left| Ok((left, self.groups()?))) {
                Ok(found) => found,
                Err(error) => {
                    warn!(job.id = %job, %error, "Cannot look for what a job left behind, trying again");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            if left.is_empty() && groups.is_empty() {
                break;
            }
            // Once: Terraform takes a second SIGINT as an order to abort, and loses its state.
            if !stopped && killed_at.is_none() {
                stopped = true;
                let processes = labels(&left).join(", ");
                warn!(job.id = %job, processes, "The shim ended without a result, ending what it left behind");
                self.stop_groups(&groups);
            }
            if Instant::now() < until {
                let grouped = |of: &&Found| groups.iter().any(|group| group.pid == of.group());
                let others = processes::topmost(&left).filter(|of| !grouped(of));
                for process in others.filter(|of| asked.insert(of.pid())) {
                    process.signal(Signal::SIGTERM);
                }
            } else {
                let killed_at = *killed_at.get_or_insert_with(Instant::now);
                left.iter().for_each(|process| process.signal(Signal::SIGSTOP));
                if let Some(cgroup) = &self.cgroup {
                    cgroup.kill();
                }
                left.iter().for_each(|process| process.signal(Signal::SIGKILL));
                groups.iter().for_each(|group| signal(group, Signal::SIGKILL));
                if killed_at.elapsed() > KILL_TIMEOUT {
                    let processes = labels(&left).join(", ");
                    warn!(job.id = %job, processes, "These processes of the job could not be ended");
                    return;
                }
            }
            processes::reap();
            tokio::time::sleep(LOOK).await;
        }
        if killed_at.is_some() {
            info!(job.id = %job, "What the job left behind had to be killed");
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Sends each child of the plugin the signal that its program stops by. Its group gets no other one meanwhile.
    fn stop_groups(&self, groups: &[Process]) {
        for (child, stop) in self.known.children.iter().filter(|(child, _)| groups.contains(child))
        {
            signal(child, stop.signal.parse().unwrap_or(Signal::SIGTERM));
        }
    }

    /// Groups of the plugin's children that have members.
    fn groups(&self) -> io::Result<Vec<Process>> {
        let mut groups = Vec::new();
        for (child, _) in &self.known.children {
            if child.group_lives(self.known.shim())? {
                groups.push(child.clone());
            }
        }
        Ok(groups)
    }

    /// Processes that a record of this job leads to, and their descendants.
    fn left(&self) -> io::Result<Vec<Found>> {
        // A process can fork and end while `/proc` is read: two looks in a row do not miss both.
        let left = self.look();
        if left.as_ref().is_ok_and(Vec::is_empty) { self.look() } else { left }
    }

    fn look(&self) -> io::Result<Vec<Found>> {
        let mut left = processes::of_execution(&self.execution)?;
        let mut roots = self.cgroup.as_ref().map(Cgroup::members).unwrap_or_default();
        for (child, _) in &self.known.children {
            if child.is_alive()? {
                roots.insert(child.pid);
            }
        }
        left.extend(processes::among(&roots)?);
        if let Some(shim) = self.known.shim() {
            left.extend(processes::of_session(shim)?);
        }
        Ok(left)
    }
}

fn signal(group: &Process, signal: Signal) {
    if let Ok(pid @ 2..) = i32::try_from(group.pid) {
        // It may end between the check and the signal.
        let _gone = killpg(Pid::from_raw(pid), signal);
    }
}
