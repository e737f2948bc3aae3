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
    room::{JobRecord, JobSpec, TestRunner},
    subjects::terraform,
};

struct Stage {
    room: TestRunner,
    ask: JobSpec,
}

impl Stage {
    fn new() -> Option<Stage> {
        let mut room = TestRunner::new();
        let subject = terraform(&mut room)?;
        let (plugin, artifacts) = (subject.plugin, vec![subject.artifact]);
        let (inputs, plan, state) = (json!({}), None, None);
        Some(Stage {
            room,
            ask: JobSpec { kind: JobKind::Plan, plugin, artifacts, inputs, plan, state },
        })
    }

    fn inputs(text: &str) -> serde_json::Value {
        json!({ "component": "web", "operation": "apply", "vars": { "text": text }, "var_files": [] })
    }

    async fn plan(&self, text: &str) -> (Result<Outcome, PluginError>, JobRecord) {
        self.room.job(&JobSpec { inputs: Stage::inputs(text), ..self.ask.clone() }).await
    }

    async fn apply(
        &self,
        text: &str,
        planned: &JobRecord,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let plan = Some(planned.plan.as_ref().unwrap().digest.clone());
        let ask =
            JobSpec { kind: JobKind::Apply, plan, inputs: Stage::inputs(text), ..self.ask.clone() };
        self.room.job(&ask).await
    }

    async fn deploy(&mut self, text: &str) -> StateMark {
        let (ended, planned) = self.plan(text).await;
        assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
        let (ended, applied) = self.apply(text, &planned).await;
        assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
        applied.state.unwrap()
    }
}

fn refusal(ended: Result<Outcome, PluginError>) -> String {
    match ended {
        Err(PluginError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn log(mark: &StateMark, decision: Option<u64>) -> manifest::KnownState {
    let version = StateVersion { lineage: mark.lineage.clone().unwrap(), serial: mark.serial };
    let accepted = decision.map(|decision| AcceptedState { version: version.clone(), decision });
    manifest::KnownState { newest: Some(version), accepted }
}

#[tokio::test]
async fn a_restored_older_state_is_planned_only_after_a_decision() {
    let Some(mut stage) = Stage::new() else { return };
    let file = stage.room.at("state").join("web/terraform.tfstate");
    let older = stage.deploy("one").await;
    let backup = fs::read(&file).unwrap();
    let newest = stage.deploy("two").await;
    assert_eq!(older.lineage, newest.lineage);
    assert!(older.serial < newest.serial, "{older:?} {newest:?}");

    // given a plan of the newest state, and a state that was restored from a backup since
    let (_, planned) = stage.plan("three").await;
    assert_eq!(planned.state, Some(newest.clone()));
    fs::write(&file, &backup).unwrap();
    let names_both = |why: &str| {
        let serial = |mark: &StateMark| format!("serial {} of lineage", mark.serial);
        assert!(why.contains(&serial(&older)) && why.contains(&serial(&newest)), "{why}");
        assert!(why.contains("stead installs accept-state INSTALL web"), "{why}");
    };
    // then plan and apply refuse the older state, whether the vendor's log or the runner's journal
    // has the newest state
    stage.ask.state = Some(log(&newest, None));
    names_both(&refusal(stage.plan("three").await.0));
    let (ended, _) = stage.apply("three", &planned).await;
    assert!(matches!(ended, Err(PluginError::PlanStale(_))), "{ended:?}");
    stage.ask.state = None;
    stage.room.known_state = KnownState { newest: newest.clone(), ..KnownState::default() };
    names_both(&refusal(stage.plan("three").await.0));
    // also if the vendor states, without a decision, that an older state is the newest
    stage.ask.state = Some(log(&older, None));
    names_both(&refusal(stage.plan("three").await.0));

    // when a user of the vendor has accepted the older state
    stage.ask.state = Some(log(&older, Some(1)));
    let (ended, heard) = stage.plan("three").await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
    assert_eq!(heard.accepted.unwrap().decision, 1);
    assert_eq!(heard.state, Some(older.clone()));
    // then the decision does not allow another restore
    stage.room.known_state =
        KnownState { newest: newest.clone(), decision: 1, ..KnownState::default() };
    names_both(&refusal(stage.plan("three").await.0));
}

#[tokio::test]
async fn a_state_of_another_lineage_is_refused() {
    let Some(mut stage) = Stage::new() else { return };
    let mut other = stage.deploy("one").await;
    other.lineage = Some("another-lineage".into());
    other.serial = 0;
    stage.room.known_state = KnownState { newest: other, ..KnownState::default() };
    let why = refusal(stage.plan("two").await.0);
    assert!(why.contains("lineage another-lineage is known"), "{why}");
}

#[tokio::test]
async fn a_missing_state_with_a_known_serial_is_never_taken_for_absent() {
    let Some(mut stage) = Stage::new() else { return };
    let newest = stage.deploy("one").await;
    let dir = stage.room.at("state").join("web");
    let file = dir.join("terraform.tfstate");
    // given a vendor that omits that the component exists, and a state that is lost or empty
    fs::remove_file(&file).unwrap();
    for of_the_log in [false, true] {
        for is_empty in [false, true] {
            if is_empty {
                fs::write(&file, "").unwrap();
            }
            stage.ask.state = of_the_log.then(|| log(&newest, None));
            let known = if of_the_log { StateMark::default() } else { newest.clone() };
            stage.room.known_state = KnownState { newest: known, ..KnownState::default() };
            // when the vendor requests a plan, then the runner refuses it, also a second time
            for _ in 0..2 {
                let why = refusal(stage.plan("one").await.0);
                let serial = format!("serial {} of lineage", newest.serial);
                assert!(why.contains("is not on this host") && why.contains(&serial), "{why}");
                assert!(!dir.join("no-prior-state").exists());
            }
        }
        fs::remove_file(&file).unwrap();
    }
    // when a user of the customer has decided that the component has no resources
    stage.room.known_state = KnownState { nothing: true, ..KnownState::default() };
    let (ended, heard) = stage.plan("one").await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
}

#[tokio::test]
async fn a_plan_from_no_state_is_not_applied_when_there_was_one_since() {
    let Some(mut stage) = Stage::new() else { return };
    let (_, planned) = stage.plan("early").await;
    let newest = stage.deploy("one").await;
    fs::remove_file(stage.room.at("state").join("web/terraform.tfstate")).unwrap();
    stage.room.known_state = KnownState { newest, ..KnownState::default() };
    let why = refusal(stage.apply("early", &planned).await.0);
    assert!(why.contains("is not on this host"), "{why}");
}
