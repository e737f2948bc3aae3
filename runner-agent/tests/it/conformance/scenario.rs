//! Scenario of plan, approval and apply, and of applies that must be refused.

use std::{fs, os::unix::fs::PermissionsExt};

use domain::digest::Digest;
use runner_agent::plugins::{Outcome, PlanRecord, PluginError};
use schemas::runner::{FailureReason, JobKind};
use serde_json::{Value, json};

use super::{
    cluster_subjects::{Wrap, helm, kubernetes},
    subjects::{Subject, files, files_v1, terraform},
    test_runner::{JobRecord, JobSpec, TestRunner},
    vendor::described,
};

struct Fixture {
    runner: TestRunner,
    subject: Subject,
}

impl Fixture {
    fn spec(&self, kind: JobKind, inputs: Value, plan: Option<Digest>) -> JobSpec {
        let (plugin, artifacts) =
            (self.subject.plugin.clone(), vec![self.subject.artifact.clone()]);
        JobSpec { kind, plugin, artifacts, inputs, plan, state: None }
    }

    /// Makes the next applies slow, and returns their inputs.
    fn slow(&mut self) -> Value {
        self.runner.env.extend(self.subject.slow_env.clone());
        self.subject.slow.clone()
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
        let (result, record) = self.runner.job(&self.spec(JobKind::Plan, inputs, None)).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
        record.plan.unwrap()
    }

    async fn apply(&self, inputs: Value, plan: &Digest) -> JobRecord {
        let (result, record) =
            self.runner.job(&self.spec(JobKind::Apply, inputs, Some(plan.clone()))).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
        record
    }

    async fn stale_reason(&self, inputs: Value, plan: &Digest) -> String {
        let (result, record) =
            self.runner.job(&self.spec(JobKind::Apply, inputs, Some(plan.clone()))).await;
        match result {
            Err(PluginError::PlanStale(why)) => why,
            other => panic!("{other:?} {:?}", record.lines),
        }
    }

    fn deployed_value(&self, record: &JobRecord) -> Option<String> {
        (self.subject.deployed_value)(record.outputs.as_ref().unwrap())
    }
}

