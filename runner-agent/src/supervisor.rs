//! The supervisor: polls, claims, starts shims, tells the server what they did. It owns no child and no output.
//!
//! ```text
//!            ┌─ poll ──▶ directives ─┬─ offer ──▶ claim ─▶ witness ─▶ policy ─▶ spawn ─┐
//! session ───┤                       └─ cancel ─▶ cancel.json                          ▼
//!            └─ adopt (what the journal knows) ─────────────────────────────────▶ attend
//!                                                            one task per execution: reports, log, last word
//! ```
pub mod adopt;
mod anew;
mod attend;
mod claim;
mod claim_index;
mod orphans;
mod patience;
mod poll;
mod quarantine;
mod rekey;
mod report;
mod session;
mod signals;
mod spawn;
mod spool;
mod tidy;

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

pub use self::signals::Stopping;
use self::{anew::Anew, claim_index::ClaimIndex};
use crate::{
    budgets::Budgets,
    client::Client,
    data::{self, Data},
    enrol::Identity,
    host::{self, Process},
    journal::{self, Fact, Journal},
    keys::Keys,
    processes, program,
    shim::{
        order::{CancelOrder, Cause},
        recorder::brief,
    },
    witness::Witness,
};

/// How an agent was started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many jobs at once.
    pub slots: u32,
    /// Where `stead-plugin-<name>` executables are.
    pub plugin_dir: PathBuf,
    /// Variables of the agent's environment that children get.
    pub pass_env: Vec<String>,
    /// Disk budgets for artifacts and for files of ended executions.
    pub budgets: Budgets,
}

/// Why an agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Everything was done and told.
    Drained,
    /// It was told to leave, or to drain when no server listens: the next agent goes on with its jobs.
    Left,
    /// Another agent has its identity.
    Superseded,
    /// The server speaks no version of the protocol that it speaks.
    NoProtocol { server: Option<ProtocolRange> },
}

/// One agent process.
pub struct Agent {
    pub(crate) data: Data,
    pub(crate) keys: Keys,
    pub(crate) identity: Identity,
    pub(crate) client: Client,
    pub(crate) journal: Journal,
    pub(crate) witness: Witness,
    pub(crate) settings: Settings,
    pub(crate) stopping: watch::Receiver<Stopping>,
    /// Claims come one after the other: each must prove that its log continues the last one's.
    pub(crate) claims: tokio::sync::Mutex<()>,
    /// The server's keys are replaced one list after the other, on disk and in memory.
    pub(crate) renewals: tokio::sync::Mutex<()>,
    /// Processes that belong to no job are ended by one task at a time.
    pub(crate) sweeps: tokio::sync::Mutex<()>,
    /// Random: another agent that has a copy of the data directory has another one.
    pub(crate) process_id: String,
    /// Something changed that the server should know now.
    pub(crate) changed: Notify,
    state: Mutex<State>,
    claim_index: Mutex<ClaimIndex>,
}

/// What changes while an agent runs.
pub(crate) struct State {
    pub session: Option<SessionOpened>,
    /// The name of the session that is being opened, until it is open.
    pub opening: Option<SessionId>,
    /// Whether another session is needed.
    pub anew: Anew,
    pub server_keys: KeyList,
    /// The server asked for a new identity key.
    pub rekey_wanted: bool,
    pub running: BTreeMap<JobId, Attended>,
    pub acks: Vec<String>,
    pub draining: bool,
    pub log: LogSettings,
    pub orphans: orphans::Register,
    pub ended: Option<Ended>,
    /// When the data directory was tidied last.
    pub tidied: Option<Instant>,
}

/// One job that takes a slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attended {
    /// Absent while it is being claimed.
    pub execution: Option<ExecutionId>,
    /// What works for it, once it was started.
    pub shim: Option<Process>,
    pub phase: Option<String>,
    pub log_len: u64,
    pub log_sent: u64,
    /// Somebody reads the log along.
    pub tailed: bool,
}

impl Agent {
    pub(crate) fn new(
        (data, keys, identity): (Data, Keys, Identity),
        client: Client,
        server_keys: KeyList,
        settings: Settings,
        stopping: watch::Receiver<Stopping>,
    ) -> std::io::Result<Arc<Self>> {
        let state = State {
            session: None,
            opening: None,
            anew: Anew::default(),
            server_keys,
            rekey_wanted: false,
            running: BTreeMap::new(),
            acks: Vec::new(),
            draining: false,
            log: LogSettings::default(),
            orphans: orphans::Register::default(),
            ended: None,
            tidied: None,
        };
        Ok(Arc::new(Agent {
            journal: Journal::open(&data)?,
            witness: Witness::of(&data),
            data,
            keys,
            identity,
            client,
            settings,
            stopping,
            claims: tokio::sync::Mutex::new(()),
            renewals: tokio::sync::Mutex::new(()),
            sweeps: tokio::sync::Mutex::new(()),
            process_id: ulid::Ulid::new().to_string(),
            changed: Notify::new(),
            state: Mutex::new(state),
            claim_index: Mutex::default(),
        }))
    }

