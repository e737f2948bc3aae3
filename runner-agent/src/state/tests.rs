use serde_json::json;

use super::{apply::InProgress, *};
use crate::host::Process;
use domain::ids::{ExecutionId, InstallId};
use install_keys::{InstallKeys, Seed};

const EXECUTION: &str = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";

struct Fixture {
    root: tempfile::TempDir,
    module: tempfile::TempDir,
    store: StateStore,
}

fn fixture() -> Fixture {
    let (root, module) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys = InstallKeys::new(&Seed::from_bytes(&[7; 32]), 1);
    let install = InstallId(ulid::Ulid::nil());
    let keys = StateKeys::derive(&keys, "log", install, ["web"]);
    let store = StateStore::new(root.path(), "web").with_cipher(keys.component("web"));
    data::directory(store.dir()).unwrap();
    Fixture { root, module, store }
}

fn execution() -> ExecutionId {
    EXECUTION.parse().unwrap()
}

fn state(serial: u64) -> Vec<u8> {
    json!({ "version": 4, "lineage": "l", "serial": serial, "resources": [] }).to_string().into()
}

impl Fixture {
    fn begin(&self) {
        self.store.begin_apply(execution(), self.module.path(), true).unwrap();
    }

    /// Replaces the process of the apply with one that has ended.
    fn shim_dies(&self) {
        let mut record: InProgress = self.store.in_progress().unwrap().unwrap();
        let own = Process::of(std::process::id()).unwrap();
        record.process = Process { start_time: own.start_time + 1, pid: 1, ..own };
        data::replace_json(&self.store.dir().join(IN_PROGRESS), &record).unwrap();
    }

    fn blocked(&self) -> String {
        let error = self.store.require_resolved().unwrap_err();
        assert!(matches!(error, StateError::Blocked(_)), "{error:?}");
        error.to_string()
    }
}

#[test]
fn the_marker_returns_only_after_an_unchanged_apply() {
    for (end, is_back) in [(ApplyEnd::Unchanged, true), (ApplyEnd::Changed, false)] {
        let fixture = fixture();
        fixture.store.mark_as_nothing().unwrap();
        fixture.begin();
        assert!(!fixture.store.is_marked_as_nothing());
        // Terraform creates the file with its lock.
        fs::write(fixture.store.file(), "").unwrap();
        assert_eq!(fixture.store.end_apply(end).is_ok(), is_back);
        assert_eq!(fixture.store.is_marked_as_nothing(), is_back);
        assert_eq!(fixture.store.require_resolved().is_ok(), is_back);
    }
}

#[test]
fn an_apply_with_a_complete_state_blocks_no_plan() {
    let fixture = fixture();
    fixture.begin();
    assert_eq!(executions_in_progress(fixture.root.path()).unwrap(), [execution()].into());
    fs::write(fixture.store.file(), state(1)).unwrap();
    fixture.shim_dies();
    fixture.store.require_resolved().unwrap();
    assert!(executions_in_progress(fixture.root.path()).unwrap().is_empty());
    assert!(!fixture.store.dir().join(RESERVE).exists());
}

#[test]
fn an_apply_whose_shim_died_is_rescued_by_the_next_plan() {
    let fixture = fixture();
    fs::write(fixture.store.file(), state(1)).unwrap();
    fixture.begin();
    fs::write(fixture.store.file(), &state(2)[..20]).unwrap();
    fs::write(fixture.module.path().join("errored.tfstate"), state(2)).unwrap();
    fixture.shim_dies();
    let rescued = fixture.store.dir().join(format!("errored-{EXECUTION}.encrypted"));
    assert!(fixture.blocked().contains(&rescued.display().to_string()));
    let encrypted = fs::read(&rescued).unwrap();
    assert!(!String::from_utf8_lossy(&encrypted).contains("lineage"));
    assert!(!fixture.module.path().join("errored.tfstate").exists());
    // when a user chooses the rescued state
    let decision = Decision::Restore(rescued);
    let resolution = fixture.store.decide(decision, &Basis::default()).unwrap();
    assert_eq!(resolution.mark().serial, 2);
    resolution.carry_out().unwrap();
    drop(resolution);
    fixture.store.require_resolved().unwrap();
    assert_eq!(fixture.store.mark().unwrap(), StateMark { lineage: Some("l".into()), serial: 2 });
    assert_eq!(**fixture.store.read().unwrap().unwrap(), state(2));
    let pending = fixture.store.pending().unwrap().unwrap();
    assert!(pending.is_decided && pending.head.is_empty);
}