async fn assert_applies_the_approved_plan(fixture: &Fixture) {
    let inputs = fixture.inputs("one");
    let plan = fixture.plan(inputs.clone()).await;
    assert!(!plan.noop);
    assert!(plan.add >= 1, "{plan:?}");
    assert!(!plan.summary.to_string().contains("one\""), "a value: {}", plan.summary);

    let applied = fixture.apply(inputs.clone(), &plan.digest).await;
    assert_eq!(fixture.deployed_value(&applied).as_deref(), Some("one"));
    assert!(applied.phases.iter().any(|phase| phase == "apply"), "{:?}", applied.phases);

    // The plan has no changes. It reports the outputs, in case the report of the apply was lost.
    let (result, record) =
        fixture.runner.job(&fixture.spec(JobKind::Plan, inputs.clone(), None)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert_eq!(fixture.deployed_value(&record).as_deref(), Some("one"));
    let second_plan = record.plan.unwrap();
    assert!(second_plan.noop, "{:?}", second_plan.summary);
    assert_eq!((second_plan.add, second_plan.change, second_plan.destroy), (0, 0, 0));

    // A plan can be applied only once.
    fixture.stale_reason(inputs, &plan.digest).await;

    let first = fixture.plan(fixture.inputs("two")).await;
    let second = fixture.plan(fixture.inputs("three")).await;
    let applied = fixture.apply(fixture.inputs("three"), &second.digest).await;
    assert_eq!(fixture.deployed_value(&applied).as_deref(), Some("three"));
    let why = fixture.stale_reason(fixture.inputs("two"), &first.digest).await;
    assert!(why.starts_with("the state was lineage"), "{why}");

    let removal = fixture.plan(fixture.removal()).await;
    assert!(removal.destroy >= 1 && removal.add == 0, "{removal:?}");
    let removed = fixture.apply(fixture.removal(), &removal.digest).await;
    assert_eq!(removed.outputs, Some(serde_json::Map::new()));
    let (_, record) =
        fixture.runner.job(&fixture.spec(JobKind::Plan, fixture.removal(), None)).await;
    assert!(record.plan.unwrap().noop && record.outputs.is_none());
}

async fn assert_refuses_other_plans(fixture: &Fixture) {
    let inputs = fixture.inputs("one");
    let plan = fixture.plan(inputs.clone()).await;
    let plan_dir = fixture.runner.at("plans").join(&plan.digest.to_string()[7..]);
    for path in [plan_dir.clone(), plan_dir.join("plan"), plan_dir.join("record.json")] {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }

    let why = fixture.stale_reason(fixture.inputs("other"), &plan.digest).await;
    assert_eq!(why, "the inputs, the environment or the role have changed");
    let why = fixture.stale_reason(fixture.removal(), &plan.digest).await;
    assert_eq!(why, "the plan was made for another component or operation");
    let mut other = fixture.spec(JobKind::Apply, inputs.clone(), Some(plan.digest.clone()));
    other.artifacts = vec![fixture.runner.artifact(&[("main.tf", ""), ("motd.txt", "")])];
    let (result, _) = fixture.runner.job(&other).await;
    assert_eq!(result.unwrap_err().to_string(), "the plan is stale: the artifact has changed");
    other.plan = None;
    let (result, _) = fixture.runner.job(&other).await;
    assert_eq!(result.unwrap_err().to_string(), "cannot apply: the manifest has no approved plan");

    let record = fs::read_to_string(plan_dir.join("record.json")).unwrap();
    let fewer = record.replace("\"add\":", "\"add\":1");
    assert_ne!(record, fewer);
    fs::write(plan_dir.join("record.json"), fewer).unwrap();
    let changed = "the plan on this runner is not the approved one";
    assert_eq!(fixture.stale_reason(inputs.clone(), &plan.digest).await, changed);
    fs::write(plan_dir.join("record.json"), record).unwrap();

    let mut file = fs::read(plan_dir.join("plan")).unwrap();
    *file.last_mut().unwrap() ^= 1;
    fs::write(plan_dir.join("plan"), &file).unwrap();
    assert_eq!(fixture.stale_reason(inputs.clone(), &plan.digest).await, changed);

    fs::remove_dir_all(&plan_dir).unwrap();
    let why = fixture.stale_reason(inputs.clone(), &plan.digest).await;
    assert_eq!(why, format!("this runner has no file of the plan {}", plan.digest));

    // None of these applies changed anything.
    let (plan, unchanged) = (fixture.plan(inputs).await, plan);
    assert_eq!((plan.add, plan.noop), (unchanged.add, false));
}

async fn assert_stops_at_a_cancel(fixture: &mut Fixture) {
    let slow = fixture.slow();
    let plan = fixture.plan(slow.clone()).await;
    let spec = fixture.spec(JobKind::Apply, slow.clone(), Some(plan.digest.clone()));
    let (result, record) =
        fixture.runner.job_until(&spec, &fixture.subject.text_during_apply).await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", record.lines);
    assert!(record.outputs.is_none());
    // The state has the changes before the stop, so this plan cannot be applied again.
    fixture.stale_reason(slow, &plan.digest).await;
}

/// Checks a runner that replaced a lost runner: a state outside its host is found again.
async fn assert_finds_its_state(fixture: &Fixture) {
    let inputs = fixture.inputs("one");
    let plan = fixture.plan(inputs.clone()).await;
    fixture.apply(inputs, &plan.digest).await;
    let state = fixture.runner.at("state");
    fs::remove_dir_all(&state).unwrap();
    fs::create_dir(&state).unwrap();
    let mut inputs = [fixture.inputs("one"), fixture.removal()];
    inputs.iter_mut().for_each(|inputs| inputs["present"] = json!(true));
    let [unchanged, removal] = inputs;
    assert!(fixture.plan(unchanged).await.noop);
    assert!(fixture.plan(removal).await.destroy >= 1);
}

/// Checks the same for a state on the host, of which the new runner and the server have nothing.
async fn assert_refuses_a_missing_state(fixture: &Fixture) {
    let inputs = fixture.inputs("one");
    let plan = fixture.plan(inputs.clone()).await;
    fixture.apply(inputs, &plan.digest).await;
    let mut there = [fixture.inputs("one"), fixture.inputs("two"), fixture.removal()];
    there.iter_mut().for_each(|inputs| inputs["present"] = json!(true));
    let (state, moved_state) = (fixture.runner.at("state"), fixture.runner.at("kept"));
    fs::rename(&state, &moved_state).unwrap();
    fs::create_dir(&state).unwrap();
    fixture.runner.forget_states();
    // The second attempt is refused too, although the first one created the directory.
    for inputs in there.iter().chain(&there) {
        let (result, record) =
            fixture.runner.job(&fixture.spec(JobKind::Plan, inputs.clone(), None)).await;
        let Err(PluginError::Refused(why)) = result else {
            panic!("{result:?} {:?}", record.lines)
        };
        let place = state.join("web").display().to_string();
        assert!(why.contains("its state is not on this host") && why.contains(&place), "{why}");
        assert!(record.plan.is_none());
    }

    fs::remove_dir_all(&state).unwrap();
    fs::rename(&moved_state, &state).unwrap();
    assert!(fixture.plan(there[0].clone()).await.noop);
    let removal = fixture.plan(there[2].clone()).await;
    assert!(removal.destroy >= 1, "{removal:?}");
}

/// Runs the whole scenario. Each part starts with an empty runner and component.
async fn assert_conforms(subject: impl Fn(&mut TestRunner) -> Option<Subject>) {
    let fixture = || {
        let mut runner = TestRunner::new();
        let subject = subject(&mut runner)?;
        Some(Fixture { runner, subject })
    };
    let Some(first) = fixture() else { return };
    assert_applies_the_approved_plan(&first).await;
    assert_refuses_other_plans(&fixture().unwrap()).await;
    assert_stops_at_a_cancel(&mut fixture().unwrap()).await;
    assert_not_applied_twice(&mut fixture().unwrap()).await;
    if first.subject.state_on_host {
        assert_refuses_a_missing_state(&fixture().unwrap()).await;
    } else {
        assert_finds_its_state(&fixture().unwrap()).await;
    }
}

#[tokio::test]
async fn terraform_conforms() {
    assert_conforms(terraform).await;
}

#[tokio::test]
async fn files_conforms() {
    assert_conforms(|runner| Some(files(runner))).await;
}

/// Executable of version 1 that never changes.
#[tokio::test]
async fn the_frozen_plugin_of_version_1_conforms() {
    assert_conforms(|runner| Some(files_v1(runner))).await;
}

#[tokio::test]
async fn kubernetes_manifest_conforms() {
    assert_conforms(|runner| kubernetes(runner, Wrap::Newest)).await;
}

#[tokio::test]
async fn kubernetes_manifest_conforms_to_version_1() {
    assert_conforms(|runner| kubernetes(runner, Wrap::Version1)).await;
}

#[tokio::test]
async fn helm_chart_conforms() {
    assert_conforms(|runner| helm(runner, Wrap::Newest)).await;
}

#[tokio::test]
async fn helm_chart_conforms_to_version_1() {
    assert_conforms(|runner| helm(runner, Wrap::Version1)).await;
}

/// Plugin of `STEAD_CONFORMANCE`, else the example as its file describes it.
#[tokio::test]
async fn a_described_plugin_conforms() {
    assert_conforms(|runner| Some(described(runner))).await;
}

/// An apply whose program never started blocks nothing, even if the component has no state yet.
#[tokio::test]
async fn an_apply_of_terraform_that_did_not_start_blocks_no_plan() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let fixture = Fixture { runner, subject };
    let inputs = fixture.inputs("one");
    let apply = |plan: PlanRecord| fixture.spec(JobKind::Apply, inputs.clone(), Some(plan.digest));

    let spec = apply(fixture.plan(inputs.clone()).await);
    let (result, record) = fixture.runner.job_without_journal_in(&spec, "apply").await;
    assert!(matches!(result, Err(PluginError::Io { .. })), "{result:?} {:?}", record.lines);

    let spec = apply(fixture.plan(inputs.clone()).await);
    let (result, record) = fixture.runner.job_cancelled_in(&spec, "apply").await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", record.lines);

    let plan = fixture.plan(inputs.clone()).await;
    let applied = fixture.apply(inputs, &plan.digest).await;
    assert_eq!(fixture.deployed_value(&applied).as_deref(), Some("one"));
}

