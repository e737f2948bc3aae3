use serde_json::json;

use super::{apply::InProgress, *};
use crate::host::Process;
use domain::ids::ExecutionId;

const EXECUTION: &str = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";

struct Stage {
    root: tempfile::TempDir,
    module: tempfile::TempDir,
    store: StateStore,
}

fn stage() -> Stage {
    let (root, module) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = StateStore::new(root.path(), "web");
    data::directory(store.dir()).unwrap();
    Stage { root, module, store }
}

fn execution() -> ExecutionId {
    EXECUTION.parse().unwrap()
}

fn state(serial: u64) -> Vec<u8> {
    json!({ "version": 4, "lineage": "l", "serial": serial, "resources": [] }).to_string().into()
}

impl Stage {
    fn begin(&self) {
        self.store.begin_apply(execution(), self.module.path(), true).unwrap();
    }

    /// Replaces the process of the apply with one that has ended.
    fn shim_dies(&self) {
        let mut record: InProgress = self.store.in_progress().unwrap().unwrap();
        let me = Process::of(std::process::id()).unwrap();
        record.process = Process { start_time: me.start_time + 1, pid: 1, ..me };
        data::replace_json(&self.store.dir().join(IN_PROGRESS), &record).unwrap();
    }

    fn blocked(&self) -> String {
        let error = self.store.require_resolved().unwrap_err();
        assert!(matches!(error, StateError::Blocked(_)), "{error:?}");
        error.to_string()
    }
}

#[test]
fn the_marker_is_gone_when_an_apply_begins_and_comes_back_only_if_nothing_was_changed() {
    for (end, is_back) in [(ApplyEnd::Unchanged, true), (ApplyEnd::Changed, false)] {
        let stage = stage();
        stage.store.mark_as_nothing().unwrap();
        stage.begin();
        assert!(!stage.store.is_marked_as_nothing());
        // Terraform creates the file with its lock.
        fs::write(stage.store.file(), "").unwrap();
        assert_eq!(stage.store.end_apply(end).is_ok(), is_back);
        assert_eq!(stage.store.is_marked_as_nothing(), is_back);
        assert_eq!(stage.store.require_resolved().is_ok(), is_back);
    }
}

#[test]
fn an_apply_that_left_a_complete_state_blocks_nothing() {
    let stage = stage();
    stage.begin();
    assert_eq!(executions_in_progress(stage.root.path()).unwrap(), [execution()].into());
    fs::write(stage.store.file(), state(1)).unwrap();
    stage.shim_dies();
    stage.store.require_resolved().unwrap();
    assert!(executions_in_progress(stage.root.path()).unwrap().is_empty());
    assert!(!stage.store.dir().join(RESERVE).exists());
}

#[test]
fn an_apply_whose_shim_died_is_rescued_by_the_next_plan() {
    let stage = stage();
    fs::write(stage.store.file(), state(1)).unwrap();
    stage.begin();
    fs::write(stage.store.file(), &state(2)[..20]).unwrap();
    fs::write(stage.module.path().join("errored.tfstate"), state(2)).unwrap();
    stage.shim_dies();
    let rescued = stage.store.dir().join(format!("errored-{EXECUTION}.tfstate"));
    assert!(stage.blocked().contains(&rescued.display().to_string()));
    assert_eq!(fs::read(&rescued).unwrap(), state(2));
    // when a user chooses the rescued state
    let decision = Decision::Restore(rescued);
    let resolution = stage.store.decide(decision).unwrap();
    assert_eq!(resolution.mark().serial, 2);
    resolution.carry_out().unwrap();
    drop(resolution);
    stage.store.require_resolved().unwrap();
    assert_eq!(stage.store.mark().unwrap(), StateMark { lineage: Some("l".into()), serial: 2 });
}

#[test]
fn a_state_that_was_cut_short_blocks_until_a_person_decides() {
    let stage = stage();
    fs::write(stage.store.file(), state(1)).unwrap();
    stage.begin();
    fs::write(stage.store.file(), &state(2)[..20]).unwrap();
    stage.shim_dies();
    let why = stage.blocked();
    let file = stage.store.file().display().to_string();
    assert!(why.contains(&file) && why.contains("stead-runner state resolve web"), "{why}");
    assert!(stage.store.decide(Decision::KeepCurrent).is_err());
    assert!(stage.store.decide(Decision::Restore(stage.store.file())).is_err());
    stage.store.decide(Decision::NothingExists).unwrap().carry_out().unwrap();
    stage.store.require_resolved().unwrap();
    assert!(stage.store.is_marked_as_nothing() && !stage.store.file().exists());
    // Nothing was deleted.
    let names = fs::read_dir(stage.store.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().starts_with(RESOLVED)));
}

