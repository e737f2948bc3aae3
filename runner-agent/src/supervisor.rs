//! Supervisor: polls, claims jobs, starts shims and reports to the server. The shims start the
//! programs of jobs and record their output. The supervisor uploads the recorded log.
//!
//! ```text
//!            ┌─ poll ──▶ directives ─┬─ offer ──▶ claim ─▶ witness ─▶ policy ─▶ spawn ─┐
//! session ───┤                       └─ cancel ─▶ cancel.json                          ▼
//!            └─ recover (open claims of the journal) ──────────────────────────────▶ monitor
//!                                               one task per execution: reports, log, final report
//! ```
mod claim;
mod claim_index;
mod cleanup;
mod log_upload;
mod monitor;
mod orphans;
mod poll;
mod quarantine;
pub mod recover;
mod rekey;
mod report_backoff;
mod report_queue;
mod session;
mod session_renewal;
mod signals;
mod spawn;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use domain::ids::{ExecutionId, JobId, SessionId};
use nix::sys::signal::Signal;
use proof::dsse::Envelope;
use schemas::{
    keys::KeyList,
    runner::{JobKind, LogSettings, ProtocolRange, Running, SessionOpened},
};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

pub use self::signals::StopLevel;
use self::{claim_index::ClaimIndex, session_renewal::SessionRenewal};
use crate::{
    budgets::Budgets,
    client::Client,
    data::{self, Data},
    enrol::Identity,
    host::{self, Process},
    journal::{self, Journal, JournalEvent},
    keys::Keys,
    processes, program,
    shim::{
        order::{CancelOrder, StopCause},
        recorder::truncate,
    },
    witness::Witness,
};

/// Settings of an agent, fixed at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Maximum number of concurrent jobs.
    pub slots: u32,
    /// Directory of the `stead-plugin-<name>` executables.
    pub plugin_dir: PathBuf,
    /// Environment variables of the agent that children get.
    pub pass_env: Vec<String>,
    /// Disk budgets for artifacts and for files of ended executions.
    pub budgets: Budgets,
}

/// Reason why an agent exited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// All jobs have ended and were reported.
    Drained,
    /// Jobs may still run or wait for their report, and the next agent continues them.
    Detached,
    /// Another agent uses the same identity.
    Superseded,
    /// Server and agent have no common protocol version.
    NoProtocol { server: Option<ProtocolRange> },
}

/// State of one agent process.
pub struct Agent {
    pub(crate) data: Data,
    pub(crate) keys: Keys,
    pub(crate) identity: Identity,
    pub(crate) client: Client,
    pub(crate) journal: Journal,
    pub(crate) witness: Witness,
    pub(crate) settings: Settings,
    pub(crate) stop_level: watch::Receiver<StopLevel>,
    /// Serializes claims: the log of each claim must continue the log of the previous claim.
    pub(crate) claim_lock: tokio::sync::Mutex<()>,
    /// Serializes the renewal of the server's keys, on disk and in memory.
    pub(crate) key_renewal_lock: tokio::sync::Mutex<()>,
    /// Serializes the sweeps for processes that belong to no job.
    pub(crate) sweep_lock: tokio::sync::Mutex<()>,
    /// Random id. It distinguishes this process from an agent with a copy of the data directory.
    pub(crate) process_id: String,
    /// Notified after a change that the server must receive now.
    pub(crate) changed: Notify,
    state: Mutex<AgentState>,
    claim_index: Mutex<ClaimIndex>,
}

/// Mutable state of an agent.
pub(crate) struct AgentState {
    pub session: Option<SessionOpened>,
    /// Id of the session that is being opened.
    pub opening_session: Option<SessionId>,
    /// Request for another session.
    pub session_renewal: SessionRenewal,
    pub server_keys: KeyList,
    /// The server requested a new identity key.
    pub rekey_requested: bool,
    pub running: BTreeMap<JobId, RunningJob>,
    pub acks: Vec<String>,
    pub draining: bool,
    pub log: LogSettings,
    pub orphans: orphans::OrphanedJobs,
    pub ended: Option<ExitReason>,
    /// Time of the last cleanup.
    pub last_cleanup: Option<Instant>,
}

/// Job that occupies a slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningJob {
    /// Absent during the claim.
    pub execution: Option<ExecutionId>,
    /// Shim of the job, once it was started.
    pub shim: Option<Process>,
    pub phase: Option<String>,
    pub log_len: u64,
    pub log_sent: u64,
    /// A user tails the log.
    pub tailed: bool,
}

