//! Quarantines manifests that repeatedly crash the agent. The cause can be the parser, the
//! customer's veto command or the start of a shim.
//!
//! Without a limit, one such manifest would block every other job.
use std::collections::BTreeMap;

use domain::{digest::Digest, ids::ExecutionId};
use schemas::runner::RefusedBy;

use crate::{journal::JournalEvent, policy::Refusal};

/// Number of crashes after which a manifest is refused.
const MAX_CRASHES: usize = 2;

/// Manifests that an agent verified and then started no shim for, because the agent ended first.
#[derive(Debug, Default)]
pub(super) struct UnstartedManifests(BTreeMap<ExecutionId, Digest>);

impl UnstartedManifests {
    /// Applies the next journal entry.
    pub(super) fn apply(&mut self, event: &JournalEvent) {
        match event {
            JournalEvent::Verified { execution, manifest, .. } => {
                self.0.insert(*execution, manifest.clone());
            }
            // An approval can be pending for a day and across agent restarts.
            JournalEvent::Spawning { execution, .. }
            | JournalEvent::Refused { execution, .. }
            | JournalEvent::Exited { execution, .. }
            | JournalEvent::ApprovalRequested { execution, .. } => {
                self.0.remove(execution);
            }
            JournalEvent::Opened { .. }
            | JournalEvent::ChainStarted { .. }
            | JournalEvent::StatementSigned { .. }
            | JournalEvent::StatementRejected { .. }
            | JournalEvent::LogRejected { .. }
            | JournalEvent::SessionOpened { .. }
            | JournalEvent::Claiming { .. }
            | JournalEvent::ClaimRejected { .. }
            | JournalEvent::Claimed { .. }
            | JournalEvent::Spawned { .. }
            | JournalEvent::ChildStarted { .. }
            | JournalEvent::Isolated { .. }
            | JournalEvent::Cancelling { .. }
            | JournalEvent::Reported { .. }
            | JournalEvent::ApprovalDecided { .. }
            | JournalEvent::Abandoned { .. }
            | JournalEvent::Checkpoint { .. }
            | JournalEvent::EpochAccepted { .. }
            | JournalEvent::Rekeyed { .. }
            | JournalEvent::StateSeen { .. }
            | JournalEvent::StateAccepted { .. }
            | JournalEvent::StateResolving { .. }
            | JournalEvent::StateResolved { .. }
            | JournalEvent::StateUnproved { .. }
            | JournalEvent::Disabled { .. }
            | JournalEvent::Enabled {}
            | JournalEvent::PolicyChosen { .. }
            | JournalEvent::PublishersTrusted { .. }
            | JournalEvent::CarriedOver { .. }
            | JournalEvent::Unknown => {}
        }
    }

    /// Returns the executions of these manifests, oldest first.
    pub(super) fn executions(&self) -> impl DoubleEndedIterator<Item = ExecutionId> {
        self.0.keys().copied()
    }

    /// Refuses a manifest for which an agent started no shim [`MAX_CRASHES`] times.
    pub(super) fn check(&self, manifest: &Digest) -> Result<(), Refusal> {
        if self.0.values().filter(|of| *of == manifest).count() < MAX_CRASHES {
            return Ok(());
        }
        let detail = format!(
            "cannot start the job: the agent ended {MAX_CRASHES} times while starting this manifest; \
             check the agent's log, then create a new job"
        );
        Err(Refusal { by: RefusedBy::Capability, rule: "quarantine".into(), detail })
    }
}

#[cfg(test)]
mod tests {
    use schemas::{
        manifest::Fence,
        runner::{JobClass, JobKind},
    };

    use super::*;

    fn execution(number: u8) -> ExecutionId {
        format!("exe_01ARZ3NDEKTSV4RRFFQ69G5FA{number}").parse().unwrap()
    }

    fn manifest(number: u8) -> Digest {
        format!("sha256:{number:064}").parse().unwrap()
    }

    fn verified(number: u8, manifest: Digest) -> JournalEvent {
        let (kind, class) = (JobKind::Apply, JobClass::Mutating);
        let fence = Fence { epoch: 1, position: 4 };
        let (execution, plugin) = (execution(number), "odd".into());
        JournalEvent::Verified { execution, manifest, grant: None, kind, class, plugin, fence }
    }

    fn is_refused(events: Vec<JournalEvent>) -> bool {
        let mut starts = UnstartedManifests::default();
        events.iter().for_each(|event| starts.apply(event));
        starts.check(&manifest(1)).is_err()
    }

    #[test]
    fn a_manifest_that_ended_the_agent_twice_is_refused() {
        let job = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let began = JournalEvent::Spawning { job, execution: execution(1) };
        assert!(is_refused(vec![verified(1, manifest(1)), verified(2, manifest(1))]));
        assert!(!is_refused(vec![verified(1, manifest(1)), verified(2, manifest(2))]));
        assert!(!is_refused(vec![verified(1, manifest(1)), began, verified(2, manifest(1))]));
    }
}