#[test]
fn a_restored_state_of_the_known_lineage_gets_the_next_serial() {
    let fixture = fixture();
    let file = fixture.module.path().join("backup.tfstate");
    let older = Basis::default().with_older(true);
    let restore = |serial: u64, becomes: u64| {
        fs::write(&file, state(serial)).unwrap();
        let resolution = fixture.store.decide(Decision::Restore(file.clone()), &older).unwrap();
        assert_eq!(resolution.mark().serial, becomes);
        resolution.carry_out().unwrap();
        assert_eq!(fixture.store.mark().unwrap().serial, becomes);
    };
    restore(7, 7);
    restore(3, 8);
    restore(20, 21);
    // Without resources, the next apply continues from an empty state.
    let resolution = fixture.store.decide(Decision::NothingExists, &Basis::default()).unwrap();
    assert_eq!(resolution.mark(), &StateMark::default());
    resolution.carry_out().unwrap();
    assert_eq!(fixture.store.mark().unwrap().serial, 22);
    assert!(fixture.store.stored().unwrap().unwrap().head.is_empty);
    let names = fs::read_dir(fixture.store.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let aside = names.filter(|name| name.to_string_lossy().starts_with(RESOLVED));
    assert_eq!(aside.count(), 3, "every replaced state is kept");
}

#[test]
fn an_apply_whose_first_write_was_interrupted_blocks_no_plan() {
    let fixture = fixture();
    let cipher = fixture.store.cipher.clone().unwrap();
    fixture.begin();
    let fence = schemas::manifest::Fence { epoch: 1, position: 9 };
    let (head, ciphertext) = copies::encrypt(&cipher, &state(1), fence).unwrap();
    let upload = schemas::runner::StateUpload { head, written_by: None, is_decided: false };
    fixture.store.write_next(&upload, &ciphertext).unwrap();
    fixture.shim_dies();
    fixture.store.require_resolved().unwrap();
    assert_eq!(**fixture.store.read().unwrap().unwrap(), state(1));
    assert_eq!(fixture.store.pending().unwrap(), Some(upload));
}

#[test]
fn a_truncated_state_blocks_until_a_user_decides() {
    let fixture = fixture();
    fs::write(fixture.store.file(), state(1)).unwrap();
    fixture.begin();
    fs::write(fixture.store.file(), &state(2)[..20]).unwrap();
    fixture.shim_dies();
    let why = fixture.blocked();
    let file = fixture.store.file().display().to_string();
    assert!(why.contains(&file) && why.contains("stead-runner state resolve web"), "{why}");
    assert!(fixture.store.decide(Decision::KeepCurrent, &Basis::default()).is_err());
    assert!(
        fixture.store.decide(Decision::Restore(fixture.store.file()), &Basis::default()).is_err()
    );
    fixture.store.decide(Decision::NothingExists, &Basis::default()).unwrap().carry_out().unwrap();
    fixture.store.require_resolved().unwrap();
    assert!(fixture.store.is_marked_as_nothing() && !fixture.store.file().exists());
    // The truncated state was not deleted.
    let names = fs::read_dir(fixture.store.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().starts_with(RESOLVED)));
}

