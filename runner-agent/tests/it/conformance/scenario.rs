//! Scenario of plan, approval and apply, and of applies that must be refused.

use std::{fs, os::unix::fs::PermissionsExt};

use domain::digest::Digest;
use runner_agent::plugins::{Outcome, PlanRecord, PluginError};
use schemas::runner::{FailureReason, JobKind};
use serde_json::{Value, json};

use super::{
    room::{JobRecord, JobSpec, TestRunner},
    subjects::{Subject, files, terraform},
};

struct Stage {
    room: TestRunner,
    subject: Subject,
}

impl Stage {
    fn ask(&self, kind: JobKind, inputs: Value, plan: Option<Digest>) -> JobSpec {
        let (plugin, artifacts) =
            (self.subject.plugin.clone(), vec![self.subject.artifact.clone()]);
        JobSpec { kind, plugin, artifacts, inputs, plan, state: None }
    }

    fn inputs(&self, text: &str) -> Value {
        (self.subject.inputs)(text)
    }

    fn removal(&self) -> Value {
        let mut inputs = self.inputs("one");
        inputs["operation"] = json!("destroy");
        inputs
    }

    async fn plan(&self, inputs: Value) -> PlanRecord {
        let (ended, heard) = self.room.job(&self.ask(JobKind::Plan, inputs, None)).await;
        assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
        heard.plan.unwrap()
    }

    async fn apply(&self, inputs: Value, plan: &Digest) -> JobRecord {
        let (ended, heard) =
            self.room.job(&self.ask(JobKind::Apply, inputs, Some(plan.clone()))).await;
        assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
        heard
    }

    async fn stale(&self, inputs: Value, plan: &Digest) -> String {
        let (ended, heard) =
            self.room.job(&self.ask(JobKind::Apply, inputs, Some(plan.clone()))).await;
        match ended {
            Err(PluginError::PlanStale(why)) => why,
            other => panic!("{other:?} {:?}", heard.lines),
        }
    }

    fn brought(&self, heard: &JobRecord) -> Option<String> {
        (self.subject.brought)(heard.outputs.as_ref().unwrap())
    }
}

async fn exactly_what_was_approved(stage: &Stage) {
    let inputs = stage.inputs("one");
    let plan = stage.plan(inputs.clone()).await;
    assert!(!plan.noop);
    assert!(plan.add >= 1, "{plan:?}");
    assert!(!plan.summary.to_string().contains("one\""), "a value: {}", plan.summary);

    let applied = stage.apply(inputs.clone(), &plan.digest).await;
    assert_eq!(stage.brought(&applied).as_deref(), Some("one"));
    assert!(applied.phases.iter().any(|phase| phase == "apply"), "{:?}", applied.phases);

    // The plan has no changes. It reports the outputs, in case the report of the apply was lost.
    let (ended, told) = stage.room.job(&stage.ask(JobKind::Plan, inputs.clone(), None)).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", told.lines);
    assert_eq!(stage.brought(&told).as_deref(), Some("one"));
    let again = told.plan.unwrap();
    assert!(again.noop, "{:?}", again.summary);
    assert_eq!((again.add, again.change, again.destroy), (0, 0, 0));

    // A plan can be applied only once.
    stage.stale(inputs, &plan.digest).await;

    let first = stage.plan(stage.inputs("two")).await;
    let second = stage.plan(stage.inputs("three")).await;
    let applied = stage.apply(stage.inputs("three"), &second.digest).await;
    assert_eq!(stage.brought(&applied).as_deref(), Some("three"));
    let why = stage.stale(stage.inputs("two"), &first.digest).await;
    assert!(why.starts_with("the state was lineage"), "{why}");

    let removal = stage.plan(stage.removal()).await;
    assert!(removal.destroy >= 1 && removal.add == 0, "{removal:?}");
    let removed = stage.apply(stage.removal(), &removal.digest).await;
    assert_eq!(removed.outputs, Some(serde_json::Map::new()));
    let (_, told) = stage.room.job(&stage.ask(JobKind::Plan, stage.removal(), None)).await;
    assert!(told.plan.unwrap().noop && told.outputs.is_none());
}

