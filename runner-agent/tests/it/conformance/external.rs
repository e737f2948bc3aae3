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

use super::room::{JobRecord, JobSpec, TestRunner, all_gone};

const DESCRIBED: &str = r#"{"type":"result","id":1,"value":{"protocol":1,"name":"odd","version":"1","kinds":["plan"]}}"#;

fn odd(room: &TestRunner, script: &str) -> JobSpec {
    let path = room.at("odd");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    let plugin = room.plugin("odd", &path);
    ask(plugin)
}

fn ask(plugin: PluginRef) -> JobSpec {
    let inputs = json!({ "component": "web", "operation": "apply" });
    JobSpec { kind: JobKind::Plan, plugin, artifacts: vec![], inputs, plan: None, state: None }
}

async fn failed(script: &str) -> (String, JobRecord) {
    let room = TestRunner::new();
    let (ended, heard) = room.job(&odd(&room, script)).await;
    (ended.unwrap_err().to_string(), heard)
}

#[tokio::test]
async fn an_executable_of_another_digest_is_never_started() {
    let room = TestRunner::new();
    let mut ask = odd(&room, "touch \"$0.started\"");
    let wanted: Digest = format!("sha256:{:064x}", 7).parse().unwrap();
    ask.plugin.digest = Some(wanted);
    let (ended, heard) = room.job(&ask).await;
    let refusal = ended.unwrap_err().to_string();
    assert!(refusal.contains("the manifest requires sha256:0000"), "{refusal}");
    assert!(heard.children.is_empty());

    ask.plugin.digest = None;
    let (ended, _) = room.job(&ask).await;
    assert!(ended.unwrap_err().to_string().contains("has no digest"));
}

#[tokio::test]
async fn a_plugin_that_is_not_installed_is_named() {
    let room = TestRunner::new();
    let mut ask = odd(&room, "");
    ask.plugin.name = "other".into();
    let (ended, _) = room.job(&ask).await;
    match ended {
        Err(PluginError::ToolMissing(remedy)) => {
            assert!(remedy.contains("install stead-plugin-other 1 as "), "{remedy}");
        }
        other => panic!("{other:?}"),
    }
    ask.plugin.name = "../odd".into();
    let (ended, _) = room.job(&ask).await;
    assert_eq!(
        ended.unwrap_err().to_string(),
        "\"../odd\" is not a valid plugin name: use letters, digits, `-` and `_`"
    );
}

#[tokio::test]
async fn a_message_without_end_ends_the_plugin() {
    let script = "head -c 2000000 /dev/zero | tr '\\0' x; sleep 60";
    let (failure, heard) = failed(script).await;
    assert_eq!(failure, "the plugin failed: it sent a message of more than 1048576 bytes");
    all_gone(heard.children[0]).await;
}

#[tokio::test]
async fn what_is_not_the_protocol_is_said_plainly() {
    for (script, said) in [
        ("echo hello", "cannot parse a message: expected value"),
        ("exit 3", "it ended before it responded to describe: exit status: 3"),
        (
            "echo '{\"type\":\"result\",\"id\":1,\"value\":{\"protocol\":2,\"name\":\"odd\",\
             \"version\":\"1\",\"kinds\":[]}}'",
            "it uses protocol 2, but this runner uses 1",
        ),
        (
            "echo '{\"type\":\"error\",\"id\":1,\"code\":\"tool_missing\",\"message\":\"no kubectl\"}'",
            "no kubectl",
        ),
        (&format!("echo '{}'", DESCRIBED.replace("odd", "even")), "the plugin is named even"),
        (&format!("echo '{}'", DESCRIBED.replace("plan", "build")), "does not support plan jobs"),
    ] {
        let (failure, heard) = failed(script).await;
        assert!(failure.contains(said), "{script}: {failure} {:?}", heard.lines);
    }
}

