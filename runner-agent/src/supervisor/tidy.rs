//! Keeps the data directory from growing for ever.
use tracing::warn;

use super::{
    Agent,
    adopt::{self, open_ends},
};
use crate::state::executions_in_progress;

/// The files of so many executions that are over are kept.
const KEEP: usize = 200;

/// Remove what nobody needs any more, if nothing runs or is being claimed.
pub(super) async fn tidy(agent: &Agent) {
    let Ok(_no_claim_meanwhile) = agent.claims.try_lock() else { return };
    if !agent.state().running.is_empty() {
        return;
    }
    let tidied = open_ends(agent).and_then(|known| {
        let unrescued = executions_in_progress(&agent.data.path("state"))?;
        let open = known.iter().filter_map(|known| known.execution).chain(unrescued);
        let open = open.map(|execution| execution.to_string()).collect();
        agent.data.prune(KEEP, &open)?;
        // Nor is a journal put aside that the next agent must find children in.
        let left = adopt::left_behind(agent.journal.read()?);
        if known.is_empty() && left.iter().all(|known| !known.has_children()) {
            agent.journal.turn()
        } else {
            Ok(())
        }
    });
    if let Err(error) = tidied {
        warn!(%error, "The data directory cannot be tidied");
    }
}
