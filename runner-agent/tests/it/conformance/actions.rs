//! Tests of scripts: their order, their outputs, and the stop at the first failure.

use std::time::{Duration, Instant};

use runner_agent::plugins::{Outcome, PluginError, Stream};
use schemas::{
    manifest::PluginRef,
    runner::{FailureReason, JobKind},
};
use serde_json::{Value, json};

use super::test_runner::{JobSpec, TestRunner, wait_until_ended};

fn spec(steps: Value) -> JobSpec {
    let plugin =
        PluginRef { name: "action".into(), version: "1".into(), digest: None, artifact: None };
    let inputs = json!({ "action": "check", "trigger": "manual", "steps": steps });
    JobSpec { kind: JobKind::Action, plugin, artifacts: vec![], inputs, plan: None, state: None }
}

#[tokio::test]
async fn steps_run_in_order_and_their_outputs_are_merged_and_kept_apart() {
    let runner = TestRunner::new();
    let script = "#!/bin/sh\nset -eu\necho \"{\\\"b\\\": [1, 2], \\\"who\\\": \\\"$WHO\\\"}\" \
                       >> \"$NUON_ACTIONS_OUTPUT_FILEPATH\"\necho done >&2\n";
    let (result, record) = runner
        .job(&spec(json!([
            { "name": "first", "command": "echo a=1 >> $STEAD_OUTPUT_FILE; echo $STEAD_ACTION $TRIGGER_TYPE $STEAD_STEP" },
            { "name": "second", "inline_contents": script, "env_vars": { "WHO": "me" } },
            { "name": "third", "inline_contents": "echo a=2 > $STEAD_OUTPUT_FILE" },
        ])))
        .await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert_eq!(record.phases, ["first", "second", "third"]);
    assert_eq!(
        record.lines,
        [(Stream::Out, "check manual first".to_owned()), (Stream::Err, "done".to_owned()),]
    );
    assert_eq!(
        Value::Object(record.outputs.unwrap()),
        json!({
            "a": "2", "b": [1, 2], "who": "me",
            "steps": { "first": { "a": "1" }, "second": { "b": [1, 2], "who": "me" }, "third": { "a": "2" } },
        })
    );
}

#[tokio::test]
async fn each_step_runs_in_the_directory_of_its_artifact() {
    let runner = TestRunner::new();
    let (one, two) = (runner.artifact(&[("text", "one")]), runner.artifact(&[("text", "two")]));
    let mut spec = spec(json!([
        { "name": "first", "command": "cat text", "artifact": one.digest },
        { "name": "second", "inline_contents": "cat text; echo", "artifact": two.digest },
        { "name": "own", "command": "ls | wc -l" },
    ]));
    spec.artifacts = vec![one.clone(), two];
    let (result, record) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert_eq!(record.printed(), ["one", "two", "0"]);

    // With a single artifact, a step of the same job without one has no files either.
    spec.artifacts = vec![one.clone()];
    spec.inputs["steps"] = json!([
        { "name": "first", "command": "cat text", "artifact": one.digest },
        { "name": "own", "command": "ls | wc -l" },
    ]);
    let (result, record) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);
    assert_eq!(record.printed(), ["one", "0"]);
}

#[tokio::test]
async fn no_step_runs_after_a_failed_step() {
    let runner = TestRunner::new();
    let (result, record) = runner
        .job(&spec(json!([
            { "name": "bad", "command": "echo no; exit 7" },
            { "name": "never", "command": "echo never" },
        ])))
        .await;
    let Outcome::Failed { reason, exit_code, detail, .. } = result.unwrap() else { panic!() };
    assert_eq!((reason, exit_code), (FailureReason::ExitCode, Some(7)));
    assert_eq!(detail, "step bad ended with exit code 7");
    assert!(!record.has("never") && record.outputs.is_none());
}

#[tokio::test]
async fn a_step_with_a_timeout_ends_with_all_its_processes() {
    let runner = TestRunner::new();
    let steps = json!([{ "name": "slow", "command": "sleep 60 & sleep 60", "timeout_ms": 100 }]);
    let (result, record) = runner.job(&spec(steps)).await;
    let Outcome::Failed { reason, .. } = result.unwrap() else { panic!() };
    assert_eq!(reason, FailureReason::TimedOut);
    wait_until_ended(record.children[0]).await;
}

#[tokio::test]
async fn a_cancel_reports_whether_a_process_was_killed() {
    let mut runner = TestRunner::new();
    let steps = json!([{ "name": "waits", "command": "echo ready; sleep 60" }]);
    let (result, record) = runner.job_until(&spec(steps), "ready").await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", record.lines);

    runner.grace_ms = 100;
    let ignores_term = json!([{ "name": "deaf", "command": "trap '' TERM; echo ready; while :; do sleep 1; done" }]);
    let (result, _) = runner.job_until(&spec(ignores_term), "ready").await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: true });

    let quick = json!([{ "name": "quick", "command": "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done" }]);
    let (result, _) = runner.job_until(&spec(quick), "ready").await;
    assert_eq!(
        result.unwrap(),
        Outcome::Succeeded,
        "the step succeeded before the cancel took effect"
    );
}

#[tokio::test]
async fn a_process_that_starts_after_the_cancel_gets_the_stop_signal() {
    let runner = TestRunner::new();
    // Terraform does this if it is interrupted while it starts the program of a provisioner.
    let late = "trap 'sleep 300 & exit 1' TERM; echo ready; while :; do sleep 0.05; done";
    let began = Instant::now();
    let steps = json!([{ "name": "late", "command": late }]);
    let (result, record) = runner.job_until(&spec(steps), "ready").await;
    assert_eq!(result.unwrap(), Outcome::Cancelled { forced: false }, "{:?}", record.lines);
    assert!(
        began.elapsed() < Duration::from_millis(runner.grace_ms / 2),
        "it waited for the whole grace period"
    );
    wait_until_ended(record.children[0]).await;
}

#[tokio::test]
async fn a_malformed_action_starts_no_process() {
    let runner = TestRunner::new();
    for (steps, why) in [
        (
            json!([{ "name": "a", "command": "x" }, { "name": "a", "command": "x" }]),
            "two steps are named a",
        ),
        (json!([{ "name": "a" }]), "needs either a command or inline contents"),
        (json!([{ "command": "x" }]), "missing field `name`"),
    ] {
        let (result, record) = runner.job(&spec(steps)).await;
        match result {
            Err(PluginError::Refused(refusal)) => assert!(refusal.contains(why), "{refusal}"),
            other => panic!("{other:?}"),
        }
        assert!(record.children.is_empty());
    }
    let mut wrong = spec(json!([]));
    wrong.kind = JobKind::Plan;
    wrong.inputs = json!({ "component": "web", "steps": [] });
    let (result, _) = runner.job(&wrong).await;
    assert_eq!(result.unwrap_err().to_string(), "the plugin action does not support plan jobs");
}
