//! Supervisor: polls, claims jobs, starts shims and reports to the server. The shims start the
//! programs of jobs and record their output. The supervisor uploads the recorded log.
//!
//! ```text
//!            ┌─ poll ──▶ directives ─┬─ offer ──▶ claim ─▶ witness ─▶ policy ─▶ spawn ─┐
//! session ───┤                       └─ cancel ─▶ cancel.json                          ▼
//!            └─ recover (open claims of the journal) ──────────────────────────────▶ monitor
//!                                               one task per execution: reports, log, final report
//! ```
mod agent;
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
mod state_upload;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use schemas::runner::ProtocolRange;
use tracing::{info, warn};

pub(crate) use self::agent::RunningJob;
pub use self::{agent::Agent, signals::StopLevel};
use crate::{
    budgets::Budgets, client::Client, data::Data, enrol::Identity, host, images::ImageSettings,
    journal, keys::Keys, processes, program, tasks,
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
    /// Options about registries of images.
    pub images: ImageSettings,
}

/// Reason why an agent exited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// All jobs have ended and were reported, and the server has every state.
    Drained,
    /// All jobs have ended and were reported, but the server did not take the states of these
    /// components.
    StatesPending { components: Vec<String> },
    /// Jobs may still run or wait for their report, and the next agent continues them.
    Detached,
    /// Another agent uses the same identity.
    Superseded,
    /// Server and agent have no common protocol version.
    NoProtocol { server: Option<ProtocolRange> },
}

/// Interval between checks for adopted processes that have ended.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
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
    tasks::detach("reap", async {
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
    let ended = tokio::select! {
        ended = poll::run(&agent) => ended?,
        never = state_upload::run(&agent) => match never {},
    };
    let ended = with_pending_states(&agent, ended).await;
    // The server also detects the exit when the lease expires.
    let most = match ended {
        ExitReason::Drained | ExitReason::StatesPending { .. } => Some(Duration::from_secs(5)),
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

/// Uploads the states that only this host has before a drained agent exits, because the host may be
/// deleted then.
async fn with_pending_states(agent: &Arc<Agent>, ended: ExitReason) -> ExitReason {
    match ended {
        ExitReason::Drained => {
            let components = state_upload::finish(agent).await;
            if components.is_empty() {
                return ExitReason::Drained;
            }
            ExitReason::StatesPending { components }
        }
        ExitReason::Detached => {
            let components = state_upload::pending_components(agent);
            if !components.is_empty() {
                warn!(
                    ?components,
                    "Only this host has the newest state of these components: do not delete it"
                );
            }
            ExitReason::Detached
        }
        ExitReason::StatesPending { .. }
        | ExitReason::Superseded
        | ExitReason::NoProtocol { .. } => ended,
    }
}

#[cfg(test)]
pub(crate) mod tests;
