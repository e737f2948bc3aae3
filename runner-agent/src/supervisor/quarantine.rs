//! Work whose beginning ends the agent is not begun for ever: what reads a manifest, the customer's hook or the start
//! of a shim may crash on one manifest each time, and every other job waits behind it.
use std::collections::BTreeMap;

use domain::{digest::Digest, ids::ExecutionId};
use schemas::runner::RefusedBy;

use crate::{
    journal::{Entry, Fact},
    policy::Refusal,
};

/// So often an agent may end while it begins the same manifest.
const CRASHES: usize = 2;

/// Refuses a manifest that agents have believed, and then ended before its shim was about to start.
pub(super) fn check(entries: &[Entry], manifest: &Digest) -> Result<(), Refusal> {
    let mut begun: BTreeMap<ExecutionId, bool> = BTreeMap::new();
    for Entry { fact, .. } in entries {
        match fact {
            Fact::Verified { execution, manifest: of, .. } if of == manifest => {
                begun.insert(*execution, true);
            }
            // A question may wait for a day and through many agents.
            Fact::Spawning { execution, .. }
            | Fact::Refused { execution, .. }
            | Fact::Exited { execution, .. }
            | Fact::Asked { execution, .. } => {
                begun.entry(*execution).and_modify(|crashed| *crashed = false);
            }
            Fact::Verified { .. }
            | Fact::Opened { .. }
            | Fact::ChainBegun { .. }
            | Fact::Stated { .. }
            | Fact::Unsigned { .. }
            | Fact::LogRefused { .. }
            | Fact::SessionOpened { .. }
            | Fact::Claiming { .. }
            | Fact::NotClaimed { .. }
            | Fact::Claimed { .. }
            | Fact::Spawned { .. }
            | Fact::Child { .. }
            | Fact::Cancelling { .. }
            | Fact::Reported { .. }
            | Fact::Answered { .. }
            | Fact::Abandoned { .. }
            | Fact::Checkpoint { .. }
            | Fact::EpochAccepted { .. }
            | Fact::Rekeyed { .. }
            | Fact::StateSeen { .. }
            | Fact::StateAccepted { .. }
            | Fact::StateResolving { .. }
            | Fact::StateResolved { .. }
            | Fact::Disabled { .. }
            | Fact::Enabled {}
            | Fact::PolicyChosen { .. }
            | Fact::Unknown => {}
        }
    }
    if begun.values().filter(|crashed| **crashed).count() < CRASHES {
        return Ok(());
    }
    let detail = format!(
        "the agent ended {CRASHES} times while it began this manifest: see its own log, then make a new job"
    );
    Err(Refusal { by: RefusedBy::Capability, rule: "quarantine".into(), detail })
}

#[cfg(test)]
mod tests {
    use schemas::{
        manifest::Fence,
        runner::{JobClass, JobKind},
    };

    use super::*;
    use crate::host;

    fn execution(number: u8) -> ExecutionId {
        format!("exe_01ARZ3NDEKTSV4RRFFQ69G5FA{number}").parse().unwrap()
    }

    fn manifest(number: u8) -> Digest {
        format!("sha256:{number:064}").parse().unwrap()
    }

    fn verified(number: u8, manifest: Digest) -> Fact {
        let (kind, class) = (JobKind::Apply, JobClass::Mutating);
        let fence = Fence { epoch: 1, position: 4 };
        let (execution, plugin) = (execution(number), "odd".into());
        Fact::Verified { execution, manifest, grant: None, kind, class, plugin, fence }
    }

    fn refused(facts: Vec<Fact>) -> bool {
        let entries: Vec<_> =
            facts.into_iter().map(|fact| Entry { at: host::now(), fact }).collect();
        check(&entries, &manifest(1)).is_err()
    }

    #[test]
    fn what_ended_the_agent_twice_is_not_begun_a_third_time() {
        let job = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let began = Fact::Spawning { job, execution: execution(1) };
        assert!(refused(vec![verified(1, manifest(1)), verified(2, manifest(1))]));
        assert!(!refused(vec![verified(1, manifest(1)), verified(2, manifest(2))]));
        assert!(!refused(vec![verified(1, manifest(1)), began, verified(2, manifest(1))]));
    }
}