#[tokio::test]
async fn what_it_logs_is_in_the_log_and_its_phases_are_phases() {
    let script = format!(
        "echo oops >&2; echo '{DESCRIBED}'; \
         printf '%s\\n' '{{\"type\":\"log\",\"line\":\"one\\ntwo\"}}'; \
         echo '{{\"type\":\"progress\",\"phase\":\"looking\"}}'; \
         echo '{{\"type\":\"error\",\"id\":2,\"code\":\"failed\",\"message\":\"not well\"}}'; read x"
    );
    let (failure, heard) = failed(&script).await;
    assert_eq!(failure, "the plugin failed: health: not well");
    assert!(heard.has("oops") && heard.has("one") && heard.has("two"), "{:?}", heard.lines);
    assert_eq!(heard.phases, ["looking"]);
}

#[tokio::test]
async fn one_that_does_not_listen_is_killed_when_the_grace_is_over() {
    let mut room = TestRunner::new();
    room.grace_ms = 200;
    let script = format!(
        "trap '' TERM; echo '{DESCRIBED}'; echo '{{\"type\":\"log\",\"line\":\"deaf\"}}'; \
         sleep 60 & sleep 60"
    );
    let (ended, heard) = room.job_until(&odd(&room, &script), "deaf").await;
    assert_eq!(ended.unwrap(), Outcome::Cancelled { forced: true });
    all_gone(heard.children[0]).await;
}

#[tokio::test]
async fn a_plan_is_not_stale_once_it_is_applied() {
    let room = TestRunner::new();
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
    let plan = odd(&room, &script.replace("DESCRIBED", &described));
    let (ended, heard) = room.job(&plan).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
    let digest = heard.plan.unwrap().digest;
    // when its plan is applied
    let apply = JobSpec { kind: JobKind::Apply, plan: Some(digest), ..plan };
    let (ended, heard) = room.job(&apply).await;
    // then the plugin has failed
    match ended {
        Err(PluginError::PluginFailed(why)) => {
            assert_eq!(why, "it refused to read the outputs: serial 2")
        }
        other => panic!("{other:?} {:?}", heard.lines),
    }
}

#[tokio::test]
async fn one_that_does_not_say_who_it_is_has_ten_seconds() {
    let begun = Instant::now();
    let (failure, heard) = failed("sleep 60 & sleep 60").await;
    assert!(failure.contains("did not respond to describe within 10 s"), "{failure}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    all_gone(heard.children[0]).await;
}

#[tokio::test]
async fn its_environment_is_what_the_operator_gave_and_nothing_else() {
    let mut room = TestRunner::new();
    room.env.insert("GIVEN".into(), "yes".into());
    let script = format!("env >&2; echo '{DESCRIBED}'; exit 1");
    let (_, heard) = room.job(&odd(&room, &script)).await;
    assert!(heard.has("GIVEN=yes") && heard.has("STEAD_EXECUTION=exe_"), "{:?}", heard.lines);
    assert!(!heard.has("CARGO_"), "{:?}", heard.lines);
    let copy = room.at("plugins").join("stead-plugin-odd");
    let mode = fs::metadata(copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0, "the installed file itself need not be executable");
}

#[tokio::test]
async fn one_that_was_killed_has_failed_with_the_signal() {
    let room = TestRunner::new();
    let (ended, _) = room.job(&odd(&room, "kill -9 $$")).await;
    let Outcome::Failed { reason, signal, .. } = ended.unwrap() else { panic!() };
    assert_eq!((reason, signal), (FailureReason::Signal, Some(9)));
}

/// Returns a job of a plugin that plans, and responds to every apply with this error.
fn refusing(room: &TestRunner, code: &str) -> JobSpec {
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
    odd(room, &script)
}

#[tokio::test]
async fn an_apply_that_began_is_not_reported_as_refused() {
    let room = TestRunner::new();
    let mut ask = refusing(&room, "refused");
    let (ended, heard) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
    (ask.kind, ask.plan) = (JobKind::Apply, Some(heard.plan.unwrap().digest));
    // The server records that a refused job changed nothing. The effects of this job are unknown.
    match room.job(&ask).await.0 {
        Err(PluginError::PluginFailed(why)) => assert_eq!(why, "it refused the apply: not this"),
        other => panic!("{other:?}"),
    }
}
