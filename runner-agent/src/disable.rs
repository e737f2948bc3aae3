//! File that disables the runner. The customer can use it without server and agent.
use std::{io, path::PathBuf};

use anyhow::anyhow;
use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use schemas::moment;
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, Data},
    host,
    journal::{self, Journal, JournalEvent},
    shim::{
        order::{CancelOrder, StopCause},
        recorder::truncate,
    },
    supervisor::recover::{self, ClaimStage},
};

/// Contents of the file that disables the runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisableFile {
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// Reason, shown to the vendor.
    pub reason: String,
    /// `true` if the agent also stops the running jobs.
    #[serde(default)]
    pub stop_jobs: bool,
}

fn path(data: &Data) -> PathBuf {
    data.path("disabled")
}

/// Returns the contents of the file, if the runner is disabled. A file that exists and cannot be
/// read also disables the runner.
pub fn disabled(data: &Data) -> Option<DisableFile> {
    match data::read_json(&path(data)) {
        Ok(file) => file,
        Err(_) => {
            let reason = "cannot read the file that disables the runner".into();
            Some(DisableFile { at: host::now(), reason, stop_jobs: false })
        }
    }
}

/// Reserves disk space for the file.
pub fn keep_reserve(data: &Data) -> io::Result<()> {
    data::keep_reserve(&path(data))
}

/// Disables the runner. The journal entry comes last, so neither a full disk nor a locked
/// journal delays the change.
///
/// # Errors
/// Fails if the file cannot be written, or if the journal cannot be read to find jobs without an
/// agent. Without the file, the running agent exits instead, and the next agent accepts jobs again.
pub fn disable(data: &Data, reason: &str, stop_jobs: bool) -> anyhow::Result<()> {
    let reason = truncate(reason.into(), data::RESERVED_TEXT);
    let file = DisableFile { at: host::now(), reason: reason.clone(), stop_jobs };
    if let Err(error) = data::replace_reserved(&path(data), &file) {
        return Err(stop_agent(data, stop_jobs, &error));
    }
    if stop_jobs && data.agent().is_none() {
        stop_orphans(data, &reason)?;
    }
    let written =
        Journal::open(data).and_then(|journal| journal.write(JournalEvent::Disabled { reason }));
    if let Err(error) = written {
        eprintln!("cannot record in the journal that the runner is disabled: {error}");
    }
    Ok(())
}

/// Requests the stop of jobs that run without an agent. A running agent stops its jobs itself.
fn stop_orphans(data: &Data, reason: &str) -> io::Result<()> {
    for claim in recover::fold(journal::read(&data.path("journal.ndjson"))?) {
        let (Some(execution), ClaimStage::Spawned(shim)) = (claim.execution, claim.stage) else {
            continue;
        };
        let (reason, cause) = (reason.to_owned(), StopCause::AgentStop);
        let order = CancelOrder { reason, grace_ms: None, cause };
        if data::replace_reserved(&data.job(execution).cancel(), &order).is_err() {
            shim.signal(Signal::SIGTERM);
        }
    }
    Ok(())
}

/// Stops the running agent because the file cannot be written, for example on a disk that became
/// read-only. Returns the error for the user.
fn stop_agent(data: &Data, stop_jobs: bool, error: &io::Error) -> anyhow::Error {
    let at = path(data);
    let at = at.display();
    match data.agent() {
        Some(agent) => {
            agent.signal(if stop_jobs { Signal::SIGQUIT } else { Signal::SIGTERM });
            let jobs = if stop_jobs {
                "stops its jobs and exits"
            } else {
                "accepts no new jobs, finishes its running jobs and exits"
            };
            anyhow!(
                "cannot write {at}: {error}; the agent (process {}) {jobs} instead; make {at} writable before you \
                 start another agent",
                agent.pid
            )
        }
        None => anyhow!("cannot write {at}: {error}; no agent runs; make {at} writable"),
    }
}

/// Enables the runner: removes the file, then journals the change.
pub fn enable(data: &Data) -> io::Result<()> {
    data::remove(&path(data))?;
    Journal::open(data)?.write(JournalEvent::Enabled {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_file_disables_the_runner() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        assert_eq!(disabled(&data), None);
        disable(&data, "audit", false).unwrap();
        assert_eq!(disabled(&data).unwrap().reason, "audit");
        std::fs::write(path(&data), "yes").unwrap();
        assert!(disabled(&data).is_some());
        enable(&data).unwrap();
        assert_eq!(disabled(&data), None);
    }
}
