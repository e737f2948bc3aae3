//! Golden test of an example payload of every event.
use super::{
    applies::{apply_not_run, apply_start},
    *,
};

/// Returns the next example. The match makes the compiler report an event without an example.
fn after(event: &InstallEvent) -> Option<InstallEvent> {
    let (run, step, by) = (ONE, S1, ANN);
    let name = "api".to_string();
    Some(match event {
        InstallEvent::Created { .. } => InstallEvent::InputsChanged {
            set: text(&[("size", "4")]),
            unset: names(&["zone"]),
            by,
            reason: change_reason(),
        },
        InstallEvent::InputsChanged { .. } => {
            InstallEvent::ConfigPinned { config_version: 2, by, reason: change_reason() }
        }
        InstallEvent::ConfigPinned { .. } => {
            InstallEvent::AutoApproveChanged { auto_approve: true, by, reason: change_reason() }
        }
        InstallEvent::AutoApproveChanged { .. } => InstallEvent::FirstProvisionAutoApproved { by },
        InstallEvent::FirstProvisionAutoApproved { .. } => {
            InstallEvent::ComponentDisabled { name, by, reason: change_reason() }
        }
        InstallEvent::ComponentDisabled { .. } => {
            InstallEvent::ComponentEnabled { name, by, reason: change_reason() }
        }
        InstallEvent::ComponentEnabled { .. } => ready().remove(1),
        InstallEvent::StackOutputsReported { .. } => {
            InstallEvent::StackOutputsSet { outputs: outputs("eu-1"), by, reason: change_reason() }
        }
        InstallEvent::StackOutputsSet { .. } => admitted(ONE, RunKind::Deploy, &["api"]),
        InstallEvent::RunAdmitted { .. } => {
            InstallEvent::RunFinished { run, outcome: Outcome::Succeeded }
        }
        InstallEvent::RunFinished { .. } => component_reserved("api", ONE, S1),
        InstallEvent::ComponentReserved { .. } => {
            InstallEvent::ComponentReleased { name, run, step }
        }
        InstallEvent::ComponentReleased { .. } => InstallEvent::SandboxReserved { run, step },
        InstallEvent::SandboxReserved { .. } => InstallEvent::SandboxReleased { run, step },
        InstallEvent::SandboxReleased { .. } => {
            InstallEvent::SandboxApplyStarted { run, step, build: BUILD, config_version: 1 }
        }
        InstallEvent::SandboxApplyStarted { .. } => InstallEvent::SandboxApplyNotRun { run, step },
        InstallEvent::SandboxApplyNotRun { .. } => InstallEvent::SandboxProvisioned {
            run,
            step,
            build: BUILD,
            config_version: 1,
            fingerprint: digest(1),
            outputs: outputs("x"),
        },
        InstallEvent::SandboxProvisioned { .. } => InstallEvent::SandboxDestroyed { run, step },
        InstallEvent::SandboxDestroyed { .. } => apply_start().1,
        InstallEvent::ComponentApplyStarted { .. } => apply_not_run(ONE, S1),
        InstallEvent::ComponentApplyNotRun { .. } => deployed().1,
        InstallEvent::ComponentDeployed { .. } => {
            InstallEvent::ComponentDestroyed { name, component: COMPONENT, run, step }
        }
        InstallEvent::ComponentDestroyed { .. } => {
            InstallEvent::ActionCompleted { name: "seed".into(), run, step, outputs: outputs("x") }
        }
        InstallEvent::ActionCompleted { .. } => {
            InstallEvent::StateRecorded { name, run, step, state: state_version(7) }
        }
        InstallEvent::StateRecorded { .. } => InstallEvent::StateAccepted {
            name,
            state: state_version(3),
            by,
            reason: "CHG-1204".into(),
        },
        InstallEvent::StateAccepted { .. } => {
            InstallEvent::StateAwaited { name, run, step, state: state_version(7) }
        }
        InstallEvent::StateAwaited { .. } => {
            InstallEvent::StateArrived { name, state: state_version(7) }
        }
        InstallEvent::StateArrived { .. } => InstallEvent::Recovered(Recovery {
            runner: RunnerId(ulid::Ulid(3)),
            former: RUNNER,
            generation: 2,
            signature: "c2ln".into(),
            unproved_states: [(name, state_version(7))].into(),
        }),
        InstallEvent::Recovered(_) => InstallEvent::Deprovisioned { run: Some(run) },
        InstallEvent::Deprovisioned { .. } => return None,
    })
}

#[test]
fn every_event_has_an_example_and_no_example_is_dropped() {
    crate::testing::examples::<Install>(created().remove(0), after);
}