#[test]
fn a_reserve_is_written_and_grows_with_the_state() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = fixture();
    let state = fs::File::create(fixture.store.file()).unwrap();
    state.set_len(40 << 20).unwrap();
    fixture.begin();
    let reserve = fs::metadata(fixture.store.dir().join(RESERVE)).unwrap();
    assert_eq!(reserve.len(), 80 << 20);
    assert!(reserve.blocks() * 512 >= reserve.len(), "the reserve is sparse");
}

#[test]
fn an_apply_that_still_runs_blocks_the_plan() {
    let fixture = fixture();
    fixture.begin();
    let mut record: InProgress = fixture.store.in_progress().unwrap().unwrap();
    record.process = Process::of(std::os::unix::process::parent_id()).unwrap();
    data::replace_json(&fixture.store.dir().join(IN_PROGRESS), &record).unwrap();
    assert!(fixture.blocked().contains("still runs"));
    assert!(fixture.store.decide(Decision::NothingExists, &Basis::default()).is_err());
}

#[test]
fn an_apply_runs_as_long_as_any_process_of_its_execution() {
    let fixture = fixture();
    fs::write(fixture.store.file(), state(1)).unwrap();
    // Uses a new id, because concurrent tests use the constant.
    let execution = ExecutionId(ulid::Ulid::new());
    fixture.store.begin_apply(execution, fixture.module.path(), true).unwrap();
    fixture.shim_dies();
    let mut terraform = std::process::Command::new("sleep")
        .arg("60")
        .env("STEAD_EXECUTION", execution.to_string())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let why = fixture.blocked();
    let error = fixture
        .store
        .decide(Decision::KeepCurrent, &Basis::default())
        .map(drop)
        .unwrap_err()
        .to_string();
    terraform.kill().unwrap();
    terraform.wait().unwrap();
    for why in [why, error] {
        assert!(why.contains("still runs: sleep (pid"), "{why}");
    }
    fixture.store.require_resolved().unwrap();
}

#[test]
fn only_one_process_begins_ends_or_resolves_at_a_time() {
    let fixture = fixture();
    fs::write(fixture.store.file(), state(1)).unwrap();
    let resolution = fixture.store.decide(Decision::KeepCurrent, &Basis::default()).unwrap();
    let (store, module) = (fixture.store.clone(), fixture.module.path().to_owned());
    let applies = std::thread::spawn(move || {
        store.begin_apply(execution(), &module, true).unwrap();
        store.end_apply(ApplyEnd::Unchanged).unwrap();
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!fixture.store.dir().join(IN_PROGRESS).exists() && !applies.is_finished());
    resolution.carry_out().unwrap();
    drop(resolution);
    applies.join().unwrap();
}

#[test]
fn a_second_apply_does_not_begin() {
    let fixture = fixture();
    fixture.begin();
    let mut record: InProgress = fixture.store.in_progress().unwrap().unwrap();
    record.process = Process::of(std::os::unix::process::parent_id()).unwrap();
    data::replace_json(&fixture.store.dir().join(IN_PROGRESS), &record).unwrap();
    let second = ExecutionId(ulid::Ulid::new());
    let error = fixture.store.begin_apply(second, fixture.module.path(), true).unwrap_err();
    assert!(error.to_string().contains("still runs"), "{error}");
    assert_eq!(executions_in_progress(fixture.root.path()).unwrap(), [execution()].into());
}

#[test]
fn an_apply_that_cannot_begin_removes_its_files() {
    let fixture = fixture();
    // given a marker that cannot be removed
    fs::create_dir(fixture.store.dir().join(NOTHING)).unwrap();
    fixture.store.begin_apply(execution(), fixture.module.path(), true).unwrap_err();
    assert!(fixture.store.is_marked_as_nothing());
    assert!(!fixture.store.dir().join(IN_PROGRESS).exists());
    assert!(!fixture.store.dir().join(RESERVE).exists());
    fixture.store.require_resolved().unwrap();
}
