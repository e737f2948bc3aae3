//! Ends every descendant of a job when the job ends.
use std::{
    collections::BTreeSet,
    io,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use schemas::runner::NOT_ENDED;
use tokio::signal::unix;

use super::limits::Watch;
use crate::{
    cgroup::Cgroup,
    processes::{self, RunningProcess},
};

const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout for the kernel to end killed processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Processes that the plugin left behind.
pub(super) struct Leftovers {
    /// `true` if a process was killed.
    pub killed: bool,
    /// Labels of the processes that could not be ended, for the report.
    pub not_ended: Vec<String>,
}

/// Ends every descendant of this process: SIGTERM, the rest of the job's grace period, then SIGKILL
/// until none is left.
pub(super) async fn end(
    watch: &mut Watch,
    stop: &mut unix::Signal,
    cgroup: Option<&Cgroup>,
) -> Leftovers {
    if let Some(cgroup) = cgroup
        && let Err(error) = cgroup.leave()
    {
        // Killing the group would kill this process. The process tree is complete without the
        // group.
        watch
            .recorder
            .writer()
            .write_shim_record(&format!("the shim cannot leave the job's control group: {error}"));
        return end_all(watch, stop, None).await;
    }
    end_all(watch, stop, cgroup).await
}

async fn end_all(watch: &mut Watch, stop: &mut unix::Signal, cgroup: Option<&Cgroup>) -> Leftovers {
    let until = Instant::now() + watch.grace.min(watch.max_grace);
    let (mut signalled, mut killed_at, mut logged) = (BTreeSet::new(), None, false);
    loop {
        watch.check();
        // If the processes cannot be listed, assume that some still run.
        let left = remaining(cgroup);
        let is_readable = left.is_ok();
        let left = left.unwrap_or_default();
        if is_readable && left.is_empty() {
            return Leftovers { killed: killed_at.is_some(), not_ended: Vec::new() };
        }
        if !logged && is_readable {
            logged = true;
            let names = labels(&left).join(", ");
            watch
                .recorder
                .writer()
                .write_shim_record(&format!("ending remaining processes of the job: {names}"));
        }
        let is_over = watch.forced_at.unwrap_or(until) <= Instant::now();
        if watch.cancel.forced.is_cancelled() || is_over {
            let killed_at = *killed_at.get_or_insert_with(Instant::now);
            // Freeze all processes before killing them one by one, so that none can start another
            // process.
            left.iter().for_each(|process| process.signal(Signal::SIGSTOP));
            if let Some(cgroup) = cgroup {
                cgroup.kill();
            }
            left.iter().for_each(|process| process.signal(Signal::SIGKILL));
            if killed_at.elapsed() > KILL_TIMEOUT {
                let not_ended = match is_readable {
                    true => labels(&left),
                    false => vec!["unknown: /proc cannot be read".into()],
                };
                let names = not_ended.join(", ");
                watch
                    .recorder
                    .writer()
                    .write_shim_record(&format!("cannot end these processes: {names}"));
                return Leftovers { killed: true, not_ended };
            }
        } else {
            for process in processes::topmost(&left).filter(|of| signalled.insert(of.pid())) {
                process.signal(Signal::SIGTERM);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            _signal = stop.recv() => watch.stop_on_signal(),
        }
    }
}

/// Returns the remaining processes. A process can fork and exit while `/proc` is read, so an empty
/// result is checked twice.
fn remaining(cgroup: Option<&Cgroup>) -> io::Result<Vec<RunningProcess>> {
    let scan = || {
        let mut found = processes::descendants()?;
        let members = processes::among(&cgroup.map(Cgroup::members).unwrap_or_default())?;
        found.extend(members.into_iter().filter(|of| of.pid() != std::process::id()));
        Ok(found)
    };
    let found: io::Result<Vec<RunningProcess>> = scan();
    if found.as_ref().is_ok_and(Vec::is_empty) { scan() } else { found }
}

/// Returns distinct labels, no more than a report can hold.
pub(crate) fn labels(left: &[RunningProcess]) -> Vec<String> {
    let all: BTreeSet<String> = left.iter().map(RunningProcess::label).collect();
    let more = all.len().saturating_sub(NOT_ENDED - 1);
    let mut labels: Vec<String> = all.into_iter().take(NOT_ENDED - 1).collect();
    if more > 0 {
        labels.push(format!("{more} more"));
    }
    labels
}
