//! Tests of the preflight of a run: all findings in one report, before any plugin plans.
use std::{fs, os::unix::fs::PermissionsExt};

use runner_agent::{
    plugins::{Outcome, PluginError},
    policy::Policy,
};
use schemas::{
    manifest::PluginRef,
    plugin::artifact::host_platform,
    preflight::{PLUGIN, PlannedJob, PreflightInputs, Rendered},
    runner::{Check, CheckStatus, JobKind},
};
use serde_json::{Value, json};

use super::{
    published::{SCRIPT, key, published_as},
    test_runner::{JobRecord, JobSpec, TestRunner, without_rules},
};

fn builtin(name: &str) -> PluginRef {
    PluginRef { name: name.into(), version: "1".into(), digest: None, artifact: None }
}

fn known(inputs: Value) -> Rendered {
    Rendered::Known { inputs, env: Default::default(), role: None }
}

fn planned(name: &str, plugin: PluginRef, rendered: Rendered) -> PlannedJob {
    let kinds = vec![JobKind::Plan, JobKind::Apply];
    PlannedJob { name: name.into(), kinds, plugin, artifacts: vec![], rendered }
}

fn spec(jobs: Vec<PlannedJob>) -> JobSpec {
    let run = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let inputs = json!(PreflightInputs { run, jobs });
    let (plugin, kind) = (builtin(PLUGIN), JobKind::Preflight);
    JobSpec { kind, plugin, artifacts: vec![], inputs, plan: None, state: None }
}

/// Returns a runner that trusts `key(1)`, with a Terraform of this version on its PATH.
fn runner(terraform: Option<&str>) -> TestRunner {
    let mut runner = TestRunner::new();
    let bin = runner.at("bin");
    fs::create_dir(&bin).unwrap();
    if let Some(version) = terraform {
        terraform_as(&runner, "terraform", version);
    }
    runner.env.insert("PATH".into(), format!("{}:/usr/bin:/bin", bin.display()));
    runner.rules.publishers = vec![hex::encode(key(1).verifying_key().as_bytes())];
    runner
}

