//! Tests of plugins that break the protocol, or do not match the manifest.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use domain::digest::Digest;
use runner_agent::plugins::{Outcome, PluginError};
use schemas::{
    manifest::PluginRef,
    runner::{FailureReason, JobKind},
};
use serde_json::json;

use super::test_runner::{JobRecord, JobSpec, TestRunner, wait_until_ended};

const DESCRIBED: &str = r#"{"type":"result","id":1,"value":{"protocol":1,"name":"odd","version":"1","kinds":["plan"]}}"#;

fn odd_plugin(runner: &TestRunner, script: &str) -> JobSpec {
    let path = runner.at("odd");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    let plugin = runner.plugin("odd", &path);
    spec(plugin)
}

fn spec(plugin: PluginRef) -> JobSpec {
    let inputs = json!({ "component": "web", "operation": "apply" });
    JobSpec { kind: JobKind::Plan, plugin, artifacts: vec![], inputs, plan: None, state: None }
}

async fn run_failing(script: &str) -> (String, JobRecord) {
    let runner = TestRunner::new();
    let (result, record) = runner.job(&odd_plugin(&runner, script)).await;
    (result.unwrap_err().to_string(), record)
}

#[tokio::test]
async fn an_executable_of_another_digest_is_never_started() {
    let runner = TestRunner::new();
    let mut spec = odd_plugin(&runner, "touch \"$0.started\"");
    let digest: Digest = format!("sha256:{:064x}", 7).parse().unwrap();
    spec.plugin.digest = Some(digest);
    let (result, record) = runner.job(&spec).await;
    let refusal = result.unwrap_err().to_string();
    assert!(refusal.contains("the manifest requires sha256:0000"), "{refusal}");
    assert!(record.children.is_empty());

    spec.plugin.digest = None;
    let (result, _) = runner.job(&spec).await;
    assert!(result.unwrap_err().to_string().contains("no digest of an executable"));
}

#[tokio::test]
async fn a_plugin_that_is_not_installed_is_named() {
    let runner = TestRunner::new();
    let mut spec = odd_plugin(&runner, "");
    spec.plugin.name = "other".into();
    let (result, _) = runner.job(&spec).await;
    match result {
        Err(PluginError::ToolMissing(remedy)) => {
            assert!(remedy.contains("install stead-plugin-other 1 as "), "{remedy}");
        }
        other => panic!("{other:?}"),
    }
    spec.plugin.name = "../odd".into();
    let (result, _) = runner.job(&spec).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "cannot use the plugin \"../odd\": the name is not valid; use letters, digits, `-` and `_`"
    );
}

#[tokio::test]
async fn a_message_above_the_limit_ends_the_plugin() {
    let script = "head -c 2000000 /dev/zero | tr '\\0' x; sleep 60";
    let (failure, record) = run_failing(script).await;
    assert_eq!(failure, "the plugin failed: it sent a message of more than 1048576 bytes");
    wait_until_ended(record.children[0]).await;
}

#[tokio::test]
async fn protocol_errors_are_named() {
    for (script, expected) in [
        ("echo hello", "cannot parse a message: expected value"),
        ("exit 3", "it ended before it responded to describe: exit status: 3"),
        (
            "echo '{\"type\":\"result\",\"id\":1,\"value\":{\"protocol\":3,\"name\":\"odd\",\
             \"version\":\"1\",\"kinds\":[]}}'",
            "it uses protocol 3, but this runner supports 1 and 2",
        ),
        (
            "echo '{\"type\":\"error\",\"id\":1,\"code\":\"tool_missing\",\"message\":\"no kubectl\"}'",
            "no kubectl",
        ),
        (&format!("echo '{}'", DESCRIBED.replace("odd", "even")), "the plugin is named even"),
        (
            "echo '{\"type\":\"result\",\"id\":1,\"value\":{\"protocol\":1},\"value_file\":\
             {\"path\":\"/etc/hosts\",\"digest\":\"sha256:0000000000000000000000000000000000000000000000000000000000000000\",\
             \"size_bytes\":1}}'",
            "its response to describe has both a value and a file",
        ),
        (&format!("echo '{}'", DESCRIBED.replace("plan", "build")), "does not support plan jobs"),
    ] {
        let (failure, record) = run_failing(script).await;
        assert!(failure.contains(expected), "{script}: {failure} {:?}", record.lines);
    }
}