async fn nothing_else(stage: &Stage) {
    let inputs = stage.inputs("one");
    let plan = stage.plan(inputs.clone()).await;
    let kept = stage.room.at("plans").join(&plan.digest.to_string()[7..]);
    for private in [kept.clone(), kept.join("plan"), kept.join("record.json")] {
        let mode = fs::metadata(&private).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", private.display());
    }

    let why = stage.stale(stage.inputs("other"), &plan.digest).await;
    assert_eq!(why, "the inputs, the environment or the role have changed");
    let why = stage.stale(stage.removal(), &plan.digest).await;
    assert_eq!(why, "the plan was made for another component or operation");
    let mut other = stage.ask(JobKind::Apply, inputs.clone(), Some(plan.digest.clone()));
    other.artifacts = vec![stage.room.artifact(&[("main.tf", ""), ("motd.txt", "")])];
    let (ended, _) = stage.room.job(&other).await;
    assert_eq!(ended.unwrap_err().to_string(), "the plan is stale: the artifact has changed");
    other.plan = None;
    let (ended, _) = stage.room.job(&other).await;
    assert_eq!(ended.unwrap_err().to_string(), "cannot apply: the manifest has no approved plan");

    let record = fs::read_to_string(kept.join("record.json")).unwrap();
    let fewer = record.replace("\"add\":", "\"add\":1");
    assert_ne!(record, fewer);
    fs::write(kept.join("record.json"), fewer).unwrap();
    let changed = "the plan on this runner is not the approved one";
    assert_eq!(stage.stale(inputs.clone(), &plan.digest).await, changed);
    fs::write(kept.join("record.json"), record).unwrap();

    let mut file = fs::read(kept.join("plan")).unwrap();
    *file.last_mut().unwrap() ^= 1;
    fs::write(kept.join("plan"), &file).unwrap();
    assert_eq!(stage.stale(inputs.clone(), &plan.digest).await, changed);

    fs::remove_dir_all(&kept).unwrap();
    let why = stage.stale(inputs.clone(), &plan.digest).await;
    assert_eq!(why, "this runner has no plan file with that digest");

    // None of these applies changed anything.
    let (plan, whole) = (stage.plan(inputs).await, plan);
    assert_eq!((plan.add, plan.noop), (whole.add, false));
}

async fn stops_when_asked(stage: &Stage, slow: Value) {
    let plan = stage.plan(slow.clone()).await;
    let ask = stage.ask(JobKind::Apply, slow.clone(), Some(plan.digest.clone()));
    let (ended, heard) = stage.room.job_until(&ask, stage.subject.in_the_middle).await;
    assert_eq!(ended.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", heard.lines);
    assert!(heard.outputs.is_none());
    // The state has the changes before the stop, so this plan cannot be applied again.
    stage.stale(slow, &plan.digest).await;
}

/// A runner that replaced a lost runner has no state of the deployed components.
async fn nothing_without_its_state(stage: &Stage) {
    let inputs = stage.inputs("one");
    let plan = stage.plan(inputs.clone()).await;
    stage.apply(inputs, &plan.digest).await;
    let mut there = [stage.inputs("one"), stage.inputs("two"), stage.removal()];
    there.iter_mut().for_each(|inputs| inputs["present"] = json!(true));
    let (state, kept) = (stage.room.at("state"), stage.room.at("kept"));
    fs::rename(&state, &kept).unwrap();
    fs::create_dir(&state).unwrap();
    // The second attempt is refused too, although the first one created the directory.
    for inputs in there.iter().chain(&there) {
        let (ended, heard) = stage.room.job(&stage.ask(JobKind::Plan, inputs.clone(), None)).await;
        let Err(PluginError::Refused(why)) = ended else { panic!("{ended:?} {:?}", heard.lines) };
        let place = state.join("web").display().to_string();
        assert!(why.contains("its state is not on this host") && why.contains(&place), "{why}");
        assert!(heard.plan.is_none());
    }

    fs::remove_dir_all(&state).unwrap();
    fs::rename(&kept, &state).unwrap();
    assert!(stage.plan(there[0].clone()).await.noop);
    let removal = stage.plan(there[2].clone()).await;
    assert!(removal.destroy >= 1, "{removal:?}");
}

/// An apply whose program never started blocks nothing, even if the component has no state yet.
#[tokio::test]
async fn an_apply_of_terraform_that_was_never_started_blocks_nothing() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let stage = Stage { room, subject };
    let inputs = stage.inputs("one");
    let apply = |plan: PlanRecord| stage.ask(JobKind::Apply, inputs.clone(), Some(plan.digest));

    let ask = apply(stage.plan(inputs.clone()).await);
    let (ended, heard) = stage.room.job_without_journal_in(&ask, "apply").await;
    assert!(matches!(ended, Err(PluginError::Io { .. })), "{ended:?} {:?}", heard.lines);

    let ask = apply(stage.plan(inputs.clone()).await);
    let (ended, heard) = stage.room.job_cancelled_in(&ask, "apply").await;
    assert_eq!(ended.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", heard.lines);

    let plan = stage.plan(inputs.clone()).await;
    let applied = stage.apply(inputs, &plan.digest).await;
    assert_eq!(stage.brought(&applied).as_deref(), Some("one"));
}

/// Kills the child during an apply. Its state may look unchanged, but its plan cannot be applied
/// again.
async fn is_not_applied_twice(stage: &Stage, slow: Value) {
    let plan = stage.plan(slow.clone()).await;
    let ask = stage.ask(JobKind::Apply, slow.clone(), Some(plan.digest.clone()));
    let (ended, heard) = stage.room.job_killed(&ask, stage.subject.in_the_middle).await;
    let Outcome::Failed { reason, signal, .. } = ended.unwrap() else {
        panic!("{:?}", heard.lines)
    };
    assert_eq!((reason, signal), (FailureReason::Signal, Some(9)), "{:?}", heard.lines);
    let why = stage.stale(slow, &plan.digest).await;
    assert!(why.contains("has begun to apply it"), "{why}");
}

#[tokio::test]
async fn terraform_that_was_killed_does_not_apply_its_plan_again() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let mut slow = (subject.inputs)("one");
    slow["var_files"] = json!(["pause = \"30\""]);
    is_not_applied_twice(&Stage { room, subject }, slow).await;
}

