//! Which config a step is composed from.
use domain::{
    actor::Actor,
    ids::{BuildId, ComponentId, StepId},
    install::{Deployed, Sandbox},
    run::{Cause, RunKind, StepSpec, StepState},
};
use ulid::Ulid;

use super::*;

#[test]
fn what_is_destroyed_is_destroyed_with_the_config_that_brought_it() {
    let fingerprint: domain::digest::Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let (build, component) = (BuildId(Ulid::new()), ComponentId(Ulid::new()));
    let sandbox = Sandbox {
        build,
        config_version: 1,
        fingerprint: Some(fingerprint.clone()),
        outputs: Default::default(),
    };
    let deployed = Deployed {
        component,
        build,
        config_version: 2,
        fingerprint: Some(fingerprint),
        needs: Default::default(),
        outputs: Default::default(),
    };
    let has = Install {
        sandbox: Some(sandbox),
        components: [("api".to_string(), deployed)].into(),
        ..Install::default()
    };
    let request = Request {
        install: InstallId(Ulid::new()),
        kind: RunKind::Deprovision,
        cause: Cause::Asked,
        by: Actor::System,
        config_version: 3,
        reason: None,
    };
    let api = Target::Component { component, name: "api".into(), build, needs: Default::default() };
    let version = |install: &Install, target: &Target, operation| {
        let (step, needs, fingerprint) = (StepId(Ulid::new()), vec![], None);
        let spec = StepSpec { step, target: target.clone(), operation, needs, fingerprint };
        let step = Step { spec, state: StepState::Waiting, voided: 0, jobs: vec![] };
        config_version(&request, install, &step)
    };
    let brought = |install: &Install, target: &Target| {
        let (step, needs, fingerprint) = (StepId(Ulid::new()), vec![], None);
        let (target, operation) = (target.clone(), Operation::Apply);
        let spec = StepSpec { step, target, operation, needs, fingerprint };
        let step = Step { spec, state: StepState::Waiting, voided: 0, jobs: vec![] };
        brought_by(install, &step)
    };
    assert_eq!(brought(&has, &api), Some(2));
    assert_eq!(brought(&Install::default(), &api), None);
    assert_eq!(version(&has, &Target::Sandbox { build }, Operation::Destroy), 1);
    assert_eq!(version(&has, &api, Operation::Destroy), 2);
    assert_eq!(version(&has, &Target::Sandbox { build }, Operation::Apply), 3);
    assert_eq!(version(&has, &api, Operation::Apply), 3);
    assert_eq!(version(&Install::default(), &api, Operation::Destroy), 3);
    assert_eq!(version(&has, &Target::Action { name: "seed".into() }, Operation::Execute), 3);
}
