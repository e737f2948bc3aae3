use serde_json::{Value, json};

use super::*;

fn policy(text: &str) -> Policy {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.toml");
    std::fs::write(&path, format!("version = 1\n{text}")).unwrap();
    Policy::read(&path).unwrap()
}

fn preflight() -> Manifest {
    serde_json::from_value(json!({
        "version": 1, "job": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "kind": "preflight", "class": "pure",
        "plugin": {"name": "preflight", "version": "1"}, "inputs": {},
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    }))
    .unwrap()
}

fn planned(name: &str, plugin: Value, rendered: Value) -> PlannedJob {
    let mut job = json!({
        "name": name, "kinds": ["plan", "apply"], "plugin": plugin,
        "artifacts": [{"repository": format!("shop/{name}"), "digest": format!("sha256:{:064}", 0), "size": 1}],
    });
    job.as_object_mut().unwrap().extend(rendered.as_object().unwrap().clone());
    serde_json::from_value(job).unwrap()
}

fn builtin() -> Value {
    json!({"name": "terraform_module", "version": "1"})
}

fn chart(publisher: &str) -> Value {
    let artifact = json!({
        "repository": "stead.plugins/helm_chart", "digest": format!("sha256:{:064}", 1), "size": 1,
        "publisher": publisher,
    });
    json!({"name": "helm_chart", "version": "1", "artifact": artifact})
}

fn known() -> Value {
    json!({"known": {"inputs": {"component": "web"}, "env": {"LOG_LEVEL": "x"}, "role": "arn:web"}})
}

fn key(seed: u8) -> String {
    hex::encode(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]).verifying_key().as_bytes())
}

fn findings(text: &str, planned: &[PlannedJob], recorded: &[String]) -> Vec<Finding> {
    let now = "2026-11-21T12:00:00Z".parse().unwrap();
    policy(text).findings(&preflight(), planned, recorded, now)
}

#[test]
fn every_rule_is_reported_once_with_the_line_that_allows_all_names() {
    let all = [
        planned("web", builtin(), known()),
        planned("front", chart(&key(2)), known()),
        planned("edge", chart(&key(2)), json!({"deferred": "its inputs depend on outputs of web"})),
    ];
    let text = "kinds = [\"plan\"]\nplugins = [\"x\"]\nrepositories = [\"shop/web\"]\n\
                roles = [\"arn:other\"]\nenv = []\nplugin_publishers = []";
    let found = findings(text, &all, &[]);
    let lines: Vec<_> = found.iter().map(|one| one.message.split(": ").last().unwrap()).collect();
    let publishers = format!("plugin_publishers = [\"{}\"]", key(2));
    for (rule, line, jobs) in [
        ("kinds", "kinds = [\"plan\", \"apply\"]", vec![0, 1, 2]),
        ("plugins", "plugins = [\"x\", \"helm_chart\", \"terraform_module\"]", vec![0, 1, 2]),
        (
            "repositories",
            "repositories = [\"shop/web\", \"shop/edge\", \"shop/front\"]",
            vec![1, 2],
        ),
        ("roles", "roles = [\"arn:other\", \"arn:web\"]", vec![0, 1]),
        ("env", "env = [\"LOG_LEVEL\"]", vec![0, 1]),
    ] {
        let at = found.iter().position(|one| one.rule == rule).unwrap();
        assert_eq!((lines[at], &found[at].jobs), (line, &jobs.into_iter().collect()), "{rule}");
        assert_eq!(found[at].status, CheckStatus::Failed);
        // The policy with the line no longer refuses the jobs for this rule.
        let allowed = findings(line, &all, &[]);
        assert!(!allowed.iter().any(|one| one.rule == rule), "{allowed:?}");
    }
    let publisher = found.iter().find(|one| one.rule == "plugin_publishers").unwrap();
    assert!(publisher.message.contains(&publishers), "{publisher:?}");
    assert_eq!((found.len(), publisher.jobs.len()), (6, 2));
    assert_eq!(findings("", &all, &[key(2)]), []);
    assert_eq!(findings(&publishers, &all, &[]), []);
}

#[test]
fn names_and_variables_that_no_policy_allows_are_reported() {
    let reserved = json!({"known": {"inputs": {}, "env": {"LD_PRELOAD": "x"}}});
    let mut far = planned("far", builtin(), known());
    far.artifacts[0].repository = "../far".into();
    let found = findings("", &[planned("web", builtin(), reserved), far], &[]);
    let rules: Vec<_> = found.iter().map(|one| (one.rule.as_str(), one.jobs.len())).collect();
    assert_eq!(rules, [("env", 1), ("malformed_name", 1)]);
    let without_role = planned("web", builtin(), json!({"known": {"inputs": {}}}));
    let found = findings("roles = [\"*\"]", &[without_role], &[]);
    assert!(found[0].message.contains("the policy requires a role"), "{found:?}");
}

#[test]
fn what_only_the_job_can_show_is_deferred() {
    let action = |rendered: Value| {
        let mut job = planned("backup", json!({"name": "action", "version": "1"}), rendered);
        job.kinds = vec![schemas::runner::JobKind::Action];
        job.artifacts.clear();
        job
    };
    let later = action(json!({"deferred": "its inputs depend on outputs of web"}));
    let digest = format!("actions = [\"backup@sha256:{:064}\"]", 1);
    let statuses = |text: &str, job: &PlannedJob| {
        let found = findings(text, std::slice::from_ref(job), &[]);
        found.into_iter().map(|one| (one.rule, one.status)).collect::<Vec<_>>()
    };
    let found = |rule: &str, status| vec![(rule.to_owned(), status)];
    assert_eq!(statuses(&digest, &later), found("actions", CheckStatus::Deferred));
    assert_eq!(statuses("actions = [\"other\"]", &later), found("actions", CheckStatus::Failed));
    assert_eq!(statuses("actions = [\"back*\"]", &later), []);
    let known = action(json!({"known": {"inputs": {"action": "backup"}}}));
    assert_eq!(statuses(&digest, &known), found("actions", CheckStatus::Failed));
    let veto = "veto_command = [\"/etc/stead/veto\"]";
    assert_eq!(statuses(veto, &known), found("veto_command", CheckStatus::Deferred));
    let closed = "[[windows]]\nkinds = [\"action\"]\nfrom = \"22:00\"\nto = \"23:00\"";
    assert_eq!(statuses(closed, &known), found("windows", CheckStatus::Deferred));
    let open = "[[windows]]\nkinds = [\"action\"]\nfrom = \"10:00\"\nto = \"23:00\"";
    assert_eq!(statuses(open, &known), []);
}
