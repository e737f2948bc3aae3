//! Keeps the data directory within its budgets, even while jobs run.
use std::{
    collections::BTreeSet,
    fs, io,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{digest::Digest, ids::ExecutionId};
use oci_layout::{Layout, Pruning};
use schemas::{manifest::Manifest, preflight::PreflightInputs};
use tracing::{info, warn};

use super::{Agent, quarantine::UnstartedManifests, recover};
use crate::{
    data::Data,
    host,
    journal::{Entry, JournalEvent},
    state::{self, executions_in_progress},
    tasks,
};

/// Interval while the disk has no space for another job, and shortest interval while jobs run.
const INTERVAL: Duration = Duration::from_secs(60);
/// Interval while the disk has space.
const IDLE_INTERVAL: Duration = Duration::from_secs(600);
/// Number of most recently used versions of each component that stay regardless of the budget.
const KEPT_VERSIONS: usize = 2;
/// Largest number of `verified` entries without a shim start that a rotation copies. The quarantine
/// counts them.
const MAX_CRASHED_MANIFESTS: usize = 100;

/// Starts a cleanup in the background if one is due, without waiting for the end of a job: on a
/// full disk, no job can start.
pub(super) fn clean_up_if_due(agent: &Arc<Agent>) {
    let interval = if agent.has_disk_space() { IDLE_INTERVAL } else { INTERVAL };
    if agent.state().last_cleanup.is_some_and(|at| at.elapsed() < interval) {
        return;
    }
    let agent = Arc::clone(agent);
    tasks::detach("cleanup", async move { clean_up(&agent).await });
}

/// Removes files beyond the budgets and rotates a long journal. Does nothing during a claim, and
/// runs at most once per [`INTERVAL`] while jobs run.
pub(super) async fn clean_up(agent: &Arc<Agent>) {
    let Ok(_no_claim_meanwhile) = agent.claim_lock.try_lock() else { return };
    {
        let mut state = agent.state();
        let recently = state.last_cleanup.is_some_and(|at| at.elapsed() < INTERVAL);
        if !state.running.is_empty() && recently {
            return;
        }
        state.last_cleanup = Some(Instant::now());
    }
    let of = Arc::clone(agent);
    let result = tokio::task::spawn_blocking(move || run_cleanup(&of)).await;
    if let Err(error) = result {
        warn!(%error, "Cannot clean up the data directory");
    }
}

/// Prunes jobs and artifacts, and rotates the journal. Continues after a failed step.
fn run_cleanup(agent: &Agent) {
    let ending = agent.state().orphans.busy();
    let open = agent.journal.read().map(|entries| {
        let needed = recover::retained_claims(entries, &ending);
        needed.iter().filter_map(|claim| claim.execution).collect::<BTreeSet<ExecutionId>>()
    });
    let open = match open {
        Ok(open) => open,
        Err(error) => {
            warn!(%error, "Cannot clean up the data directory: the journal cannot be read");
            return;
        }
    };
    match prune_jobs(agent, &open) {
        Ok(0) => {}
        Ok(bytes) => info!(bytes, "Removed files of ended jobs"),
        Err(error) => warn!(%error, "Cannot remove files of ended jobs"),
    }
    match prune_artifacts(agent, &open) {
        Ok(0) => {}
        Ok(bytes) => info!(bytes, "Removed artifacts beyond the budget"),
        Err(error) => {
            warn!(error = format!("{error:#}"), "Cannot remove artifacts beyond the budget")
        }
    }
    // The index must have all entries of the file before the file is rotated.
    let rotated = agent
        .claim_index(|_| ())
        .and_then(|()| agent.journal.rotate(|all| carried_entries(all, &ending)));
    if let Err(error) = rotated {
        warn!(%error, "Cannot rotate the journal");
    }
}

fn prune_jobs(agent: &Agent, open: &BTreeSet<ExecutionId>) -> io::Result<u64> {
    let mut kept = executions_in_progress(&agent.data.path("state"))?;
    kept.extend(open);
    agent.data.sweep(&kept)?;
    agent.data.prune(agent.settings.budgets.jobs, &kept)
}

fn prune_artifacts(agent: &Agent, open: &BTreeSet<ExecutionId>) -> anyhow::Result<u64> {
    let used = artifacts_of(&agent.data, open)?;
    let layout = Layout::new(agent.data.path("artifacts"));
    let (budget, now) = (agent.settings.budgets.artifacts, host::system_time());
    let (min_age, kept_versions) = (Duration::ZERO, KEPT_VERSIONS);
    Ok(layout.prune(&Pruning { budget, used: &used, min_age, kept_versions, now })?)
}

/// Returns the artifacts that open jobs use.
fn artifacts_of(data: &Data, open: &BTreeSet<ExecutionId>) -> io::Result<BTreeSet<Digest>> {
    let (mut used, layout) = (BTreeSet::new(), Layout::new(data.path("artifacts")));
    for execution in open {
        let manifest = match fs::read(data.job(*execution).manifest()) {
            // The job was claimed and not started, so nothing was pulled for it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let manifest: Manifest = serde_json::from_slice(&manifest)?;
        let planned = PreflightInputs::of(&manifest).map(|inputs| inputs.jobs).unwrap_or_default();
        let (artifacts, plugins): (Vec<_>, Vec<_>) =
            planned.into_iter().map(|job| (job.artifacts, job.plugin)).unzip();
        let artifacts = artifacts.into_iter().flatten().chain(manifest.artifacts);
        used.extend(artifacts.map(|artifact| artifact.digest));
        let plugins = plugins.into_iter().chain([manifest.plugin]);
        for plugin in plugins.filter_map(|plugin| plugin.artifact) {
            // One manifest of the index is the plugin for this host. Before the pull of the index,
            // the layout contains none of them.
            let index = layout.platform_index(&plugin.digest).ok();
            used.extend(
                index.iter().flat_map(|index| index.manifests()).map(|(_, m)| m.digest.clone()),
            );
            used.insert(plugin.digest);
        }
    }
    Ok(used)
}

/// Returns the first entries of the next journal file: everything that claims, sessions, recovery
/// and state checks look up in the current file.
fn carried_entries(entries: Vec<Entry>, ending: &BTreeSet<ExecutionId>) -> Vec<JournalEvent> {
    let needed = recover::retained_claims(entries.clone(), ending);
    let claims: BTreeSet<_> = needed.iter().map(|claim| claim.claim_id.as_str()).collect();
    let open: BTreeSet<_> = needed.iter().filter_map(|claim| claim.execution).collect();
    let mut starts = UnstartedManifests::default();
    entries.iter().for_each(|entry| starts.apply(&entry.event));
    let crashed: BTreeSet<_> = starts.executions().rev().take(MAX_CRASHED_MANIFESTS).collect();
    let is_of_state = |event: &JournalEvent| {
        matches!(
            event,
            JournalEvent::StateSeen { .. }
                | JournalEvent::StateAccepted { .. }
                | JournalEvent::StateResolved { .. }
                | JournalEvent::StateUnproved { .. }
        )
    };
    let is_needed = |entry: &Entry| {
        let execution = entry.event.execution();
        let of_claim = entry.event.claim_id().is_some_and(|claim| claims.contains(claim));
        let crash = matches!(entry.event, JournalEvent::Verified { .. });
        let of_execution = execution.is_some_and(|execution| open.contains(&execution));
        let of_crash = crash && execution.is_some_and(|execution| crashed.contains(&execution));
        !is_of_state(&entry.event) && (of_claim || of_execution || of_crash)
    };
    // Commands of the customer use the newest session.
    let is_session = |entry: &&Entry| matches!(entry.event, JournalEvent::SessionOpened { .. });
    let session = entries.iter().rev().find(is_session);
    let jobs = entries.iter().filter(|entry| is_needed(entry)).chain(session).cloned();
    let jobs: Vec<_> =
        jobs.map(|entry| JournalEvent::CarriedOver { original: Box::new(entry) }).collect();
    state::carried(entries).into_iter().chain(jobs).collect()
}

#[cfg(test)]
mod tests {
    use oci_layout::Blob;

    use super::*;
    use crate::{
        artifacts::{LAYER_TYPE, component},
        host, journal,
        supervisor::{
            RunningJob,
            recover::open_claims,
            tests::{agent, another, execution, job, record_claim, until},
        },
    };

    #[tokio::test]
    async fn a_long_journal_is_rotated_and_keeps_the_entries_of_a_running_job() {
        // given a running job, an ended job, and a long journal
        let (_dir, agent, _) = agent(vec![]).await;
        record_claim(&agent);
        agent.journal.write(JournalEvent::Spawning { job: job(), execution: execution() }).unwrap();
        let process = host::Process::of(std::process::id()).unwrap();
        agent
            .journal
            .write(JournalEvent::Spawned { job: job(), execution: execution(), process })
            .unwrap();
        let seen = JournalEvent::StateSeen {
            execution: execution(),
            component: "web".into(),
            lineage: Some("l".into()),
            serial: 7,
            digest: None,
        };
        agent.journal.write(seen).unwrap();
        let session = domain::ids::SessionId(ulid::Ulid::nil());
        for generation in [1, 2] {
            let opened = JournalEvent::SessionOpened { session, generation };
            agent.journal.write(opened).unwrap();
        }
        let claim = "01ARZ3NDEKTSV4RRFFQ69G5FB0";
        let over = JournalEvent::Claimed {
            job: job(),
            execution: another(),
            claim_id: claim.into(),
            attempt: 1,
        };
        agent.journal.write(JournalEvent::Claiming { job: job(), claim_id: claim.into() }).unwrap();
        agent.journal.write(over).unwrap();
        agent.journal.write(JournalEvent::Reported { job: job(), execution: another() }).unwrap();
        agent.journal.write(JournalEvent::Disabled { reason: "x".repeat(5 << 20) }).unwrap();
        let running = RunningJob { execution: Some(execution()), ..RunningJob::default() };
        agent.state().running.insert(job(), running);
        let history = journal::read_all(&agent.data).unwrap().len();
        let before = open_claims(&agent).unwrap();
        // when the agent cleans up
        clean_up(&agent).await;
        // then the current file is short and has every entry that is looked up in it
        let entries = agent.journal.read().unwrap();
        assert!(entries.len() < 9, "{entries:?}");
        let sessions = entries.iter().filter_map(|entry| {
            let JournalEvent::SessionOpened { generation, .. } = entry.event else { return None };
            Some(generation)
        });
        assert_eq!(sessions.collect::<Vec<_>>(), [2], "the newest session");
        assert_eq!((before.len(), open_claims(&agent).unwrap()), (1, before));
        assert_eq!(state::known(&entries)["web"].newest.serial, 7);
        let granted = |of| agent.claim_index(|index| index.was_granted(of)).unwrap();
        assert!(granted(execution()) && granted(another()));
        // and the history is complete: it has the earlier entries and the copies in the new file
        assert!(journal::examine_all(&agent.data).unwrap().is_ok());
        assert_eq!(journal::read_all(&agent.data).unwrap().len(), history + entries.len());
    }

    #[tokio::test]
    async fn a_cleanup_runs_without_the_end_of_a_job() {
        let (_dir, agent, _) = agent(vec![]).await;
        clean_up_if_due(&agent);
        until("a cleanup", || agent.state().last_cleanup.is_some()).await;
    }

    #[tokio::test]
    async fn a_cleanup_keeps_the_files_of_a_running_job() {
        // given artifacts and files of two executions, one of them running, and budgets of zero
        let (_dir, mut agent, _) = agent(vec![]).await;
        Arc::get_mut(&mut agent).unwrap().settings.budgets =
            crate::budgets::Budgets { artifacts: 0, jobs: 0 };
        record_claim(&agent);
        let layout = Layout::new(agent.data.path("artifacts"));
        let artifacts: Vec<_> = (0..4_u8).map(|content| artifact(&layout, content)).collect();
        for execution in [execution(), another()] {
            let dir = agent.data.job(execution);
            dir.create().unwrap();
            fs::write(dir.log(), "log").unwrap();
        }
        let manifest = serde_json::json!({
            "version": 1, "job": job(), "kind": "apply", "class": "mutating",
            "plugin": {"name": "terraform_module", "version": "1"}, "inputs": {},
            "artifacts": [{"repository": "acme/web", "digest": artifacts[0], "size": 1}],
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        });
        fs::write(agent.data.job(execution()).manifest(), manifest.to_string()).unwrap();
        let running = RunningJob { execution: Some(execution()), ..RunningJob::default() };
        agent.state().running.insert(job(), running);
        // when the agent cleans up
        clean_up(&agent).await;
        // then the artifact of the job and the two newest versions remain, and the rest is removed
        let left: Vec<_> = artifacts.iter().map(|digest| layout.complete(digest)).collect();
        assert_eq!(left, [true, false, true, true]);
        assert!(agent.data.job(execution()).root().exists());
        assert!(!agent.data.job(another()).root().exists());
    }

    /// Stores an artifact of one component. A greater `content` was used more recently.
    fn artifact(layout: &Layout, content: u8) -> Digest {
        let layer = vec![content; 1000];
        let bytes = component(&Blob::of(LAYER_TYPE, &layer), "").to_bytes().unwrap();
        let blobs = [layer, b"{}".to_vec(), bytes].map(|blob| layout.put(&blob).unwrap());
        layout.add_to_index("acme/web", &blobs[2]).unwrap();
        let hours = 10 - u64::from(content);
        let then = std::time::SystemTime::now() - Duration::from_secs(3600 * hours);
        for blob in &blobs {
            fs::File::open(layout.path(blob)).unwrap().set_modified(then).unwrap();
        }
        blobs[2].clone()
    }
}
