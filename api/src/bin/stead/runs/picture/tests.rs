//! What people read is a golden: change it on purpose.
use serde_json::json;

use super::of;
use crate::render::{Output, Screen};

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

#[test]
fn a_run_shows_its_layers_its_plans_and_why_it_waits() {
    let step = |n: u32, name: &str, layer: u32, state: &str| {
        json!({
            "id": format!("stp_01ARZ3NDEKTSV4RRFFQ69G5FA{n}"), "kind": "deploy", "name": name,
            "depends_on": [], "layer": layer, "state": state,
        })
    };
    let mut sandbox = step(1, "sandbox", 0, "succeeded");
    sandbox["kind"] = json!("sandbox");
    let digest = format!("sha256:{:064x}", 7);
    let mut network = step(2, "network", 1, "waiting_for_approval");
    network["plan"] = json!({
        "digest": digest, "noop": false, "add": 3, "change": 1, "destroy": 0, "tool": "terraform 1.11.4",
        "summary": digest,
    });
    network["waiting"] = json!({"for": "approval", "detail": "approve or deny the plan"});
    let mut queue = step(3, "queue", 1, "failed");
    queue["reason"] = json!("exit_code: the child ended with 1");
    queue["job"] = json!(format!("job_{ULID}"));
    let mut service = step(4, "service", 2, "pending");
    service["waiting"] = json!({"for": "dependency", "detail": "network must succeed first"});
    let run = serde_json::from_value(json!({
        "id": format!("run_{ULID}"), "install": format!("ins_{ULID}"), "install_name": "acme",
        "kind": "provision", "state": "waiting_for_approval", "requested_by": "policy:provision_when_enrolled",
        "steps": 4, "steps_ended": 2, "requested_at": "2026-11-21T01:02:03.000000Z", "position": 9,
        "dag": [sandbox, network, queue, service],
    }))
    .unwrap();
    let expected = format!(
        "run_{ULID}  provision of acme: waiting for approval
  requested 2026-11-21 01:02:03Z by policy:provision_when_enrolled

  ✔ sandbox             succeeded
    ? deploy network    waiting for approval  +3 ~1 -0
        approve: stead runs approve acme --step network --reason …
        plan {digest}
    ✘ deploy queue      failed
        exit_code: the child ended with 1
        log: stead jobs logs job_{ULID}
      · deploy service  pending
          network must succeed first
"
    );
    assert_eq!(of(&run, &Screen::new(Output::Table, true, true)), expected);
}

#[test]
fn a_plan_shows_what_happens_to_each_resource() {
    let summary = json!({
        "resources": [
            {"action": "create", "address": "aws_s3_bucket.b", "attributes": ["id", "arn"]},
            {"action": "delete", "address": "aws_iam_role.r"},
        ],
        "outputs": [{"action": "update", "name": "url"}],
    });
    let screen = Screen::new(Output::Table, true, true);
    let expected = "
plan of base
  + aws_s3_bucket.b (id, arn)
  - aws_iam_role.r
  output ~ url
";
    assert_eq!(super::plan("base", &summary, &screen), expected);
    let nothing = json!({"resources": []});
    assert_eq!(super::plan("base", &nothing, &screen), "\nplan of base\n  no changes\n");
}
