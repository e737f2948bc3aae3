use install_keys::{InstallKeys, Seed};
use oci_layout::sha256;
use schemas::manifest::{Fence, Manifest};
use serde_json::json;

use super::*;
use crate::{
    plugins::{Cancel, JobContext, Registry, StateAccess, plugin::Changes},
    state::StateKeys,
};
use domain::ids::{ExecutionId, InstallId, JobId};

pub(in crate::plugins) fn context(root: &Path) -> JobContext {
    // The first test of the process installs the TLS provider. Further calls fail, and the
    // tests ignore the error.
    let _first = rustls::crypto::ring::default_provider().install_default();
    let (base_url, token, http) = (String::new(), String::new(), reqwest::Client::new());
    JobContext {
        work_dir: root.join("work"),
        state_dir: root.join("state"),
        artifacts_dir: root.join("artifacts"),
        plugin_dir: root.join("plugins"),
        plans_dir: root.join("plans"),
        env: BTreeMap::new(),
        git_env: BTreeMap::new(),
        kubeconfig_allows: Default::default(),
        background: std::sync::Arc::new(crate::plugins::contract::NoShim),
        sandbox: None,
        cancel: Cancel::default(),
        registry: Registry {
            base_url,
            token,
            http,
            idle_timeout: Registry::IDLE_TIMEOUT,
            observer: None,
        },
        job: JobId(ulid::Ulid::nil()),
        execution: ExecutionId(ulid::Ulid::nil()),
        images: crate::images::ImageSettings::default(),
        rules: None,
        known_state: crate::state::KnownState::default(),
        known_states: Default::default(),
        state: None,
        state_port: None,
        manifest_digest: sha256(b"manifest"),
        unfilled_inputs: None,
    }
}

#[test]
fn a_plan_of_a_runner_without_keys_is_stale_for_one_with_keys() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = context(dir.path());
    let manifest = json!({
        "version": 1, "job": job.job, "kind": "plan", "class": "pure",
        "plugin": {"name": "odd", "version": "1"}, "inputs": {"component": "web"},
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    });
    let manifest: Manifest = serde_json::from_value(manifest).unwrap();
    let planned = |work: &Work<'_>| {
        let file = work.job.work_dir.join("plan");
        fs::write(&file, "all of it").unwrap();
        let (extra_files, changes) = (BTreeMap::new(), Changes::default());
        let planned =
            Planned { file, extra_files, tool: "odd 1".into(), tool_digest: None, changes };
        store(work, planned, None, StateMark::default()).unwrap().digest
    };
    let digest = planned(&Work::new(&manifest, &job).unwrap());
    assert!(find(&Work::new(&manifest, &job).unwrap(), &digest).is_ok());
    let keys = InstallKeys::new(&Seed::from_bytes(&[7; 32]), 1);
    let keys = StateKeys::derive(&keys, "log", InstallId(ulid::Ulid::nil()), ["web"]);
    job.state = Some(StateAccess { keys, fence: Fence { epoch: 1, position: 7 } });
    let work = Work::new(&manifest, &job).unwrap();
    let stale = find(&work, &digest).err().unwrap().to_string();
    assert!(stale.contains("an earlier version of the runner made it"), "{stale}");
    // The same plan, made again, is encrypted.
    assert_eq!(planned(&work), digest);
    assert!(find(&work, &digest).is_ok());
}

#[test]
fn a_plan_is_stale_after_a_change_of_its_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let job = context(dir.path());
    let manifest = json!({
        "version": 1, "job": job.job, "kind": "plan", "class": "pure",
        "plugin": {"name": "odd", "version": "1"}, "inputs": {"component": "web"},
        "env": {"ENDPOINT": "a"}, "role": "maintenance",
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    });
    let read = |value: &Value| serde_json::from_value::<Manifest>(value.clone()).unwrap();
    let whole = read(&manifest);
    let work = Work::new(&whole, &job).unwrap();
    let file = job.work_dir.join("plan");
    fs::write(&file, "all of it").unwrap();
    let (beside, changes) = (BTreeMap::new(), Changes::default());
    let planned =
        Planned { file, extra_files: beside, tool: "odd 1".into(), tool_digest: None, changes };
    let digest = store(&work, planned, None, StateMark::default()).unwrap().digest;
    assert!(find(&work, &digest).is_ok());
    for (key, value) in [
        ("inputs", json!({"component": "web", "vars": {"size": "2"}})),
        ("env", json!({"ENDPOINT": "b"})),
        ("env", json!({})),
        ("role", json!("provision")),
    ] {
        let mut other = manifest.clone();
        other[key] = value;
        let other = read(&other);
        let stale = find(&Work::new(&other, &job).unwrap(), &digest).err().unwrap();
        assert!(stale.to_string().contains("have changed"), "{key}: {stale}");
    }
    let (one, other) = (format!("sha256:{:064}", 1), format!("sha256:{:064}", 2));
    let artifact =
        json!({"repository": "stead.plugins/odd", "digest": other, "size": 1, "publisher": ""});
    for plugin in [
        json!({"name": "even", "version": "1"}),
        json!({"name": "odd", "version": "2"}),
        json!({"name": "odd", "version": "1", "digest": one}),
        json!({"name": "odd", "version": "1", "artifact": artifact}),
    ] {
        let mut changed = manifest.clone();
        changed["plugin"] = plugin.clone();
        let changed = read(&changed);
        let stale = find(&Work::new(&changed, &job).unwrap(), &digest).err().unwrap();
        assert!(stale.to_string().contains("the plugin has changed"), "{plugin}: {stale}");
    }
}