/// Writes an executable that reports this version of Terraform.
fn terraform_as(runner: &TestRunner, name: &str, version: &str) {
    let path = runner.at("bin").join(name);
    let script = format!("#!/bin/sh\necho '{{\"terraform_version\":\"{version}\"}}'\n");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Stores the plugin `odd`, whose preflight returns these checks.
fn odd(runner: &TestRunner, checks: &str) -> PluginRef {
    let script = SCRIPT.replace(r#"{"checks":[]}"#, &format!(r#"{{"checks":{checks}}}"#));
    published_as(runner, &script, &key(1), &host_platform().unwrap(), |_| {})
}

async fn checks(runner: &TestRunner, jobs: Vec<PlannedJob>) -> (Vec<Check>, JobRecord) {
    let (result, record) = runner.job(&spec(jobs)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    (record.checks.clone(), record)
}

/// Returns the messages of the checks with this status, as text.
fn with_status(checks: &[Check], status: CheckStatus) -> Vec<String> {
    checks.iter().filter(|check| check.status == status).map(Check::text).collect()
}

#[tokio::test]
async fn a_host_that_meets_all_requirements_passes() {
    let runner = runner(Some("1.9.8"));
    let artifact = runner.artifact(&[("chart.txt", "x")]);
    let checked = r#"[{"check":"cluster","status":"ok","message":"reached"},{"check":"quota","status":"deferred","message":"needs web"}]"#;
    let mut front = planned("front", odd(&runner, checked), known(json!({"component": "front"})));
    front.artifacts = vec![artifact];
    let web = known(json!({"component": "web", "terraform_version": "1.8.0"}));
    let edge = Rendered::Deferred("its inputs depend on outputs of web".into());
    let jobs = vec![
        planned("web", builtin("terraform_module"), web),
        front,
        planned("edge", odd(&runner, checked), edge),
    ];
    let (checks, record) = checks(&runner, jobs).await;
    assert_eq!(with_status(&checks, CheckStatus::Failed), Vec::<String>::new());
    let ok = with_status(&checks, CheckStatus::Ok);
    for expected in [
        "policy: it allows all jobs",
        "terraform: terraform 1.9.8 at ",
        "web: terraform version: the app requests version 1.8.0, but this runner has 1.9.8",
        "plugin odd: odd 1.0",
        "front: cluster: reached",
        "disk: ",
    ] {
        assert!(ok.iter().any(|text| text.starts_with(expected)), "{expected}: {ok:?}");
    }
    let later = with_status(&checks, CheckStatus::Deferred);
    let expected = ["front: quota: needs web", "edge: inputs: its inputs depend on outputs of web"];
    assert_eq!(later, expected);
    for line in expected {
        assert!(record.has(&format!("deferred: {line}")), "{:?}", record.lines);
    }
}

#[tokio::test]
async fn a_requested_version_of_terraform_is_used_if_the_host_has_it() {
    let runner = runner(Some("1.9.8"));
    terraform_as(&runner, "terraform-1.8.0", "1.8.0");
    terraform_as(&runner, "terraform-1.7.0", "1.7.5");
    let module = |name: &str, version: &str| {
        let inputs = json!({"component": name, "terraform_version": version});
        planned(name, builtin("terraform_module"), known(inputs))
    };
    let jobs = vec![module("web", "1.8.0"), module("db", "1.9.8"), module("old", "1.7.0")];
    let (checks, _) = checks(&runner, jobs).await;
    let ok = with_status(&checks, CheckStatus::Ok);
    for (expected, file) in [
        ("terraform: terraform 1.8.0 at ", "/terraform-1.8.0"),
        ("terraform: terraform 1.9.8 at ", "/terraform"),
    ] {
        let is_expected = |text: &&String| text.starts_with(expected) && text.ends_with(file);
        assert_eq!(ok.iter().filter(is_expected).count(), 1, "{ok:?}");
    }
    let failed = with_status(&checks, CheckStatus::Failed);
    assert!(
        failed
            .iter()
            .any(|text| text.contains("terraform-1.7.0: it reports version 1.7.5, not 1.7.0")),
        "{failed:?}"
    );
}

#[tokio::test]
async fn all_failures_are_in_one_report() {
    let runner = runner(None);
    let missing = r#"[{"check":"helm","status":"failed","message":"install helm 3.14"}]"#;
    let artifact = runner.artifact(&[("chart.txt", "x")]);
    let mut front = planned("front", odd(&runner, missing), known(json!({"component": "front"})));
    front.artifacts = vec![artifact];
    let digest = Some(format!("sha256:{:064}", 7).parse().unwrap());
    let jobs = vec![
        planned("web", builtin("terraform_module"), known(json!({"component": "web"}))),
        front,
        planned(
            "vault",
            PluginRef { digest, ..builtin("vault") },
            known(json!({"component": "v"})),
        ),
        planned("queue", builtin("queue"), known(json!({"component": "queue"}))),
    ];
    let (checks, _) = checks(&runner, jobs).await;
    let failed = with_status(&checks, CheckStatus::Failed);
    for expected in [
        "terraform: cannot run the job: neither terraform nor tofu is on the runner's PATH",
        "front: helm: install helm 3.14",
        "plugin vault: cannot use the plugin vault: it is not installed on this runner",
        "plugin queue: cannot use the plugin queue: it is not built into this runner",
    ] {
        assert!(failed.iter().any(|text| text.starts_with(expected)), "{expected}: {failed:?}");
    }
    assert_eq!(failed.len(), 4, "{failed:?}");
}

#[tokio::test]
async fn a_plugin_that_the_policy_refuses_never_starts() {
    let mut runner = runner(Some("1.9.8"));
    let policy = runner.at("policy.toml");
    fs::write(&policy, "version = 1\nplugins = [\"terraform_module\"]\n").unwrap();
    runner.rules.policy = Policy::read(&policy).unwrap();
    let jobs = vec![planned("front", odd(&runner, "[]"), known(json!({"component": "front"})))];
    let (found, record) = checks(&runner, jobs.clone()).await;
    let failed = with_status(&found, CheckStatus::Failed);
    let line = r#"plugins = ["terraform_module", "odd"]"#;
    assert!(failed.len() == 1 && failed[0].ends_with(line), "{failed:?}");
    assert!(record.children.is_empty());
    // Without a trusted publisher, too.
    runner.rules = without_rules();
    let (found, record) = checks(&runner, jobs).await;
    let failed = with_status(&found, CheckStatus::Failed);
    assert!(failed.len() == 1 && failed[0].contains("plugin_publishers = ["), "{failed:?}");
    assert!(record.children.is_empty());
}

#[tokio::test]
async fn a_preflight_is_cancelled_during_a_call() {
    let mut runner = runner(None);
    runner.grace_ms = 100;
    let hangs = r#"*'"call":"health"'*) echo hangs >&2; sleep 60 ;;
        *'"call":"preflight"'*) "#;
    let script = SCRIPT.replace(r#"*'"call":"preflight"'*) "#, hangs);
    let plugin = published_as(&runner, &script, &key(1), &host_platform().unwrap(), |_| {});
    let jobs = vec![planned("front", plugin, known(json!({"component": "front"})))];
    let (result, record) = runner.job_until(&spec(jobs), "hangs").await;
    match result {
        Ok(Outcome::Cancelled { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(record.checks.is_empty(), "{:?}", record.checks);
}

#[tokio::test]
async fn malformed_inputs_are_refused() {
    let runner = runner(None);
    let malformed = JobSpec { inputs: json!({"run": "run_1", "jobs": 7}), ..spec(vec![]) };
    let (result, _) = runner.job(&malformed).await;
    match result {
        Err(PluginError::Refused(why)) => assert!(why.contains("inputs are malformed"), "{why}"),
        other => panic!("{other:?}"),
    }
}