#[tokio::test]
async fn logs_and_phases_of_a_plugin_are_recorded() {
    let script = format!(
        "echo oops >&2; echo '{DESCRIBED}'; \
         printf '%s\\n' '{{\"type\":\"log\",\"line\":\"one\\ntwo\"}}'; \
         echo '{{\"type\":\"progress\",\"phase\":\"looking\"}}'; \
         echo '{{\"type\":\"error\",\"id\":2,\"code\":\"failed\",\"message\":\"not well\"}}'; read x"
    );
    let (failure, record) = run_failing(&script).await;
    assert_eq!(failure, "the plugin failed: health: not well");
    assert!(record.has("oops") && record.has("one") && record.has("two"), "{:?}", record.lines);
    assert_eq!(record.phases, ["looking"]);
}

#[tokio::test]
async fn a_plugin_that_ignores_the_stop_signal_is_killed_after_its_grace_period() {
    let mut runner = TestRunner::new();
    runner.grace_ms = 200;
    let script = format!(
        "trap '' TERM; echo '{DESCRIBED}'; echo '{{\"type\":\"log\",\"line\":\"deaf\"}}'; \
         sleep 60 & sleep 60"
    );
    let (result, record) = runner.job_until(&odd_plugin(&runner, &script), "deaf").await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: true });
    wait_until_ended(record.children[0]).await;
}

#[tokio::test]
async fn a_stale_plan_after_the_apply_is_a_failure_of_the_plugin() {
    let runner = TestRunner::new();
    // given a plugin that reports a stale plan when the runner requests its outputs, because its
    // serial has changed
    let described = DESCRIBED.replace(r#"["plan"]"#, r#"["plan","apply"]"#);
    let script = r#"
        while read -r line; do
            id=$(echo "$line" | sed 's/^{"id":\([0-9]*\).*/\1/')
            value='{}'
            case "$line" in
                *'"call":"describe"'*) echo 'DESCRIBED'; continue ;;
                *'"call":"plan"'*)
                    echo x > "$(echo "$line" | sed 's/.*"plan_file":"\([^"]*\)".*/\1/')"
                    value='{"noop":false,"add":1,"change":0,"destroy":0}' ;;
                *'"call":"outputs"'*)
                    echo '{"type":"error","id":'$id',"code":"plan_stale","message":"serial 2"}'
                    continue ;;
            esac
            echo '{"type":"result","id":'$id',"value":'$value'}'
        done"#;
    let plan = odd_plugin(&runner, &script.replace("DESCRIBED", &described));
    let (result, record) = runner.job(&plan).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    let digest = record.plan.unwrap().digest;
    // when its plan is applied
    let apply = JobSpec { kind: JobKind::Apply, plan: Some(digest), ..plan };
    let (result, record) = runner.job(&apply).await;
    // then the plugin has failed
    match result {
        Err(PluginError::PluginFailed(why)) => {
            assert_eq!(why, "it refused to read the outputs: serial 2")
        }
        other => panic!("{other:?} {:?}", record.lines),
    }
}