impl Agent {
    pub(crate) fn new(
        (data, keys, identity): (Data, Keys, Identity),
        client: Client,
        server_keys: KeyList,
        settings: Settings,
        stopping: watch::Receiver<StopLevel>,
    ) -> std::io::Result<Arc<Self>> {
        let state = AgentState {
            session: None,
            opening_session: None,
            session_renewal: SessionRenewal::default(),
            server_keys,
            rekey_requested: false,
            running: BTreeMap::new(),
            acks: Vec::new(),
            draining: false,
            log: LogSettings::default(),
            orphans: orphans::OrphanedJobs::default(),
            ended: None,
            last_cleanup: None,
        };
        Ok(Arc::new(Agent {
            journal: Journal::open(&data)?,
            witness: Witness::of(&data),
            data,
            keys,
            identity,
            client,
            settings,
            stop_level: stopping,
            claim_lock: tokio::sync::Mutex::new(()),
            key_renewal_lock: tokio::sync::Mutex::new(()),
            sweep_lock: tokio::sync::Mutex::new(()),
            process_id: ulid::Ulid::new().to_string(),
            changed: Notify::new(),
            state: Mutex::new(state),
            claim_index: Mutex::default(),
        }))
    }

    /// Updates the claim index from the journal, then reads it.
    pub(crate) fn claim_index<T>(&self, look: impl FnOnce(&ClaimIndex) -> T) -> std::io::Result<T> {
        let mut index = self.claim_index.lock().unwrap_or_else(PoisonError::into_inner);
        index.refresh(&self.journal)?;
        Ok(look(&index))
    }

    /// Locks the mutable state. The guard must not be held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the job kinds that this agent accepts.
    pub(crate) fn capabilities(&self) -> Vec<JobKind> {
        JobKind::ALL.into_iter().filter(|kind| kind.runs_on(self.identity.mode)).collect()
    }

    /// Returns the number of further jobs that the agent accepts now.
    pub(crate) fn free_slots(&self) -> u32 {
        let state = self.state();
        let stays = *self.stop_level.borrow() == StopLevel::KeepRunning && !state.draining;
        // A job that cannot be recorded in the journal must not start. A requested session comes
        // before further jobs.
        let able = self.journal.is_writable()
            && !state.session_renewal.is_requested()
            && self.has_disk_space();
        if stays && able && crate::disable::disabled(&self.data).is_none() {
            let taken = u32::try_from(state.running.len()).unwrap_or(u32::MAX);
            self.settings.slots.saturating_sub(taken)
        } else {
            0
        }
    }

    /// Returns whether the disk has space for another job.
    fn has_disk_space(&self) -> bool {
        is_enough_disk(host::disk_free(self.data.root()))
    }

    /// Restores the journal's reserve when the disk has space, and retries after a failed write.
    pub(crate) fn recover_journal(&self) {
        if self.has_disk_space()
            && let Err(error) = self.journal.recover()
        {
            warn!(%error, "Cannot write the journal; the runner accepts no jobs");
        }
        self.reserve_disable_file();
    }

    fn reserve_disable_file(&self) {
        if let Err(error) = crate::disable::keep_reserve(&self.data) {
            warn!(%error, "Cannot reserve disk space for the disable file");
        }
    }

    /// Signs the current head of the journal. After an error the agent continues: the next head
    /// covers the same entries.
    pub(crate) fn sign_journal(&self) -> Option<Envelope> {
        let (runner, key) = (self.identity.runner, self.keys.identity.now().key);
        let signed = journal::sign_head(&self.journal, runner, &key, host::server_now());
        signed.unwrap_or_else(|error| {
            warn!(%error, "Cannot sign the journal");
            None
        })
    }

    /// Returns the running executions in the format of a poll.
    pub(crate) fn running(&self) -> Vec<Running> {
        let says = |(job, attended): (&JobId, &RunningJob)| {
            let (execution, phase) = (attended.execution?, attended.phase.clone());
            Some(Running { job: *job, execution, phase, log_len: attended.log_len })
        };
        self.state().running.iter().filter_map(says).collect()
    }

    /// Updates the entry of a job if it belongs to this execution.
    pub(crate) fn update_job(
        &self,
        job: JobId,
        of: Option<ExecutionId>,
        note: impl FnOnce(&mut RunningJob),
    ) {
        let mut state = self.state();
        if let Some(attended) = state.running.get_mut(&job).filter(|held| held.execution == of) {
            note(attended);
        }
    }

    /// Releases the slot of a job if this execution holds it. Another execution of the job keeps
    /// the slot.
    pub(crate) fn release(&self, job: JobId, of: Option<ExecutionId>) {
        {
            let mut state = self.state();
            if state.running.get(&job).is_some_and(|held| held.execution == of) {
                state.running.remove(&job);
            }
        }
        self.changed.notify_one();
    }

    /// Requests a new session, which reconciles the open claims of the journal.
    pub(crate) fn request_session(&self) {
        self.state().session_renewal.request(Instant::now());
        self.changed.notify_one();
    }

    /// Ends the agent. The first reason wins.
    pub(crate) fn end(&self, why: ExitReason) {
        self.state().ended.get_or_insert(why);
        self.changed.notify_one();
    }

