//! State of an agent, which its tasks share.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use domain::ids::{ExecutionId, JobId, SessionId};
use nix::sys::signal::Signal;
use proof::dsse::Envelope;
use schemas::{
    keys::KeyList,
    runner::{JobKind, LogSettings, Running, SessionOpened},
};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::{
    ExitReason, Settings, StopLevel, claim_index::ClaimIndex, orphans,
    session_renewal::SessionRenewal,
};
use crate::{
    client::Client,
    data::{self, Data},
    enrol::Identity,
    host::{self, Process},
    ids,
    journal::{self, Journal, JournalEvent},
    keys::Keys,
    shim::{
        order::{CancelOrder, StopCause},
        recorder::truncate,
    },
    witness::Witness,
};

/// Free bytes on the disk that another job requires.
pub(super) const REQUIRED_DISK_BYTES: u64 = 64 * 1024 * 1024;

pub(super) fn is_enough_disk(free: u64) -> bool {
    free > REQUIRED_DISK_BYTES
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
    /// Session id of the pending session request. A retry sends the same id.
    pub opening_session: Option<SessionId>,
    /// Request for another session.
    pub session_renewal: SessionRenewal,
    pub server_keys: KeyList,
    /// True if the server requested a new identity key.
    pub rekey_requested: bool,
    pub running: BTreeMap<JobId, RunningJob>,
    pub acks: Vec<String>,
    pub draining: bool,
    pub log: LogSettings,
    pub orphans: orphans::OrphanedJobs,
    pub ended: Option<ExitReason>,
    /// Time of the last cleanup.
    pub last_cleanup: Option<Instant>,
    /// Time of the next report of the customer's values, if the server could not record them all.
    pub values_retry_at: Option<Instant>,
    /// Last change of the customer's values that the server knows.
    pub values_reported_at: Option<SystemTime>,
    /// Last change of the recovery recipients that the server knows.
    pub recipients_reported_at: Option<SystemTime>,
}

/// Job that occupies a slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningJob {
    /// Execution of the job; absent during the claim.
    pub execution: Option<ExecutionId>,
    /// Shim of the job, once it was started.
    pub shim: Option<Process>,
    pub phase: Option<String>,
    pub log_len: u64,
    pub log_sent: u64,
    /// True while a user tails the log.
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
            values_retry_at: None,
            values_reported_at: None,
            recipients_reported_at: None,
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
            process_id: ids::new_ulid().to_string(),
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
    pub(super) fn has_disk_space(&self) -> bool {
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

    pub(super) fn reserve_disable_file(&self) {
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
        let to_wire = |(job, running): (&JobId, &RunningJob)| {
            let (execution, phase) = (running.execution?, running.phase.clone());
            Some(Running { job: *job, execution, phase, log_len: running.log_len })
        };
        self.state().running.iter().filter_map(to_wire).collect()
    }

    /// Updates the entry of a job if it belongs to this execution.
    pub(crate) fn update_job(
        &self,
        job: JobId,
        of: Option<ExecutionId>,
        note: impl FnOnce(&mut RunningJob),
    ) {
        let mut state = self.state();
        if let Some(running) = state.running.get_mut(&job).filter(|held| held.execution == of) {
            note(running);
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
        let is_new = self.state().session_renewal.request(Instant::now());
        // The poll loop repeats requests. If each one woke the loop, it would never sleep or poll.
        if is_new {
            self.changed.notify_one();
        }
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
        let previous = data::read_json::<CancelOrder>(&dir.cancel()).ok().flatten();
        if previous.as_ref().is_some_and(|previous| !order.is_stricter_than(previous)) {
            return;
        }
        let CancelOrder { reason, grace_ms, cause } = order.clone();
        let reason = truncate(reason, data::RESERVED_TEXT);
        let force = previous.is_some();
        info!(execution.id = %execution, grace_ms, reason, "Stopping the execution");
        let cause = previous.map_or(cause, |previous| previous.cause);
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