/// A plugin may implement no optional call. Deferred checks do not stop the plan.
#[tokio::test]
async fn a_preflight_can_be_unsupported_or_deferred() {
    let script = |response: &str| {
        format!(
            r#"while read -r line; do
  id=$(printf '%s' "$line" | sed 's/^{{"id":\([0-9]*\),.*/\1/')
  value=null
  case $line in
    *'"call":"describe"'*)
      case $line in *'"protocol":1,"protocols":[1,2]'*) ;; *) exit 9 ;; esac
      value='{{"protocol":2,"name":"odd","version":"1","kinds":["plan","apply"]}}' ;;
    *'"call":"preflight"'*) printf '{response}\n' "$id"; continue ;;
    *'"call":"state"'*) value='{{}}' ;;
    *'"call":"plan"'*)
      echo all > "$(printf '%s' "$line" | sed 's/.*"plan_file":"\([^"]*\)".*/\1/')"
      value='{{"noop":false,"add":0,"change":1,"destroy":0,"resources":[{{"address":"a","action":"adopt"}}]}}' ;;
  esac
  printf '{{"type":"result","id":%s,"value":%s}}\n' "$id" "$value"
done"#
        )
    };
    let unsupported = r#"{"type":"error","id":%s,"code":"unsupported","message":"no"}"#;
    let deferred = r#"{"type":"result","id":%s,"value":{"checks":[{"check":"cluster","status":"deferred","message":"the sandbox creates it"}]}}"#;
    for (response, line) in
        [(unsupported, "odd 1"), (deferred, "deferred check: cluster: the sandbox creates it")]
    {
        let runner = TestRunner::new();
        let (result, record) = runner.job(&odd_plugin(&runner, &script(response))).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
        assert!(record.has(line), "{:?}", record.lines);
        assert!(record.plan.unwrap().summary.to_string().contains("adopt"));
    }
}

#[tokio::test]
async fn a_plugin_must_respond_to_describe_within_ten_seconds() {
    let begun = Instant::now();
    let (failure, record) = run_failing("sleep 60 & sleep 60").await;
    assert!(failure.contains("did not respond to describe within 10 s"), "{failure}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    wait_until_ended(record.children[0]).await;
}

#[tokio::test]
async fn a_plugin_gets_only_the_environment_of_its_job() {
    let mut runner = TestRunner::new();
    runner.env.insert("GIVEN".into(), "yes".into());
    let script = format!("env >&2; echo '{DESCRIBED}'; exit 1");
    let (_, record) = runner.job(&odd_plugin(&runner, &script)).await;
    assert!(record.has("GIVEN=yes") && record.has("STEAD_EXECUTION=exe_"), "{:?}", record.lines);
    assert!(!record.has("CARGO_"), "{:?}", record.lines);
    let copy = runner.at("plugins").join("stead-plugin-odd");
    let mode = fs::metadata(copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0, "the installed file itself need not be executable");
}

#[tokio::test]
async fn a_killed_plugin_fails_with_the_signal() {
    let runner = TestRunner::new();
    let (result, _) = runner.job(&odd_plugin(&runner, "kill -9 $$")).await;
    let Outcome::Failed { reason, signal, .. } = result.unwrap() else { panic!() };
    assert_eq!((reason, signal), (FailureReason::Signal, Some(9)));
}

/// Returns a job of a plugin that plans, and responds to every apply with this error.
fn rejects_apply(runner: &TestRunner, code: &str) -> JobSpec {
    let script = format!(
        r#"while read -r line; do
  id=$(printf '%s' "$line" | sed 's/^{{"id":\([0-9]*\),.*/\1/')
  value=null
  case $line in
    *'"call":"describe"'*)
      value='{{"protocol":1,"name":"odd","version":"1","kinds":["plan","apply"]}}' ;;
    *'"call":"state"'*) value='{{}}' ;;
    *'"call":"plan"'*)
      echo all > "$(printf '%s' "$line" | sed 's/.*"plan_file":"\([^"]*\)".*/\1/')"
      value='{{"noop":false,"add":1,"change":0,"destroy":0}}' ;;
    *'"call":"apply"'*)
      printf '{{"type":"error","id":%s,"code":"{code}","message":"not this"}}\n' "$id"
      continue ;;
  esac
  printf '{{"type":"result","id":%s,"value":%s}}\n' "$id" "$value"
done"#
    );
    odd_plugin(runner, &script)
}

#[tokio::test]
async fn an_apply_that_began_is_not_reported_as_refused() {
    let runner = TestRunner::new();
    let mut spec = rejects_apply(&runner, "refused");
    let (result, record) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    (spec.kind, spec.plan) = (JobKind::Apply, Some(record.plan.unwrap().digest));
    // The server records that a refused job changed nothing. The effects of this job are unknown.
    match runner.job(&spec).await.0 {
        Err(PluginError::PluginFailed(why)) => assert_eq!(why, "it refused the apply: not this"),
        other => panic!("{other:?}"),
    }
}