    /// Writes a cancel request for a shim. A further request has an effect only if its grace period
    /// is shorter.
    pub(crate) fn cancel(&self, execution: ExecutionId, order: &CancelOrder) {
        let dir = self.data.job(execution);
        let told = data::read_json::<CancelOrder>(&dir.cancel()).ok().flatten();
        if told.as_ref().is_some_and(|told| !order.is_stricter_than(told)) {
            return;
        }
        let CancelOrder { reason, grace_ms, cause } = order.clone();
        let reason = truncate(reason, data::RESERVED_TEXT);
        let force = told.is_some();
        info!(execution.id = %execution, grace_ms, reason, "Stopping the execution");
        let cause = told.map_or(cause, |told| told.cause);
        let order = CancelOrder { reason: reason.clone(), grace_ms, cause };
        // Write the journal entry afterwards: neither a full disk nor a locked journal may delay
        // the end of a job.
        let written = dir.create().and_then(|()| data::replace_reserved(&dir.cancel(), &order));
        if let Err(error) = written {
            warn!(execution.id = %execution, %error, "Cannot write the cancel request; sending a signal to the shim instead");
            self.signal_shim(execution);
        }
        if let Err(error) =
            self.journal.write(JournalEvent::Cancelling { execution, reason, force })
        {
            warn!(execution.id = %execution, %error, "Cannot record the cancel request in the journal");
        }
    }

    /// Stops a job with a signal to its shim, which then uses the job's own grace period.
    fn signal_shim(&self, execution: ExecutionId) {
        let state = self.state();
        let of_it = state.running.values().find(|held| held.execution == Some(execution));
        if let Some(shim) = of_it.and_then(|held| held.shim.as_ref()) {
            shim.signal(Signal::SIGTERM);
        }
    }

    /// Requests the stop of all running jobs.
    pub(crate) fn stop_all(&self, reason: &str) {
        for running in self.running() {
            let (reason, cause) = (reason.to_owned(), StopCause::AgentStop);
            self.cancel(running.execution, &CancelOrder { reason, grace_ms: None, cause });
        }
    }
}

/// Interval between checks for adopted processes that have ended.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// Free bytes on the disk that another job requires.
const REQUIRED_DISK_BYTES: u64 = 64 * 1024 * 1024;

fn is_enough_disk(free: u64) -> bool {
    free > REQUIRED_DISK_BYTES
}

/// Runs the agent until it must exit.
pub async fn run(
    (data, keys, identity): (Data, Keys, Identity),
    settings: Settings,
) -> anyhow::Result<ExitReason> {
    // Scripts of jobs run as the same user. They must not read keys and environment in this
    // process's memory.
    host::make_undumpable();
    // Adopt the processes that a killed shim leaves behind, so that the agent can end them.
    processes::adopt_orphans().context("cannot become the parent of orphaned processes")?;
    tokio::spawn(async {
        loop {
            tokio::time::sleep(REAP_INTERVAL).await;
            processes::reap();
        }
    });
    let client = Client::new(&identity.server, &identity.trust)?;
    let tokens = crate::client::Tokens::new(identity.runner, keys.identity.clone());
    let client = client.with_tokens(tokens);
    let server_keys = crate::enrol::server_keys(&data)?;
    let stopping = signals::listen()?;
    let agent = Agent::new((data, keys, identity), client, server_keys, settings, stopping)?;
    let (runner, slots) = (agent.identity.runner, agent.settings.slots);
    info!(runner.id = %runner, slots, "Runner started");
    if let Err(error) = agent.journal.keep_reserve() {
        warn!(%error, "Cannot reserve disk space for the journal");
    }
    agent.reserve_disable_file();
    if let Err(error) = agent.settings.budgets.record(&agent.data) {
        warn!(%error, "Cannot record the disk budgets: `stead-runner status` does not show them");
    }
    // Check the current file only: the rotated files grow without limit, and jobs may wait for the
    // agent.
    if let Ok(Err(wrong)) = journal::examine_current(&agent.data) {
        warn!(
            error = %wrong,
            "The journal failed verification: see `stead-runner journal verify`"
        );
    }
    // Copy the running program at start, before the disk can fill up or an upgrade can replace the
    // file.
    let kept = match program::keep(&agent.data) {
        Ok(kept) => program::check(&kept).await,
        Err(error) => Err(error),
    };
    if let Err(error) = kept {
        warn!(%error, "Cannot copy the running program for jobs: no job can start without a copy");
    }
    recover::wait_for_spawned(&agent).await;
    if recover::open_claims(&agent).is_ok_and(|open| open.is_empty())
        && let Err(error) = program::forget_others(&agent.data)
    {
        warn!(%error, "Cannot remove copies of other program versions");
    }
    recover::end_abandoned(&agent);
    let ended = poll::run(&agent).await?;
    // The server also detects the exit when the lease expires.
    let most = match ended {
        ExitReason::Drained => Some(Duration::from_secs(5)),
        // The jobs continue, and the next agent may wait for this process to exit.
        ExitReason::Detached => Some(Duration::from_secs(1)),
        // This agent has no open session.
        ExitReason::Superseded | ExitReason::NoProtocol { .. } => None,
    };
    if let Some(most) = most {
        let _closed = tokio::time::timeout(most, session::close(&agent)).await;
    }
    Ok(ended)
}

#[cfg(test)]
pub(crate) mod tests;
