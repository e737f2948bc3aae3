//! Applies on a full disk, with real Terraform and a real file system.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use domain::digest::Digest;
use runner_agent::{
    plugins::{Outcome, PluginError},
    state::{Basis, Decision},
};
use schemas::runner::JobKind;
use serde_json::{Value, json};

use super::{
    state_server::Uploads,
    subjects::terraform,
    test_runner::{JobRecord, JobSpec, TestRunner},
};

const CANARY: &str = "s3cret-canary";

/// Mounted tmpfs of 96 MiB: the reserve of one apply and little more.
struct Disk(PathBuf);

impl Disk {
    /// Mounts the disk. If mounting is not permitted, prints a message and returns `None`; in CI,
    /// fails.
    fn mount() -> Option<Disk> {
        let disk = Disk(tempfile::tempdir().unwrap().keep());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(&disk.0);
        if mount.output().is_ok_and(|done| done.status.success()) {
            return Some(disk);
        }
        assert!(std::env::var_os("CI").is_none(), "CI must be root and able to mount a tmpfs");
        eprintln!("SKIPPED: a full disk is NOT tested, mounting a tmpfs is not permitted");
        None
    }

    fn fill(&self) -> String {
        let file = self.0.join("fill").display().to_string();
        // The blocks get smaller until no byte fits any more.
        format!(
            "for size in 1M 4k 1; do dd if=/dev/zero bs=$size of={file} oflag=append conv=notrunc 2>/dev/null; done; true"
        )
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg("-l").arg(&self.0).status();
        let _best_effort = fs::remove_dir(&self.0);
    }
}

const MODULE: &str = r#"
variable "text" { type = string }
variable "during" { type = string }

resource "terraform_data" "web" {
  input            = var.text
  triggers_replace = [var.during]
  provisioner "local-exec" {
    command = var.during
  }
}
"#;

struct Fixture {
    runner: TestRunner,
    spec: JobSpec,
    disk: Disk,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        let disk = Disk::mount()?;
        let mut runner = TestRunner::on(&disk.0);
        let subject = terraform(&mut runner)?;
        let artifacts = vec![runner.artifact(&[("main.tf", MODULE)])];
        let (inputs, plugin) = (Value::Null, subject.plugin);
        let spec =
            JobSpec { kind: JobKind::Plan, plugin, artifacts, inputs, plan: None, state: None };
        Some(Fixture { runner, spec, disk })
    }

    fn inputs(text: &str, during: &str, present: bool) -> Value {
        json!({
            "component": "web", "operation": "apply", "present": present, "terraform_version": "",
            "vars": { "text": text, "during": during },
        })
    }

    async fn plan(&self, inputs: &Value) -> Digest {
        let spec = JobSpec { inputs: inputs.clone(), ..self.spec.clone() };
        let (result, record) = self.runner.job(&spec).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
        record.plan.unwrap().digest
    }

    async fn refused_plan(&self, inputs: &Value) -> String {
        let spec = JobSpec { inputs: inputs.clone(), ..self.spec.clone() };
        let (result, record) = self.runner.job(&spec).await;
        assert!(record.plan.is_none());
        let Err(PluginError::Refused(why)) = result else {
            panic!("{result:?} {:?}", record.lines)
        };
        why
    }

    async fn apply(
        &self,
        inputs: &Value,
        plan: &Digest,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let (kind, plan) = (JobKind::Apply, Some(plan.clone()));
        self.runner.job(&JobSpec { kind, plan, inputs: inputs.clone(), ..self.spec.clone() }).await
    }

    fn state(&self) -> PathBuf {
        self.runner.at("state").join("web")
    }

    /// Returns the only rescued state.
    fn rescued(&self) -> PathBuf {
        let store = self.runner.store();
        let rescued = store.unresolved().unwrap();
        assert_eq!(rescued.len(), 1, "{rescued:?}");
        rescued.into_iter().next().unwrap()
    }

    /// Runs an apply that cannot write its state, because the server rejects it. The apply must fail. Its state must be rescued,
    /// must not be logged, and must block every plan until a user restores it. After that a plan
    /// has no changes.
    async fn assert_loses_no_state(&self, text: &str, inputs: &Value, mut later: Value) {
        let plan = self.plan(inputs).await;
        self.runner.set_uploads(Uploads::Reject);
        let (result, record) = self.apply(inputs, &plan).await;
        assert!(matches!(result, Ok(Outcome::Failed { .. })), "{result:?} {:?}", record.lines);
        assert!(!record.has(CANARY), "a value of the state was logged");
        let rescued = self.rescued();
        assert!(record.has(&rescued.display().to_string()), "{:?}", record.lines);
        let encrypted = fs::read(&rescued).unwrap();
        assert!(!String::from_utf8_lossy(&encrypted).contains(CANARY));
        assert!(!self.state().join("no-prior-state").exists());
        assert!(!self.state().join("apply-reserve").exists());

        // The result does not depend on the vendor's input `present`.
        for present in [false, true] {
            later["present"] = json!(present);
            let why = self.refused_plan(&later).await;
            let names = [rescued.display().to_string(), "stead-runner state resolve web".into()];
            assert!(names.iter().all(|name| why.contains(name)), "{why}");
        }
        self.disk.free();
        self.refused_plan(&later).await;
        let store = self.runner.store();
        let decision = Decision::Restore(rescued);
        store.decide(decision, &Basis::default()).unwrap().carry_out().unwrap();
        let state = self.runner.state();
        assert_eq!(state["resources"][0]["instances"][0]["attributes"]["input"]["value"], text);
        assert_eq!(store.unresolved().unwrap(), Vec::<PathBuf>::new());
        self.runner.set_uploads(Uploads::Accept);
        let spec = JobSpec { inputs: later, ..self.spec.clone() };
        let (result, record) = self.runner.job(&spec).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
        assert!(record.plan.unwrap().noop, "the plan would create existing resources again");
    }
}

