//! Tests of scripts: their order, their outputs, and the stop at the first failure.

use std::time::{Duration, Instant};

use runner_agent::plugins::{Outcome, PluginError, Stream};
use schemas::{
    manifest::PluginRef,
    runner::{FailureReason, JobKind},
};
use serde_json::{Value, json};

use super::room::{JobSpec, TestRunner, all_gone};

fn ask(steps: Value) -> JobSpec {
    let plugin = PluginRef { name: "action".into(), version: "1".into(), digest: None };
    let inputs = json!({ "action": "check", "trigger": "manual", "steps": steps });
    JobSpec { kind: JobKind::Action, plugin, artifacts: vec![], inputs, plan: None, state: None }
}

#[tokio::test]
async fn steps_run_in_order_and_their_outputs_are_merged_and_kept_apart() {
    let room = TestRunner::new();
    let python_like = "#!/bin/sh\nset -eu\necho \"{\\\"b\\\": [1, 2], \\\"who\\\": \\\"$WHO\\\"}\" \
                       >> \"$NUON_ACTIONS_OUTPUT_FILEPATH\"\necho done >&2\n";
    let (ended, heard) = room
        .job(&ask(json!([
            { "name": "first", "command": "echo a=1 >> $STEAD_OUTPUT_FILE; echo $STEAD_ACTION $TRIGGER_TYPE $STEAD_STEP" },
            { "name": "second", "inline_contents": python_like, "env_vars": { "WHO": "me" } },
            { "name": "third", "inline_contents": "echo a=2 > $STEAD_OUTPUT_FILE" },
        ])))
        .await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);
    assert_eq!(heard.phases, ["first", "second", "third"]);
    assert_eq!(
        heard.lines,
        [(Stream::Out, "check manual first".to_owned()), (Stream::Err, "done".to_owned()),]
    );
    assert_eq!(
        Value::Object(heard.outputs.unwrap()),
        json!({
            "a": "2", "b": [1, 2], "who": "me",
            "steps": { "first": { "a": "1" }, "second": { "b": [1, 2], "who": "me" }, "third": { "a": "2" } },
        })
    );
}

#[tokio::test]
async fn the_first_step_that_fails_is_the_last() {
    let room = TestRunner::new();
    let (ended, heard) = room
        .job(&ask(json!([
            { "name": "bad", "command": "echo no; exit 7" },
            { "name": "never", "command": "echo never" },
        ])))
        .await;
    let Outcome::Failed { reason, exit_code, detail, .. } = ended.unwrap() else { panic!() };
    assert_eq!((reason, exit_code), (FailureReason::ExitCode, Some(7)));
    assert_eq!(detail, "step bad ended with exit code 7");
    assert!(!heard.has("never") && heard.outputs.is_none());
}

#[tokio::test]
async fn a_step_that_takes_too_long_and_all_that_it_started_are_ended() {
    let room = TestRunner::new();
    let steps = json!([{ "name": "slow", "command": "sleep 60 & sleep 60", "timeout_ms": 100 }]);
    let (ended, heard) = room.job(&ask(steps)).await;
    let Outcome::Failed { reason, .. } = ended.unwrap() else { panic!() };
    assert_eq!(reason, FailureReason::TimedOut);
    all_gone(heard.children[0]).await;
}

#[tokio::test]
async fn a_cancel_is_confirmed_and_says_whether_force_was_needed() {
    let mut room = TestRunner::new();
    let steps = json!([{ "name": "waits", "command": "echo ready; sleep 60" }]);
    let (ended, heard) = room.job_until(&ask(steps), "ready").await;
    assert_eq!(ended.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", heard.lines);

    room.grace_ms = 100;
    let deaf = json!([{ "name": "deaf", "command": "trap '' TERM; echo ready; while :; do sleep 1; done" }]);
    let (ended, _) = room.job_until(&ask(deaf), "ready").await;
    assert_eq!(ended.unwrap(), Outcome::Cancelled { forced: true });

    let quick = json!([{ "name": "quick", "command": "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done" }]);
    let (ended, _) = room.job_until(&ask(quick), "ready").await;
    assert_eq!(
        ended.unwrap(),
        Outcome::Succeeded,
        "the step succeeded before the cancel took effect"
    );
}

#[tokio::test]
async fn what_begins_after_the_cancel_is_asked_to_stop_too() {
    let room = TestRunner::new();
    // Terraform does this if it is interrupted while it starts the program of a provisioner.
    let late = "trap 'sleep 300 & exit 1' TERM; echo ready; while :; do sleep 0.05; done";
    let began = Instant::now();
    let steps = json!([{ "name": "late", "command": late }]);
    let (ended, heard) = room.job_until(&ask(steps), "ready").await;
    assert_eq!(ended.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", heard.lines);
    assert!(
        began.elapsed() < Duration::from_millis(room.grace_ms / 2),
        "it waited for the whole grace period"
    );
    all_gone(heard.children[0]).await;
}

#[tokio::test]
async fn a_malformed_action_does_nothing_at_all() {
    let room = TestRunner::new();
    for (steps, why) in [
        (
            json!([{ "name": "a", "command": "x" }, { "name": "a", "command": "x" }]),
            "two steps are named a",
        ),
        (json!([{ "name": "a" }]), "needs either a command or inline contents"),
        (json!([{ "command": "x" }]), "missing field `name`"),
    ] {
        let (ended, heard) = room.job(&ask(steps)).await;
        match ended {
            Err(PluginError::Refused(refusal)) => assert!(refusal.contains(why), "{refusal}"),
            other => panic!("{other:?}"),
        }
        assert!(heard.children.is_empty());
    }
    let mut wrong = ask(json!([]));
    wrong.kind = JobKind::Plan;
    wrong.inputs = json!({ "component": "web", "steps": [] });
    let (ended, _) = room.job(&wrong).await;
    assert_eq!(ended.unwrap_err().to_string(), "the plugin action does not support plan jobs");
}
