//! Compares the text output of commands with the golden files in `schemas/cli-output`.
use std::{fs, path::Path};

use ed25519_dalek::SigningKey;
use schemas::control::installs::Install;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    apps, audit, builds,
    installs::{
        self,
        drift::{Part, Report},
    },
    jobs,
    pins::{Pins, fingerprint},
    render::{Output, Screen},
    runners,
    runs::{
        self,
        plans::{DetailsMode, plan_text},
    },
    templates,
};

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const AT: &str = "2026-11-21T01:02:03.000000Z";

/// `UPDATE_GOLDEN=1` writes the file. Review the difference from a customer's point of view.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/cli-output").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
}

fn screen() -> Screen {
    Screen::new(Output::Table, true, true)
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn id(prefix: &str) -> String {
    format!("{prefix}_{ULID}")
}

fn digest(n: u8) -> String {
    format!("sha256:{n:064x}")
}

/// Formats the keys of an install that is not pinned, is pinned, and differs from its pin.
fn shown_with_pins(install: &Install) -> (String, String) {
    let text = |install: &Install, pins: &Pins| {
        let shown = installs::output::ShownInstall::new(install, pins);
        installs::output::install_text(&shown, &screen())
    };
    let mut pins = Pins::default();
    let unpinned = text(install, &pins);
    pins.pin(install, fingerprint(install).unwrap());
    let mut other = install.clone();
    other.keys.as_mut().unwrap().generation = 2;
    let mut without_keys = install.clone();
    without_keys.keys = None;
    let pinned = [install, &other, &without_keys].map(|install| {
        let shown = text(install, &pins);
        format!("{}\n", shown.lines().find(|line| line.starts_with("  keys")).unwrap())
    });
    (unpinned, pinned.concat())
}

#[test]
fn install_matches_golden_file() {
    let component = |name: &str, state: &str, outputs: Value| {
        json!({"name": name, "kind": "terraform_module", "state": state, "outputs": outputs,
               "config_version": (state == "deployed").then_some(2)})
    };
    let mut reserved = component("api", "absent", json!({}));
    reserved["reserved_by"] = json!(id("run"));
    let mut cache = component("cache", "absent", json!({}));
    cache["disabled"] = json!(true);
    let install: Install = read(json!({
        "id": id("ins"), "name": "acme", "app": id("app"), "app_name": "shop", "config_version": 2,
        "state": "provisioning", "auto_approve": false, "inputs": {"size": "2", "domain": "acme.example"},
        "stack_outputs": {"account": "123456789012"}, "runner": id("rnr"), "runs": [id("run")],
        "runner_state": "stopped", "runner_last_contact": AT,
        "keys": {"log_id": "01LOG", "generation": 1, "encryption_key": "11".repeat(32),
                 "signing_key": hex::encode(SigningKey::from_bytes(&[9; 32]).verifying_key().as_bytes())},
        "sandbox": component("sandbox", "deployed", json!({"zones": ["a", "b"]})),
        "components": [reserved, cache, component("network", "deployed", json!({"id": "net-1"}))],
        "ignored_settings": [
            {"severity": "warning", "file": "components/api.toml", "line": 7, "column": 18,
             "message": "12 x `drift_schedule`: this release does not check for drift on a schedule"},
            {"severity": "warning", "file": "metadata.toml",
             "message": "1 x `slack_webhook_url`: no message is sent to it (first in line 3)"},
        ],
        "created_at": AT, "position": 9,
    }));
    let (shown, pinned) = shown_with_pins(&install);
    golden("installs-show.txt", &shown);
    golden("installs-show-pinned.txt", &pinned);
    let enrolment = read(json!({
        "id": id("tok"), "token": "stead_enrol_x", "expires_at": AT, "server_key": digest(7),
        "runner_url": "https://stead.example:7071", "command": "stead-runner --data … --token-file -",
    }));
    golden(
        "installs-create-enrolment-token.txt",
        &installs::output::enrolment(&enrolment, &screen()),
    );
}

#[test]
fn diff_output_with_impact() {
    let impact = |name: &str, version: u32, rest: Value| {
        let mut impact = json!({"install": id("ins"), "name": name, "config_version": version, "provisioned": true});
        impact.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        impact
    };
    let plan = |operation: &str, name: &str| json!({"operation": operation, "name": name});
    let diff = read(json!({
        "from": 3,
        "changes": [
            {"change": "changed", "kind": "input", "name": "size",
             "fields": [{"field": "default", "before": "2", "after": "3"}]},
            {"change": "changed", "kind": "component", "name": "network", "fields": [{"field": "source"}]},
            {"change": "removed", "kind": "component", "name": "cache"},
            {"change": "changed", "kind": "policy", "name": "kubernetes_cluster", "fields": [{"field": "contents"}]},
        ],
        "impact": [
            impact("acme", 3, json!({"plans": [plan("apply", "sandbox"), plan("apply", "network"), plan("destroy", "cache")]})),
            impact("beta-gmbh", 2, json!({"plans": [plan("apply", "network")]})),
            impact("gamma", 3, json!({})),
            impact("delta", 1, json!({"problem": "the input `zones` is required and was not given"})),
            impact("new", 3, json!({"provisioned": false, "plans": [plan("apply", "network")]})),
        ],
        "remaining_installs": 12,
        "ignored_settings": [
            {"severity": "warning", "file": "components/api.toml", "line": 7, "column": 18,
             "message": "12 x `drift_schedule`: this release does not check for drift on a schedule"},
        ],
    }));
    golden("apps-diff.txt", &apps::diff_text(&diff, &screen()));
}

#[test]
fn template_matches_golden_file() {
    let text = "{{ .nuon.inputs.inputs.size }} {{ .nuon.components.db.outputs.url }} \
                {{ dig \"outputs\" \"zone\" \"-\" .nuon.sandbox }} {{ range .nuon.install_stack.outputs.subnets }}{{ . }}{{ end }}";
    let template =
        app_config::template::Template::parse(text, &app_config::Origin::default()).unwrap();
    let state = json!({"nuon": {"inputs": {"inputs": {"size": "2"}},
        "install_stack": {"outputs": {"subnets": ["subnet-a", "subnet-b"]}}}});
    let table = templates::table(&template.variables(&state), &screen());
    golden("templates-explain.txt", &table.text(&screen()));
}

#[test]
fn ocsf_event_matches_golden_file() {
    let event = |sequence, actor: String, payload| {
        read(json!({
            "position": 40 + sequence, "event_id": id("evt"), "stream": format!("install/{}", id("ins")),
            "sequence": sequence, "type": "install.run_admitted", "version": "1", "recorded_at": AT,
            "actor": actor, "payload": payload, "salt": "00", "leaf": "aa", "chain": "bb",
            "metadata": {"actor": actor, "command_id": "c", "correlation_id": "r", "route": "POST /v1/runs"},
        }))
    };
    let payload = json!({"type": "run_admitted", "reason": "[encrypted]"});
    let text = [
        event(1, id("prn"), payload.clone()),
        event(2, "policy:run_event_advances_run".into(), payload),
    ]
    .map(|event| format!("{:#}\n", audit::ocsf::to_ocsf("stead/log", &event).unwrap()));
    golden("audit-export-ocsf.txt", &text.concat());
}

#[test]
fn job_matches_golden_file() {
    let job = read(json!({
        "id": id("job"), "kind": "apply", "class": "mutating", "state": "outcome_unknown",
        "cancelling": true, "manifest": digest(1), "install": id("ins"), "run": id("run"),
        "step": id("stp"), "name": "network", "queued_at": AT,
        "waiting": {"for": "resolution", "detail": "the outcome of the job is unknown; check its effects, then resolve it: stead jobs resolve job_01ARZ3NDEKTSV4RRFFQ69G5FAV --resolution … --reason …"},
        "attempts": [
            {"attempt": 1, "execution": id("exe"), "runner": id("rnr"), "claimed_at": AT, "signal": 9,
             "log": {"length_bytes": 2048, "sha256": digest(2), "omitted_bytes": 0, "complete": false}},
            {"attempt": 2, "execution": id("exe"), "runner": id("rnr"), "claimed_at": AT, "phase": "apply"},
        ],
    }));
    golden("jobs-show.txt", &jobs::show(&job, &screen()));
}

#[test]
fn build_and_runner_match_golden_files() {
    let build = json!({
        "id": id("bld"), "app": id("app"), "app_name": "shop", "component": id("cmp"),
        "component_name": "network", "kind": "terraform_module", "config_version": 1,
        "source": digest(1), "state": "succeeded", "job": id("job"), "requested_at": AT, "ended_at": AT,
        "artifact": {"repository": "shop/network", "digest": digest(2), "size_bytes": 10240},
    });
    let mut failed = build.clone();
    failed["state"] = json!("failed");
    failed["reason"] = json!("job_failed");
    failed["detail"] = json!("the process exited with code 1");
    failed.as_object_mut().unwrap().remove("artifact");
    let both = [build, failed].map(|build| builds::show(&read(build), &screen()));
    golden("builds-show.txt", &both.join("\n"));

    let runner = read(json!({
        "id": id("rnr"), "mode": "install", "install": id("ins"), "install_name": "acme",
        "state": "disabled", "disabled_by": ["vendor", "customer"], "reason": "change freeze",
        "version": "0.1.0", "host": "linux/x86_64 (vm)", "jobs": [id("job")], "enrolled_at": AT,
        "last_contact": AT, "disconnected_since": AT,
    }));
    golden("runners-show.txt", &runners::show(&runner, &screen()));
}

#[test]
fn run_matches_golden_file() {
    let step = |n: u32, name: &str, layer: u32, state: &str, more: Value| {
        let mut step = json!({
            "id": format!("stp_01ARZ3NDEKTSV4RRFFQ69G5FA{n}"), "kind": "deploy", "name": name,
            "depends_on": [], "layer": layer, "state": state,
        });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let plan = json!({"digest": digest(7), "noop": false, "add": 3, "change": 1, "destroy": 0, "summary": digest(8)});
    let nothing = json!({"digest": digest(9), "noop": true, "add": 0, "change": 0, "destroy": 0, "summary": digest(8)});
    let by = |decision: &str, by: &str| {
        let name = by.starts_with("prn_").then_some("Bo Chen");
        json!({"decision": decision, "by": by, "by_name": name, "reason": "read it", "at": AT})
    };
    let run = read(json!({
        "id": id("run"), "install": id("ins"), "install_name": "acme", "kind": "upgrade", "config_version": 2,
        "state": "waiting_for_approval", "requested_by": id("prn"), "requested_by_name": "Ann Lee", "reason": "CHG-1204",
        "steps": 7, "steps_ended": 4, "requested_at": AT, "position": 9, "retry_of": id("run"),
        "dag": [
            step(1, "base", 0, "succeeded", json!({"plan": plan, "decision": by("approved", &id("prn"))})),
            step(2, "same", 0, "succeeded", json!({"plan": nothing, "decision": by("approved", "policy:auto_approve")})),
            step(3, "network", 1, "waiting_for_approval", json!({"plan": plan, "waiting": {"for": "approval", "detail": "x"}})),
            step(4, "queue", 1, "failed", json!({"reason": "job failed: the process exited with code 1", "job": id("job")})),
            step(5, "cache", 1, "planning", json!({"waiting": {"for": "runner", "detail": "the runner is disconnected; start it or check its network"}})),
            step(6, "old", 1, "skipped", json!({"plan": plan, "reason": "denied", "decision": by("denied", &id("prn"))})),
            step(7, "api", 2, "pending", json!({"waiting": {"for": "dependency", "detail": "network, cache must succeed first"}})),
        ],
    }));
    golden("runs-show.txt", &runs::output::run_text(&run, &screen()));
}

#[test]
fn plan_details_match_golden_files() {
    let unchanged = "x".repeat(120);
    let attributes: Vec<Value> = (0..14)
        .map(|n| json!({"path": format!("tags.t{n:02}"), "after": {"value": unchanged}}))
        .collect();
    let details: Value = json!({
        "resources": [
            {"address": "aws_instance.web", "action": "replace", "attributes": [
                {"path": "ami", "before": {"value": "ami-1"}, "after": {"value": "ami-2"}, "replaces": true},
                {"path": "id", "before": {"value": "i-7"}, "after": "known_after_apply"},
                {"path": "password", "before": "sensitive", "after": "sensitive"}]},
            {"address": "aws_vpc.main", "action": "create", "attributes": attributes},
            {"address": "ConfigMap shop/web", "action": "update", "attributes": [
                {"path": "data[app.conf]", "before": {"value": "a = 1\nb = 2\nc = 3"},
                 "after": {"value": "a = 1\nb = 5\nc = 3"}}], "omitted": 4},
            {"address": "aws_eip.old", "action": "delete"}],
        "outputs": [{"address": "url", "action": "update", "attributes": [
            {"path": "", "before": {"value": "http://a"}, "after": {"value": "http://b"}}]}],
        "omitted": 1,
    });
    let named =
        |address: &str| json!({"address": address, "action": "create", "attributes": ["id"]});
    let summary = json!({"resources": [named("aws_vpc.main"), named("aws_s3_bucket.large")]});
    let available = read(
        json!({"plan": digest(7), "state": "available", "digest": digest(8), "salt": digest(9), "details": details}),
    );
    let erased = read(json!({"plan": digest(7), "state": "erased", "digest": digest(8)}));
    for (name, details, mode) in [
        ("runs-plan-folded.txt", Some(&available), None),
        ("runs-plan-full.txt", Some(&available), Some(DetailsMode::Full)),
        ("runs-plan-names.txt", None, Some(DetailsMode::Names)),
        ("runs-plan-erased.txt", Some(&erased), None),
    ] {
        golden(name, &plan_text("network", &summary, details, mode, &screen()));
    }
}

#[test]
fn drift_matches_golden_file() {
    let step = |n: u32, name: &str, state: &str, more: Value| {
        let mut step = json!({
            "id": format!("stp_01ARZ3NDEKTSV4RRFFQ69G5FA{n}"), "kind": "check", "name": name,
            "depends_on": [], "layer": 0, "state": state,
        });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let plan = |noop: bool| {
        json!({"plan": {"digest": digest(7), "noop": noop, "add": 0,
        "change": u64::from(!noop), "destroy": 0, "summary": digest(8), "has_details": !noop}})
    };
    let run: schemas::control::runs::Run = read(json!({
        "id": id("run"), "install": id("ins"), "install_name": "acme", "kind": "drift", "config_version": 2,
        "state": "failed", "requested_by": id("prn"), "steps": 3, "steps_ended": 3, "requested_at": AT,
        "position": 9,
        "dag": [
            step(1, "sandbox", "succeeded", plan(true)),
            step(2, "network", "succeeded", plan(false)),
            step(3, "api", "failed", json!({"reason": "job failed: the cluster is unreachable"})),
        ],
    }));
    let details = read(json!({"plan": digest(7), "state": "available", "details": {"resources": [
        {"address": "aws_s3_bucket.notes", "action": "update", "attributes": [
            {"path": "tags.retention_days", "before": {"value": "7"}, "after": {"value": "90"}}]}]}}));
    let summary = json!({"resources": [{"address": "aws_s3_bucket.notes", "action": "update"}]});
    let parts = vec![
        Part::example(&run.dag[0], None, None),
        Part::example(&run.dag[1], Some(summary), Some(details)),
        Part::example(&run.dag[2], None, None),
    ];
    let report = Report::of(&run, parts);
    golden("installs-drift.txt", &installs::drift::text(&report, None, &screen()));
}

#[test]
fn history_diff_output() {
    let by = |who: &str| {
        if who == "prn" { (id("prn"), Some("Ann Lee")) } else { (who.to_owned(), None) }
    };
    let event = |position: u64, of: &str, who: &str, reason: Option<&str>| {
        let (actor, actor_name) = by(who);
        json!({"position": position, "recorded_at": AT, "type": of, "stream": format!("install/{}", id("ins")),
               "actor": actor, "actor_name": actor_name, "reason": reason})
    };
    let intervention = |action: &str, of: Option<&str>, who: &str, reason: &str| {
        let (by, by_name) = by(who);
        let digest = of.map(|_| digest(7));
        json!({"kind": action, "step_name": of, "digest": digest, "by": by, "by_name": by_name, "reason": reason,
               "at": AT, "position": 130})
    };
    let job = |kind: &str, outcome: Option<&str>, detail: Option<&str>, attempts: u32| {
        json!({"job": id("job"), "kind": kind, "name": "network", "runner": id("rnr"), "attempts": attempts,
               "outcome": outcome, "detail": detail, "queued_at": AT, "ended_at": outcome.map(|_| AT)})
    };
    let version = |n: u32| json!({"config_version": n, "build": id("bld")});
    let upgrade = json!({
        "run": id("run"), "kind": "upgrade", "config_version": 2, "requested_by": id("prn"),
        "requested_by_name": "Ann Lee", "reason": "CHG-1204", "requested_at": AT, "outcome": "failed",
        "ended_at": AT,
        "interventions": [intervention("approved", Some("network"), "prn", "read it"),
                  intervention("cancel_requested", None, "prn", "enough")],
        "jobs": [job("plan", Some("succeeded"), None, 1),
                 job("apply", Some("failed"), Some("the process exited with code 1"), 2)],
        "components": [
            {"name": "network", "before": version(1), "after": version(2), "incomplete": true},
            {"name": "old", "before": version(1), "incomplete": false},
            {"name": "api", "after": version(2), "incomplete": false},
        ],
        "events": [event(121, "install.run_admitted", "prn", None), event(180, "run.finished", "policy:run_event_advances_run", None)],
    });
    let running = json!({
        "run": id("run"), "kind": "input_update", "requested_by": "system", "interventions": [],
        "jobs": [job("plan", None, None, 0)], "components": [],
        "events": [event(200, "run.planned", "system", None)],
    });
    let between = read(json!({
        "stream": format!("install/{}", id("ins")), "name": "acme",
        "from": {"position": 120, "recorded_at": AT}, "to": {"position": 214, "recorded_at": AT},
        "changes": [
            {"path": "components.api.config_version", "after": 2},
            {"path": "components.network.config_version", "before": 1, "after": 2},
            {"path": "inputs.note", "before": "short", "after": "x".repeat(80)},
        ],
        "more_changes": 3, "runs": [upgrade, running], "complete_through": 214,
        "other_events": [event(119, "install.inputs_changed", "prn", Some("as agreed"))],
    }));
    golden("audit-diff.txt", &audit::diff::text(&between, &screen()));
    let quiet = read(json!({
        "stream": format!("job/{}", id("job")), "from": {"position": 0}, "to": {"position": 0},
        "changes": [], "runs": [], "other_events": [], "complete_through": 0,
    }));
    golden("audit-diff-quiet.txt", &audit::diff::text(&quiet, &screen()));
}