/// Kills the child during an apply. The state may look unchanged, but the plan cannot be applied
/// again.
async fn assert_not_applied_twice(fixture: &mut Fixture) {
    let slow = fixture.slow();
    let plan = fixture.plan(slow.clone()).await;
    let spec = fixture.spec(JobKind::Apply, slow.clone(), Some(plan.digest.clone()));
    let (result, record) =
        fixture.runner.job_killed(&spec, &fixture.subject.text_during_apply).await;
    let Outcome::Failed { reason, signal, .. } = result.unwrap() else {
        panic!("{:?}", record.lines)
    };
    assert_eq!((reason, signal), (FailureReason::Signal, Some(9)), "{:?}", record.lines);
    let why = fixture.stale_reason(slow, &plan.digest).await;
    assert!(why.contains("has begun to apply it"), "{why}");
}

#[tokio::test]
async fn an_external_plugin_applies_the_approved_plan() {
    let mut runner = TestRunner::new();
    let subject = files(&mut runner);
    let fixture = Fixture { runner, subject };
    assert_applies_the_approved_plan(&fixture).await;
    let ledger = fixture.runner.at("ledger");
    // Two files were created, one was changed and two were removed. Each effect happened once.
    assert_eq!(fs::read_to_string(ledger).unwrap().lines().count(), 5);
}