    /// Looks something up in the journal's index, after it was brought up to date.
    pub(crate) fn claim_index<T>(&self, look: impl FnOnce(&ClaimIndex) -> T) -> std::io::Result<T> {
        let mut index = self.claim_index.lock().unwrap_or_else(PoisonError::into_inner);
        index.refresh(&self.journal)?;
        Ok(look(&index))
    }

    /// What changes. Never held over an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that this agent takes.
    pub(crate) fn capabilities(&self) -> Vec<JobKind> {
        JobKind::ALL.into_iter().filter(|kind| kind.runs_on(self.identity.mode)).collect()
    }

    /// How many more jobs it would take now.
    pub(crate) fn free_slots(&self) -> u32 {
        let state = self.state();
        let stays = *self.stopping.borrow() == Stopping::No && !state.draining;
        // What cannot be journalled is not begun, and what another session has to settle comes first.
        let able = self.journal.is_writable() && !state.anew.is_asked() && self.has_room();
        if stays && able && crate::switch::off(&self.data).is_none() {
            let taken = u32::try_from(state.running.len()).unwrap_or(u32::MAX);
            self.settings.slots.saturating_sub(taken)
        } else {
            0
        }
    }

    /// Whether the disk has room for another job. A full one is said, and nothing new is taken.
    fn has_room(&self) -> bool {
        has_room(host::disk_free(self.data.root()))
    }

    /// Once there is room again the journal gets its reserve back, and is tried if a line was not written.
    pub(crate) fn mend_journal(&self) {
        if self.has_room()
            && let Err(error) = self.journal.mend()
        {
            warn!(%error, "The journal cannot be written: nothing new is taken");
        }
        self.keep_switch_reserve();
    }

    fn keep_switch_reserve(&self) {
        if let Err(error) = crate::switch::keep_reserve(&self.data) {
            warn!(%error, "Cannot reserve disk for the switch");
        }
    }

    /// Sign what is in the journal now. Without a head everything goes on: the next one covers it.
    pub(crate) fn sign_journal(&self) -> Option<Envelope> {
        let (runner, key) = (self.identity.runner, self.keys.identity.now().key);
        let signed = journal::sign_head(&self.journal, runner, &key, host::server_now());
        signed.unwrap_or_else(|error| {
            warn!(%error, "The journal could not be signed");
            None
        })
    }

    /// What runs, as a poll says it.
    pub(crate) fn running(&self) -> Vec<Running> {
        let says = |(job, attended): (&JobId, &Attended)| {
            let (execution, phase) = (attended.execution?, attended.phase.clone());
            Some(Running { job: *job, execution, phase, log_len: attended.log_len })
        };
        self.state().running.iter().filter_map(says).collect()
    }

    /// Note something about a job that takes a slot.
    pub(crate) fn note(
        &self,
        job: JobId,
        of: Option<ExecutionId>,
        note: impl FnOnce(&mut Attended),
    ) {
        let mut state = self.state();
        if let Some(attended) = state.running.get_mut(&job).filter(|held| held.execution == of) {
            note(attended);
        }
    }

    /// This execution of the job takes no slot any more; another one of it keeps its own.
    pub(crate) fn release(&self, job: JobId, of: Option<ExecutionId>) {
        {
            let mut state = self.state();
            if state.running.get(&job).is_some_and(|held| held.execution == of) {
                state.running.remove(&job);
            }
        }
        self.changed.notify_one();
    }

    /// Only a session settles what the journal has open.
    pub(crate) fn ask_anew(&self) {
        self.state().anew.ask(Instant::now());
        self.changed.notify_one();
    }

    /// The agent is to end.
    pub(crate) fn end(&self, why: Ended) {
        self.state().ended.get_or_insert(why);
        self.changed.notify_one();
    }

