//! Golden test of the result of every command in every state.
use super::*;

#[test]
fn transitions_match_the_golden_table() {
    let held = and(deploying(), [component_reserved("api", ONE, S1)]);
    let sandbox_held = and(deploying(), [InstallEvent::SandboxReserved { run: ONE, step: S1 }]);
    let deprovisioning = and(ready(), [admitted(ONE, RunKind::Deprovision, &[])]);
    let record = InstallCommand::RecordResult { run: ONE, step: S1, result: deployed().0 };
    let reserve_sandbox =
        InstallCommand::Reserve { resource: Resource::Sandbox, run: ONE, step: S1 };
    let set = text(&[("size", "4")]);
    crate::testing::transitions::<Install>(
        vec![
            ("new", vec![]),
            ("created", created()),
            ("ready", ready()),
            ("deploying", deploying()),
            ("component reserved", held.clone()),
            ("sandbox reserved", sandbox_held),
            ("applying", and(held.clone(), [applies::apply_start().1])),
            ("deployed", and(held, [deployed().1])),
            ("deprovisioning", deprovisioning),
        ],
        vec![
            ("create", create()),
            (
                "change inputs",
                InstallCommand::ChangeInputs { set, unset: names(&[]), by: ANN, reason: None },
            ),
            ("pin config", InstallCommand::PinConfig { config_version: 2, by: ANN, reason: None }),
            (
                "auto-approve",
                InstallCommand::SetAutoApprove { auto_approve: true, by: ANN, reason: None },
            ),
            (
                "report stack outputs",
                InstallCommand::ReportStackOutputs {
                    runner: RUNNER,
                    outputs: outputs("eu-1"),
                    replaces: None,
                },
            ),
            ("recover", InstallCommand::Recover(recovery())),
            (
                "set stack outputs",
                InstallCommand::SetStackOutputs { outputs: outputs("eu-2"), by: ANN, reason: None },
            ),
            (
                "disable component",
                InstallCommand::SetComponentEnabled {
                    name: "api".into(),
                    enabled: false,
                    by: ANN,
                    reason: None,
                },
            ),
            ("admit deploy of api", admit(TWO, RunKind::Deploy, &["api"])),
            ("admit deploy of web", admit(TWO, RunKind::Deploy, &["web"])),
            ("admit teardown", admit(TWO, RunKind::Teardown, &[])),
            ("admit action", admit(TWO, RunKind::Action, &[])),
            ("reserve api", reserve("api", ONE, S1)),
            ("reserve api: other step", reserve("api", ONE, S2)),
            ("reserve sandbox", reserve_sandbox),
            (
                "start apply",
                InstallCommand::StartApply { run: ONE, step: S1, change: applies::apply_start().0 },
            ),
            (
                "record apply not run",
                InstallCommand::RecordApplyNotRun {
                    run: ONE,
                    step: S1,
                    resource: Resource::Component("api".into()),
                },
            ),
            ("record deployed", record),
            (
                "record state",
                InstallCommand::RecordState {
                    name: "api".into(),
                    run: ONE,
                    step: S1,
                    state: state_version(7),
                },
            ),
            (
                "accept state",
                InstallCommand::AcceptState {
                    name: "api".into(),
                    state: state_version(3),
                    by: ANN,
                    reason: "restored".into(),
                },
            ),
            (
                "await state",
                InstallCommand::AwaitState {
                    name: "api".into(),
                    run: ONE,
                    step: S1,
                    state: state_version(7),
                },
            ),
            (
                "record state arrival",
                InstallCommand::RecordStateArrival {
                    name: "api".into(),
                    state: state_version(7),
                    is_decided: false,
                },
            ),
            ("deprovision", InstallCommand::Deprovision),
            ("release", InstallCommand::Release { run: ONE, step: S1 }),
            ("finish run", InstallCommand::FinishRun { run: ONE, outcome: Outcome::Succeeded }),
        ],
    );
}

fn recovery() -> Recovery {
    let (runner, signature) = (RunnerId(ulid::Ulid(3)), "c2ln".into());
    Recovery { runner, former: RUNNER, generation: 2, signature, unproved_states: [].into() }
}