/// From version 2 on, inputs and results above the limit of a message are files. The runner refuses
/// such inputs for a plugin of version 1.
#[tokio::test]
async fn large_inputs_and_results_are_files() {
    let mut runner = TestRunner::new();
    let subject = files(&mut runner);
    let fixture = Fixture { runner, subject };
    let long = "x".repeat(400);
    let mut inputs = json!({ "component": "web", "operation": "apply", "vars": {} });
    for n in 0..4_000 {
        inputs["vars"][format!("file-{n}-{}", "n".repeat(150))] = json!(long);
    }
    assert!(inputs.to_string().len() > 2 << 20);
    let plan = fixture.plan(inputs.clone()).await;
    assert_eq!(plan.add, 4_001);
    assert!(plan.summary.to_string().len() > 512 << 10, "the result is a file");

    let mut runner = TestRunner::new();
    let subject = files_v1(&mut runner);
    let fixture = Fixture { runner, subject };
    let (result, _) = fixture.runner.job(&fixture.spec(JobKind::Plan, inputs, None)).await;
    let Err(PluginError::Refused(why)) = result else { panic!("{result:?}") };
    assert!(why.contains("cannot send the call health to the plugin"), "{why}");
}

#[tokio::test]
async fn a_failed_preflight_refuses_the_plan() {
    let mut runner = TestRunner::new();
    let subject = files(&mut runner);
    fs::write(runner.at("account"), "a file").unwrap();
    let fixture = Fixture { runner, subject };
    let spec = fixture.spec(JobKind::Plan, fixture.inputs("one"), None);
    let (result, record) = fixture.runner.job(&spec).await;
    let Err(PluginError::Refused(why)) = result else { panic!("{result:?}") };
    assert!(why.starts_with("root: cannot create ") && why.contains("STEAD_FILES_ROOT"), "{why}");
    assert!(record.plan.is_none());
    // A failed check does not prevent a destroy.
    let mut inputs = fixture.inputs("one");
    inputs["operation"] = json!("destroy");
    let (result, record) = fixture.runner.job(&fixture.spec(JobKind::Plan, inputs, None)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert!(record.plan.is_some());
}

#[tokio::test]
async fn an_external_plugin_refuses_other_plans() {
    let mut runner = TestRunner::new();
    let subject = files(&mut runner);
    let fixture = Fixture { runner, subject };
    assert_refuses_other_plans(&fixture).await;
    assert!(!fixture.runner.at("account").exists());
}

#[tokio::test]
async fn a_component_without_resources_needs_no_state() {
    let mut runner = TestRunner::new();
    let mut subject = files(&mut runner);
    subject.artifact = runner.artifact(&[]);
    let fixture = Fixture { runner, subject };
    let nothing = |operation: &str, present: bool| json!({ "component": "web", "operation": operation, "vars": {}, "present": present });
    assert!(fixture.plan(nothing("apply", false)).await.noop);
    assert!(fixture.plan(nothing("apply", true)).await.noop);
    assert!(fixture.plan(nothing("destroy", true)).await.noop);

    // After the first apply there is a state that can be lost.
    let mut inputs = fixture.inputs("one");
    inputs["present"] = json!(true);
    let plan = fixture.plan(inputs.clone()).await;
    fixture.apply(inputs.clone(), &plan.digest).await;
    fs::remove_file(fixture.runner.at("state").join("web/files.json")).unwrap();
    let (result, _) = fixture.runner.job(&fixture.spec(JobKind::Plan, inputs, None)).await;
    assert!(matches!(result, Err(PluginError::Refused(_))), "{result:?}");
}

#[tokio::test]
async fn an_external_plugin_gets_the_settings_of_its_component() {
    let mut runner = TestRunner::new();
    let mut subject = files(&mut runner);
    subject.artifact = runner.artifact(&[("a.txt", "a"), ("b.draft", "b")]);
    let fixture = Fixture { runner, subject };
    let with = |settings: Value| json!({ "component": "web", "operation": "apply", "vars": {}, "settings": settings });
    assert_eq!(fixture.plan(with(json!({}))).await.add, 2);
    assert_eq!(fixture.plan(with(json!({ "leave_out": [".draft"] }))).await.add, 1);
    let misspelt = with(json!({ "leave_uot": [".draft"] }));
    let (result, _) = fixture.runner.job(&fixture.spec(JobKind::Plan, misspelt, None)).await;
    let Err(PluginError::Refused(why)) = result else { panic!("{result:?}") };
    assert!(why.contains("leave_uot"), "{why}");
}