/// The reserve of the apply is the space of its state.
#[tokio::test]
async fn an_apply_on_a_disk_that_fills_up_stores_its_state() {
    for is_away in [false, true] {
        let Some(fixture) = Fixture::new() else { return };
        let inputs = Fixture::inputs(CANARY, &fixture.disk.fill(), false);
        let plan = fixture.plan(&inputs).await;
        if is_away {
            fixture.runner.set_uploads(Uploads::Lose);
        }
        let (result, record) = fixture.apply(&inputs, &plan).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
        assert_eq!(fixture.runner.store().pending().unwrap().is_some(), is_away);
        assert_eq!(fixture.runner.state()["resources"].as_array().unwrap().len(), 1);
        assert!(!fixture.state().join("apply-reserve").exists());
    }
}

#[tokio::test]
async fn a_first_apply_on_a_disk_that_fills_up_loses_no_state() {
    let Some(fixture) = Fixture::new() else { return };
    let inputs = Fixture::inputs(CANARY, &fixture.disk.fill(), false);
    fixture.assert_loses_no_state(CANARY, &inputs, inputs.clone()).await;
}

#[tokio::test]
async fn a_later_apply_on_a_disk_that_fills_up_loses_no_state() {
    let Some(fixture) = Fixture::new() else { return };
    let small = Fixture::inputs(CANARY, "true", false);
    let plan = fixture.plan(&small).await;
    let (result, record) = fixture.apply(&small, &plan).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    // The text is longer than the part of a line that is read at once.
    let text = CANARY.repeat(120_000);
    let inputs = Fixture::inputs(&text, &fixture.disk.fill(), true);
    fixture.assert_loses_no_state(&text, &inputs, inputs.clone()).await;
}

#[tokio::test]
async fn no_apply_starts_without_the_reserve_and_its_plan_stays_valid() {
    let Some(fixture) = Fixture::new() else { return };
    let marker = fixture.disk.0.join("began").display().to_string();
    let inputs = Fixture::inputs(CANARY, &format!("touch {marker}"), false);
    let plan = fixture.plan(&inputs).await;
    // given a disk with space for Terraform, but not for the reserve
    fs::write(fixture.disk.0.join("fill"), vec![1; 50 << 20]).unwrap();
    let (result, record) = fixture.apply(&inputs, &plan).await;
    let Err(PluginError::Refused(why)) = result else { panic!("{result:?} {:?}", record.lines) };
    assert!(why.contains("64 MiB") && why.contains("free disk space and retry"), "{why}");
    assert!(!Path::new(&marker).exists());
    assert!(fixture.state().join("no-prior-state").exists());
    fixture.disk.free();
    let (result, record) = fixture.apply(&inputs, &plan).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert!(Path::new(&marker).exists());
}

#[tokio::test]
async fn a_failed_rescue_keeps_the_dump_and_blocks_every_plan() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.runner.set_uploads(Uploads::Reject);
    // given a directory in place of the rescued state
    let obstacle =
        fixture.state().join("errored-$STEAD_EXECUTION.encrypted/x").display().to_string();
    let during = format!("mkdir -p {obstacle}; {}", fixture.disk.fill());
    let inputs = Fixture::inputs(CANARY, &during, false);
    let plan = fixture.plan(&inputs).await;
    let (result, record) = fixture.apply(&inputs, &plan).await;
    assert!(matches!(result, Ok(Outcome::Failed { .. })), "{result:?} {:?}", record.lines);
    assert!(!record.has(CANARY), "a value of the state was logged");
    fixture.disk.free();
    let why = fixture.refused_plan(&inputs).await;
    assert!(why.contains("could not be rescued"), "{why}");
    assert!(why.contains("stead-runner state resolve web"), "{why}");
    assert!(record.has("could not be rescued"), "{:?}", record.lines);

    // when the obstacle is removed, then the next plan rescues the state
    let obstacle = fs::read_dir(fixture.state()).unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains("errored-");
    let obstacle = obstacle.into_iter().find(is_it).unwrap();
    fs::remove_dir_all(obstacle).unwrap();
    let why = fixture.refused_plan(&inputs).await;
    assert!(why.contains(&fixture.rescued().display().to_string()), "{why}");
    let store = fixture.runner.store();
    let decision = Decision::Restore(fixture.rescued());
    store.decide(decision, &Basis::default()).unwrap().carry_out().unwrap();
    assert_eq!(fixture.runner.state()["resources"].as_array().unwrap().len(), 1);
}