#[tokio::test]
async fn an_external_plugin_that_was_killed_does_not_apply_its_plan_again() {
    let mut room = TestRunner::new();
    let subject = files(&mut room);
    room.env.insert("STEAD_FILES_PAUSE_MS".into(), "30000".into());
    let slow = (subject.inputs)("one");
    is_not_applied_twice(&Stage { room, subject }, slow).await;
}

#[tokio::test]
async fn terraform_applies_exactly_what_was_approved() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    exactly_what_was_approved(&Stage { room, subject }).await;
}

#[tokio::test]
async fn terraform_applies_nothing_else() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    nothing_else(&Stage { room, subject }).await;
}

#[tokio::test]
async fn terraform_stops_when_asked_and_keeps_its_state() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let mut slow = (subject.inputs)("one");
    slow["var_files"] = json!(["pause = \"30\""]);
    stops_when_asked(&Stage { room, subject }, slow).await;
}

#[tokio::test]
async fn an_external_plugin_applies_exactly_what_was_approved() {
    let mut room = TestRunner::new();
    let subject = files(&mut room);
    let stage = Stage { room, subject };
    exactly_what_was_approved(&stage).await;
    let ledger = stage.room.at("ledger");
    // Two files created, one changed, two removed: each effect happened once.
    assert_eq!(fs::read_to_string(ledger).unwrap().lines().count(), 5);
}

#[tokio::test]
async fn an_external_plugin_applies_nothing_else() {
    let mut room = TestRunner::new();
    let subject = files(&mut room);
    let stage = Stage { room, subject };
    nothing_else(&stage).await;
    assert!(!stage.room.at("account").exists());
}

#[tokio::test]
async fn an_external_plugin_stops_when_asked_and_keeps_its_state() {
    let mut room = TestRunner::new();
    let subject = files(&mut room);
    room.env.insert("STEAD_FILES_PAUSE_MS".into(), "30000".into());
    let slow = (subject.inputs)("one");
    stops_when_asked(&Stage { room, subject }, slow).await;
}

#[tokio::test]
async fn terraform_plans_nothing_that_is_there_without_its_state() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    nothing_without_its_state(&Stage { room, subject }).await;
}

#[tokio::test]
async fn an_external_plugin_plans_nothing_that_is_there_without_its_state() {
    let mut room = TestRunner::new();
    let subject = files(&mut room);
    nothing_without_its_state(&Stage { room, subject }).await;
}

#[tokio::test]
async fn what_has_nothing_to_bring_needs_no_state() {
    let mut room = TestRunner::new();
    let mut subject = files(&mut room);
    subject.artifact = room.artifact(&[]);
    let stage = Stage { room, subject };
    let nothing = |operation: &str, present: bool| json!({ "component": "web", "operation": operation, "vars": {}, "present": present });
    assert!(stage.plan(nothing("apply", false)).await.noop);
    assert!(stage.plan(nothing("apply", true)).await.noop);
    assert!(stage.plan(nothing("destroy", true)).await.noop);

    // After the first apply there is a state that can be lost.
    let mut inputs = stage.inputs("one");
    inputs["present"] = json!(true);
    let plan = stage.plan(inputs.clone()).await;
    stage.apply(inputs.clone(), &plan.digest).await;
    fs::remove_file(stage.room.at("state").join("web/files.json")).unwrap();
    let (ended, _) = stage.room.job(&stage.ask(JobKind::Plan, inputs, None)).await;
    assert!(matches!(ended, Err(PluginError::Refused(_))), "{ended:?}");
}

#[tokio::test]
async fn an_external_plugin_is_given_the_settings_of_its_component() {
    let mut room = TestRunner::new();
    let mut subject = files(&mut room);
    subject.artifact = room.artifact(&[("a.txt", "a"), ("b.draft", "b")]);
    let stage = Stage { room, subject };
    let with = |settings: Value| json!({ "component": "web", "operation": "apply", "vars": {}, "settings": settings });
    assert_eq!(stage.plan(with(json!({}))).await.add, 2);
    assert_eq!(stage.plan(with(json!({ "leave_out": [".draft"] }))).await.add, 1);
    let misspelt = with(json!({ "leave_uot": [".draft"] }));
    let (ended, _) = stage.room.job(&stage.ask(JobKind::Plan, misspelt, None)).await;
    let Err(PluginError::Refused(why)) = ended else { panic!("{ended:?}") };
    assert!(why.contains("leave_uot"), "{why}");
}
