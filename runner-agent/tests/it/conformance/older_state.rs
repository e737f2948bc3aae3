//! Tests of a state that is older than the known one, with real Terraform. Plan and apply refuse
//! the older state until a user accepts it.

use std::fs;

use runner_agent::{
    plugins::{Outcome, PluginError},
    state::{KnownState, StateMark},
};
use schemas::{
    manifest::{self, AcceptedState, StateVersion},
    runner::JobKind,
};
use serde_json::json;

use super::{
    subjects::terraform,
    test_runner::{JobRecord, JobSpec, TestRunner},
};

struct Fixture {
    runner: TestRunner,
    spec: JobSpec,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        let mut runner = TestRunner::new();
        let subject = terraform(&mut runner)?;
        let (plugin, artifacts) = (subject.plugin, vec![subject.artifact]);
        let (inputs, plan, state) = (json!({}), None, None);
        Some(Fixture {
            runner,
            spec: JobSpec { kind: JobKind::Plan, plugin, artifacts, inputs, plan, state },
        })
    }

    fn inputs(text: &str) -> serde_json::Value {
        json!({ "component": "web", "operation": "apply", "vars": { "text": text }, "var_files": [] })
    }

    async fn plan(&self, text: &str) -> (Result<Outcome, PluginError>, JobRecord) {
        self.runner.job(&JobSpec { inputs: Fixture::inputs(text), ..self.spec.clone() }).await
    }

    async fn apply(
        &self,
        text: &str,
        planned: &JobRecord,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let plan = Some(planned.plan.as_ref().unwrap().digest.clone());
        let spec = JobSpec {
            kind: JobKind::Apply,
            plan,
            inputs: Fixture::inputs(text),
            ..self.spec.clone()
        };
        self.runner.job(&spec).await
    }

    async fn deploy(&mut self, text: &str) -> StateMark {
        let (result, planned) = self.plan(text).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
        let (result, applied) = self.apply(text, &planned).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
        applied.state.unwrap()
    }
}

fn refusal(result: Result<Outcome, PluginError>) -> String {
    match result {
        Err(PluginError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn log(mark: &StateMark, decision: Option<u64>) -> manifest::KnownState {
    let version =
        StateVersion { lineage: mark.lineage.clone().unwrap(), serial: mark.serial, digest: None };
    let accepted = decision.map(|decision| AcceptedState { version: version.clone(), decision });
    manifest::KnownState { newest: Some(version), accepted }
}

#[tokio::test]
async fn a_restored_older_state_is_planned_only_after_a_decision() {
    let Some(mut fixture) = Fixture::new() else { return };
    let file = fixture.runner.at("state").join("web/state.encrypted");
    let older = fixture.deploy("one").await;
    let backup = fs::read(&file).unwrap();
    let newest = fixture.deploy("two").await;
    assert_eq!(older.lineage, newest.lineage);
    assert!(older.serial < newest.serial, "{older:?} {newest:?}");

    // given a plan of the newest state, and a state that was restored from a backup since
    let (_, planned) = fixture.plan("three").await;
    assert_eq!(planned.state, Some(newest.clone()));
    fs::write(&file, &backup).unwrap();
    fixture.runner.forget_states();
    let assert_names_both = |why: &str| {
        let serial = |mark: &StateMark| format!("serial {} of lineage", mark.serial);
        assert!(why.contains(&serial(&older)) && why.contains(&serial(&newest)), "{why}");
        assert!(why.contains("stead installs accept-state INSTALL web"), "{why}");
    };
    // then plan and apply refuse the older state, whether the vendor's log or the runner's journal
    // has the newest state
    fixture.spec.state = Some(log(&newest, None));
    assert_names_both(&refusal(fixture.plan("three").await.0));
    let (result, _) = fixture.apply("three", &planned).await;
    assert!(matches!(result, Err(PluginError::PlanStale(_))), "{result:?}");
    fixture.spec.state = None;
    fixture.runner.known_state = KnownState { newest: newest.clone(), ..KnownState::default() };
    assert_names_both(&refusal(fixture.plan("three").await.0));
    // even if the vendor states, without a decision, that an older state is the newest
    fixture.spec.state = Some(log(&older, None));
    assert_names_both(&refusal(fixture.plan("three").await.0));

    // when a user of the vendor has accepted the older state
    fixture.spec.state = Some(log(&older, Some(1)));
    let (result, record) = fixture.plan("three").await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert_eq!(record.accepted.unwrap().decision, 1);
    assert_eq!(record.state, Some(older.clone()));
    // then the decision does not allow another restore
    fixture.runner.known_state =
        KnownState { newest: newest.clone(), decision: 1, ..KnownState::default() };
    assert_names_both(&refusal(fixture.plan("three").await.0));
}

#[tokio::test]
async fn a_state_of_another_lineage_is_refused() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mut other = fixture.deploy("one").await;
    other.lineage = Some("another-lineage".into());
    other.serial = 0;
    fixture.runner.known_state = KnownState { newest: other, ..KnownState::default() };
    let why = refusal(fixture.plan("two").await.0);
    assert!(why.contains("serial 0 of lineage another-lineage"), "{why}");
}

#[tokio::test]
async fn a_missing_state_with_a_known_serial_is_refused() {
    let Some(mut fixture) = Fixture::new() else { return };
    let newest = fixture.deploy("one").await;
    let dir = fixture.runner.at("state").join("web");
    // given a vendor that omits that the component exists, and a state that is lost
    fs::remove_file(dir.join("state.encrypted")).unwrap();
    fixture.runner.forget_states();
    for in_log in [false, true] {
        fixture.spec.state = in_log.then(|| log(&newest, None));
        let known = if in_log { StateMark::default() } else { newest.clone() };
        fixture.runner.known_state = KnownState { newest: known, ..KnownState::default() };
        // when the vendor requests a plan, then the runner refuses it, even a second time
        for _ in 0..2 {
            let why = refusal(fixture.plan("one").await.0);
            let serial = format!("serial {} of lineage", newest.serial);
            assert!(why.contains("neither on this host") && why.contains(&serial), "{why}");
            assert!(!dir.join("no-prior-state").exists());
        }
    }
    // when a user of the customer has decided that the component has no resources
    fixture.runner.known_state = KnownState { nothing: true, ..KnownState::default() };
    let (result, record) = fixture.plan("one").await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
}

#[tokio::test]
async fn a_plan_without_a_state_is_not_applied_after_a_deploy() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (_, planned) = fixture.plan("early").await;
    let newest = fixture.deploy("one").await;
    fs::remove_file(fixture.runner.at("state").join("web/state.encrypted")).unwrap();
    fixture.runner.forget_states();
    fixture.runner.known_state = KnownState { newest, ..KnownState::default() };
    let why = refusal(fixture.apply("early", &planned).await.0);
    assert!(why.contains("neither on this host"), "{why}");
}