#[test]
fn a_reserve_is_written_and_grows_with_the_state() {
    use std::os::unix::fs::MetadataExt as _;
    let stage = stage();
    let state = fs::File::create(stage.store.file()).unwrap();
    state.set_len(40 << 20).unwrap();
    stage.begin();
    let reserve = fs::metadata(stage.store.dir().join(RESERVE)).unwrap();
    assert_eq!(reserve.len(), 80 << 20);
    assert!(reserve.blocks() * 512 >= reserve.len(), "the reserve is sparse");
}

#[test]
fn an_apply_that_still_runs_blocks_the_plan() {
    let stage = stage();
    stage.begin();
    let mut record: InProgress = stage.store.in_progress().unwrap().unwrap();
    record.process = Process::of(std::os::unix::process::parent_id()).unwrap();
    data::replace_json(&stage.store.dir().join(IN_PROGRESS), &record).unwrap();
    assert!(stage.blocked().contains("still runs"));
    assert!(stage.store.decide(Decision::NothingExists).is_err());
}

#[test]
fn an_apply_runs_as_long_as_any_process_of_its_execution() {
    let stage = stage();
    fs::write(stage.store.file(), state(1)).unwrap();
    // Needs a new id, because concurrent tests use the constant.
    let execution = ExecutionId(ulid::Ulid::new());
    stage.store.begin_apply(execution, stage.module.path(), true).unwrap();
    stage.shim_dies();
    let mut terraform = std::process::Command::new("sleep")
        .arg("60")
        .env("STEAD_EXECUTION", execution.to_string())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let why = stage.blocked();
    let decided = stage.store.decide(Decision::KeepCurrent).map(drop).unwrap_err().to_string();
    terraform.kill().unwrap();
    terraform.wait().unwrap();
    for why in [why, decided] {
        assert!(why.contains("still runs: sleep (pid"), "{why}");
    }
    stage.store.require_resolved().unwrap();
}

#[test]
fn one_process_at_a_time_begins_ends_and_resolves() {
    let stage = stage();
    fs::write(stage.store.file(), state(1)).unwrap();
    let resolution = stage.store.decide(Decision::KeepCurrent).unwrap();
    let (store, module) = (stage.store.clone(), stage.module.path().to_owned());
    let applies = std::thread::spawn(move || {
        store.begin_apply(execution(), &module, true).unwrap();
        store.end_apply(ApplyEnd::Unchanged).unwrap();
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!stage.store.dir().join(IN_PROGRESS).exists() && !applies.is_finished());
    resolution.carry_out().unwrap();
    drop(resolution);
    applies.join().unwrap();
}

#[test]
fn a_second_apply_does_not_begin_beside_the_first() {
    let stage = stage();
    stage.begin();
    let mut record: InProgress = stage.store.in_progress().unwrap().unwrap();
    record.process = Process::of(std::os::unix::process::parent_id()).unwrap();
    data::replace_json(&stage.store.dir().join(IN_PROGRESS), &record).unwrap();
    let second = ExecutionId(ulid::Ulid::new());
    let error = stage.store.begin_apply(second, stage.module.path(), true).unwrap_err();
    assert!(error.to_string().contains("still runs"), "{error}");
    assert_eq!(executions_in_progress(stage.root.path()).unwrap(), [execution()].into());
}

#[test]
fn an_apply_that_could_not_begin_leaves_nothing_behind() {
    let stage = stage();
    // given a marker that cannot be removed
    fs::create_dir(stage.store.dir().join(NOTHING)).unwrap();
    stage.store.begin_apply(execution(), stage.module.path(), true).unwrap_err();
    assert!(stage.store.is_marked_as_nothing());
    assert!(!stage.store.dir().join(IN_PROGRESS).exists());
    assert!(!stage.store.dir().join(RESERVE).exists());
    stage.store.require_resolved().unwrap();
}