    /// Tell a shim to stop its child. Telling it again changes nothing, unless it is less patient.
    pub(crate) fn cancel(&self, execution: ExecutionId, order: &CancelOrder) {
        let dir = self.data.job(execution);
        let told = data::read_json::<CancelOrder>(&dir.cancel()).ok().flatten();
        if told.as_ref().is_some_and(|told| !order.is_less_patient(told)) {
            return;
        }
        let CancelOrder { reason, grace_ms, cause } = order.clone();
        let reason = brief(reason, data::RESERVED_TEXT);
        let force = told.is_some();
        info!(execution.id = %execution, grace_ms, "Stopping {execution}: {reason}");
        let cause = told.map_or(cause, |told| told.cause);
        let order = CancelOrder { reason: reason.clone(), grace_ms, cause };
        // The journal comes after it: neither a full disk nor a journal that is held delays the end of a job.
        let written = dir.create().and_then(|()| data::replace_reserved(&dir.cancel(), &order));
        if let Err(error) = written {
            warn!(execution.id = %execution, %error, "Cannot write the cancel order, signalling the shim");
            self.signal_shim(execution);
        }
        if let Err(error) = self.journal.write(Fact::Cancelling { execution, reason, force }) {
            warn!(execution.id = %execution, %error, "Cannot journal a cancel");
        }
    }

    /// Stops a job without any file: its shim gives the child the grace period of the job.
    fn signal_shim(&self, execution: ExecutionId) {
        let state = self.state();
        let of_it = state.running.values().find(|held| held.execution == Some(execution));
        if let Some(shim) = of_it.and_then(|held| held.shim.as_ref()) {
            shim.signal(Signal::SIGTERM);
        }
    }

    /// Stop everything that runs.
    pub(crate) fn stop_all(&self, reason: &str) {
        for running in self.running() {
            let (reason, cause) = (reason.to_owned(), Cause::AgentStop);
            self.cancel(running.execution, &CancelOrder { reason, grace_ms: None, cause });
        }
    }
}

/// Interval between checks for ended processes that this agent adopted.
const REAP: Duration = Duration::from_secs(1);
/// Bytes of disk without which no job is begun.
const ROOM: u64 = 64 * 1024 * 1024;

fn has_room(free: u64) -> bool {
    free > ROOM
}

/// Run until there is a reason to end.
pub async fn run(
    (data, keys, identity): (Data, Keys, Identity),
    settings: Settings,
) -> anyhow::Result<Ended> {
    // A job's script runs as the same user: our keys and our environment are not its to read in our memory.
    host::keep_to_itself();
    // What a shim leaves behind when it is killed becomes ours to end.
    processes::adopt_orphans().context("becoming the parent of orphaned descendants")?;
    tokio::spawn(async {
        loop {
            tokio::time::sleep(REAP).await;
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
    info!(runner.id = %runner, "{runner} starts with {slots} slots");
    if let Err(error) = agent.journal.keep_reserve() {
        warn!(%error, "There is no disk to keep in reserve for the journal");
    }
    agent.keep_switch_reserve();
    if let Err(error) = agent.settings.budgets.record(&agent.data) {
        warn!(%error, "Cannot record the disk budgets: `stead-runner status` does not show these");
    }
    // Only the file that is written on: those that were put aside become more and more, and jobs may wait for an agent.
    if let Ok(Err(wrong)) = journal::examine_current(&agent.data) {
        warn!("The journal is not what was written, see `stead-runner journal verify`: {wrong}");
    }
    // Early: there is disk space, and no upgrade has replaced the file yet.
    let kept = match program::keep(&agent.data) {
        Ok(kept) => program::check(&kept).await,
        Err(error) => Err(error),
    };
    if let Err(error) = kept {
        warn!(%error, "Cannot keep the running program where jobs can run it: no job starts until this succeeds");
    }
    adopt::settle(&agent).await;
    if adopt::open_ends(&agent).is_ok_and(|open| open.is_empty())
        && let Err(error) = program::forget_others(&agent.data)
    {
        warn!(%error, "Cannot remove kept programs of other versions");
    }
    adopt::end_left_behind(&agent);
    let ended = poll::run(&agent).await?;
    // The server also notices by itself, when the lease ends.
    let most = match ended {
        Ended::Drained => Some(Duration::from_secs(5)),
        // The jobs go on, and the next agent may wait for this one to end.
        Ended::Left => Some(Duration::from_secs(1)),
        // No session of this agent is open.
        Ended::Superseded | Ended::NoProtocol { .. } => None,
    };
    if let Some(most) = most {
        let _closed = tokio::time::timeout(most, session::close(&agent)).await;
    }
    Ok(ended)
}

#[cfg(test)]
pub(crate) mod tests;
