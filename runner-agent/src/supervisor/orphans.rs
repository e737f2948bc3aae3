//! Ends processes that a dead shim left behind.
//!
//! Four records identify the processes of a job. Each record can find processes that the other
//! records miss:
//!
//! - the process groups of the children, in the journal
//! - the session of the shim
//! - the control group of the job
//! - the execution id in the environment
//!
//! To end a job, the agent uses only these records. After each job, the [`sweep`] ends adopted
//! processes that no record identifies.
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

use super::{Agent, recover::OpenClaim};
use crate::{
    cgroup::Cgroup,
    data::Data,
    host::Process,
    processes::{self, RunningProcess},
    shim::leftovers::labels,
    tasks,
};

const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time until `/proc` is read again after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout for the kernel to end killed processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Jobs whose processes this agent ends or has ended.
#[derive(Debug, Default)]
pub(crate) struct OrphanedJobs {
    /// Value is `true` while the processes of the job are being ended, and `false` afterwards.
    jobs: BTreeMap<ExecutionId, bool>,
    /// Longest grace period of the jobs since the last sweep.
    grace: Duration,
}

impl OrphanedJobs {
    /// Marks a job as busy. Returns `false` if its processes are already being ended.
    fn begin(&mut self, execution: ExecutionId, grace: Duration) -> bool {
        self.grace = self.grace.max(grace);
        self.jobs.insert(execution, true) != Some(true)
    }

    fn finish(&mut self, execution: ExecutionId) {
        self.jobs.insert(execution, false);
    }

    /// Returns the executions whose processes are being ended.
    pub(super) fn busy(&self) -> BTreeSet<ExecutionId> {
        let busy = self.jobs.iter().filter(|(_, is_ending)| **is_ending);
        busy.map(|(execution, _)| *execution).collect()
    }

    fn is_busy(&self) -> bool {
        self.jobs.values().any(|is_ending| *is_ending)
    }
}

/// Ends the processes of a job in the background, as its shim would have done: stop signal, grace
/// period, then SIGKILL until none is left or [`KILL_TIMEOUT`] has passed. Then runs the sweep.
pub(super) fn end(agent: &Arc<Agent>, claim: &OpenClaim) {
    let Some(execution) = claim.execution else { return };
    let orphans = Orphans::of(&agent.data, claim, execution);
    // Only one task may signal a job: a second SIGINT makes Terraform abort.
    if !agent.state().orphans.begin(execution, orphans.grace()) {
        return;
    }
    let agent = Arc::clone(agent);
    tasks::detach("end orphans", async move {
        orphans.end().await;
        agent.state().orphans.finish(execution);
        sweep::run(&agent).await;
    });
}

struct Orphans {
    claim: OpenClaim,
    execution: String,
    cgroup: Option<Cgroup>,
}

impl Orphans {
    fn of(data: &Data, claim: &OpenClaim, execution: ExecutionId) -> Orphans {
        let cgroup = Cgroup::of(&data.job(execution));
        Orphans { cgroup, execution: execution.to_string(), claim: claim.clone() }
    }

    fn grace(&self) -> Duration {
        let graces = self.claim.children.iter().map(|(_, stop)| stop.grace_ms);
        Duration::from_millis(graces.max().unwrap_or_default())
    }

    async fn end(&self) {
        let job = self.claim.job;
        let until = Instant::now() + self.grace();
        let (mut stopped, mut signalled, mut killed_at) = (false, BTreeSet::new(), None);
        loop {
            let (left, groups) = match self.remaining().and_then(|left| Ok((left, self.groups()?)))
            {
                Ok(found) => found,
                Err(error) => {
                    warn!(job.id = %job, %error, "Cannot list the remaining processes of a job, retrying");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    continue;
                }
            };
            if left.is_empty() && groups.is_empty() {
                break;
            }
            // Send the stop signal once: a second SIGINT makes Terraform abort and lose its state.
            if !stopped && killed_at.is_none() {
                stopped = true;
                let processes = labels(&left).join(", ");
                warn!(job.id = %job, processes, "Shim ended without a result; the agent ends the remaining processes of the job");
                self.stop_groups(&groups);
            }
            if Instant::now() < until {
                let grouped =
                    |of: &&RunningProcess| groups.iter().any(|group| group.pid == of.group());
                let others = processes::topmost(&left).filter(|of| !grouped(of));
                for process in others.filter(|of| signalled.insert(of.pid())) {
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
                    warn!(job.id = %job, processes, "Cannot end the remaining processes of a job");
                    return;
                }
            }
            processes::reap();
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        if killed_at.is_some() {
            info!(job.id = %job, "Killed the remaining processes of a job");
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    /// Sends each child's process group the stop signal of its program. The group receives no other
    /// signal during the grace period.
    fn stop_groups(&self, groups: &[Process]) {
        for (child, stop) in self.claim.children.iter().filter(|(child, _)| groups.contains(child))
        {
            signal(child, stop.signal.parse().unwrap_or(Signal::SIGTERM));
        }
    }

    /// Returns the process groups of the plugin's children that have members.
    fn groups(&self) -> io::Result<Vec<Process>> {
        let mut groups = Vec::new();
        for (child, _) in &self.claim.children {
            if child.group_lives(self.claim.shim())? {
                groups.push(child.clone());
            }
        }
        Ok(groups)
    }

    /// Returns the processes that a record of this job identifies, and their descendants.
    fn remaining(&self) -> io::Result<Vec<RunningProcess>> {
        // A process can fork and exit while `/proc` is read. A second scan finds a child that the
        // first scan missed.
        let left = self.scan();
        if left.as_ref().is_ok_and(Vec::is_empty) { self.scan() } else { left }
    }

    fn scan(&self) -> io::Result<Vec<RunningProcess>> {
        let mut left = processes::of_execution(&self.execution)?;
        let mut roots = self.cgroup.as_ref().map(Cgroup::members).unwrap_or_default();
        for (child, _) in &self.claim.children {
            if child.is_alive()? {
                roots.insert(child.pid);
            }
        }
        left.extend(processes::among(&roots)?);
        if let Some(shim) = self.claim.shim() {
            left.extend(processes::of_session(shim)?);
        }
        Ok(left)
    }
}

fn signal(group: &Process, signal: Signal) {
    if let Ok(pid @ 2..) = i32::try_from(group.pid) {
        // The group may end between the check and the signal.
        let _gone = killpg(Pid::from_raw(pid), signal);
    }
}
