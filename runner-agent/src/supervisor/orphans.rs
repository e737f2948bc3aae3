//! Ends the processes that a dead shim left behind, which no process watches any more.
//!
//! Three records lead to it, and each finds what the others miss: the groups of the children in the journal, the
//! job's control group, and the execution's id in the environment of its processes. What this agent adopted from a
//! shim of its own is found without any record.
use std::{
    collections::BTreeSet,
    io,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tracing::{info, warn};

use super::adopt::Known;
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

/// Ends these processes in the background: the signal and the grace period that the shim would have given, then SIGKILL
/// until none is left.
pub(super) fn end(data: &Data, known: &Known) {
    let Some(execution) = known.execution else { return };
    let (known, dir) = (known.clone(), data.job(execution));
    tokio::spawn(async move {
        let orphans = Orphans { cgroup: Cgroup::of(&dir), execution: execution.to_string(), known };
        orphans.end().await;
    });
}

struct Orphans {
    known: Known,
    execution: String,
    cgroup: Option<Cgroup>,
}

impl Orphans {
    async fn end(&self) {
        let Known { job, children, .. } = &self.known;
        let grace = children.iter().map(|(_, stop)| stop.grace_ms).max().unwrap_or_default();
        let until = Instant::now() + Duration::from_millis(grace);
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

    fn left(&self) -> io::Result<Vec<Found>> {
        let look = || {
            let mut left = processes::of_execution(&self.execution)?;
            let members = self.cgroup.as_ref().map(Cgroup::members).unwrap_or_default();
            left.extend(processes::among(&members)?);
            left.extend(processes::adopted()?);
            Ok(left)
        };
        // A process can fork and end while `/proc` is read: two looks in a row do not miss both.
        let left: io::Result<Vec<Found>> = look();
        if left.as_ref().is_ok_and(Vec::is_empty) { look() } else { left }
    }
}

fn signal(group: &Process, signal: Signal) {
    if let Ok(pid @ 2..) = i32::try_from(group.pid) {
        // It may end between the check and the signal.
        let _gone = killpg(Pid::from_raw(pid), signal);
    }
}