#[test]
fn storing_a_plan_again_keeps_its_begun_file() {
    let dir = tempfile::tempdir().unwrap();
    let job = context(dir.path());
    let manifest: Manifest = serde_json::from_value(json!({
        "version": 1, "job": job.job, "kind": "plan", "class": "pure",
        "plugin": {"name": "odd", "version": "1"}, "inputs": {"component": "web"},
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    }))
    .unwrap();
    let work = Work::new(&manifest, &job).unwrap();
    let file = job.work_dir.join("plan");
    let planned = |text: &str| {
        fs::write(&file, text).unwrap();
        let (beside, changes) = (BTreeMap::new(), Changes::default());
        let planned = Planned {
            file: file.clone(),
            extra_files: beside,
            tool: "odd 1".into(),
            tool_digest: None,
            changes,
        };
        store(&work, planned, None, StateMark::default()).unwrap().digest
    };
    let digest = planned("all of it");
    let (approved, _) = find(&work, &digest).unwrap();
    approved.begin(&work).unwrap();
    assert_eq!(planned("all of it"), digest);
    let again = find(&work, &digest).err().unwrap();
    assert!(again.to_string().contains("has begun to apply it"), "{again}");
    assert_ne!(planned("another"), digest);
}

#[test]
fn an_approval_covers_the_details_that_were_sent() {
    let dir = tempfile::tempdir().unwrap();
    let job = context(dir.path());
    let manifest = |operation: &str| -> Manifest {
        serde_json::from_value(json!({
            "version": 1, "job": job.job, "kind": "plan", "class": "pure",
            "plugin": {"name": "odd", "version": "1"},
            "inputs": {"component": "web", "operation": operation},
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        }))
        .unwrap()
    };
    let apply = manifest("apply");
    let work = Work::new(&apply, &job).unwrap();
    let file = job.work_dir.join("plan");
    fs::write(&file, "all of it").unwrap();
    let planned = |work: &Work<'_>, details: &str| {
        let (extra_files, changes) = (BTreeMap::new(), Changes::default());
        let (file, tool) = (file.clone(), "odd 1".to_owned());
        let planned = Planned { file, extra_files, tool, tool_digest: None, changes };
        let details: PlanDetails = serde_json::from_str(details).unwrap();
        store(work, planned, Some(details), StateMark::default()).unwrap()
    };
    let with = |value: u32| {
        format!(
            r#"{{"resources":[{{"address":"a","action":"update","attributes":[{{"path":"size","after":{{"value":{value}}}}}]}}]}}"#
        )
    };
    let first = planned(&work, &with(1));
    assert_eq!(planned(&work, &with(1)).digest, first.digest);
    let second = planned(&work, &with(2));
    assert_ne!(second.digest, first.digest);
    // Equal details of another plan file have another salt.
    fs::write(&file, "another").unwrap();
    let other = planned(&work, &with(1));
    assert_ne!(other.v2.details, first.v2.details);

    let stored = |plan: &PlanRecord| summary(&job.plans_dir, &plan.digest).unwrap();
    assert_eq!(serde_json::to_string(&stored(&first).1.unwrap()).unwrap(), with(1));
    let changed = plan_dir(&job.plans_dir, &first.digest).join(DETAILS);
    fs::copy(plan_dir(&job.plans_dir, &second.digest).join(DETAILS), changed).unwrap();
    assert_eq!(stored(&first).1, None, "the digest does not cover these details");

    // A check is never stored, so nothing can apply it.
    let check = manifest("check");
    let check = planned(&Work::new(&check, &job).unwrap(), &with(1));
    assert!(summary(&job.plans_dir, &check.digest).is_none());
    let refused = find(&work, &check.digest).err().unwrap();
    assert!(refused.to_string().contains("this runner has no file of the plan"), "{refused}");
}

#[test]
fn a_plan_of_version_1_stays_approvable() {
    let dir = tempfile::tempdir().unwrap();
    let job = context(dir.path());
    let manifest: Manifest = serde_json::from_value(json!({
        "version": 1, "job": job.job, "kind": "plan", "class": "pure",
        "plugin": {"name": "odd", "version": "1"}, "inputs": {"component": "web"},
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    }))
    .unwrap();
    let work = Work::new(&manifest, &job).unwrap();
    let file = job.work_dir.join("plan");
    fs::write(&file, "all of it").unwrap();
    let (extra_files, changes) = (BTreeMap::new(), Changes::default());
    let planned = Planned { file, extra_files, tool: "odd 1".into(), tool_digest: None, changes };
    let stored = store(&work, planned, None, StateMark::default()).unwrap();
    let dir = plan_dir(&job.plans_dir, &stored.digest);
    let record = dir.join("record.json");
    let mut earlier: Record = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    earlier.v2 = None;
    let digest = earlier.digests().unwrap().0;
    assert_ne!(digest, stored.digest);
    fs::write(&record, serde_json::to_vec(&earlier).unwrap()).unwrap();
    fs::rename(&dir, plan_dir(&job.plans_dir, &digest)).unwrap();
    let (approved, _) = find(&work, &digest).unwrap();
    assert_eq!(approved.tool_digest, None);
}

#[test]
fn only_a_regular_file_is_a_plan() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("plan"), "all of it").unwrap();
    assert_eq!(copy_private(&at("plan"), &at("copy")).unwrap(), sha256(b"all of it"));
    assert_eq!(fs::read(at("copy")).unwrap(), b"all of it");
    std::os::unix::fs::symlink(at("plan"), at("link")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["link", "fifo", "."] {
        let error = copy_private(&at(name), &at("other")).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{name}: {error}");
    }
}
