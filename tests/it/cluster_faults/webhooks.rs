//! Webhooks that refuse or change the object of an approved plan.
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tests::{
    Admission, Cluster, ClusterNamespace, Webhook, ended, run_with_logs, succeeded, until,
};

use super::{Fixture, Kind, TIMEOUT, installed};

const OBJECT: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {key: approved}\n";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Behavior {
    Allow,
    Refuse,
    Change,
    /// Changes the object, but not in a dry run.
    ChangeUnseen,
}

/// Webhook for the ConfigMap of a namespace.
struct Hook<'f, 'c> {
    namespace: &'f ClusterNamespace<'c>,
    behavior: Arc<Mutex<Behavior>>,
    _webhook: Webhook,
}

impl<'f, 'c> Hook<'f, 'c> {
    fn start(namespace: &'f ClusterNamespace<'c>) -> Hook<'f, 'c> {
        let behavior = Arc::new(Mutex::new(Behavior::Allow));
        let current = Arc::clone(&behavior);
        let webhook = Webhook::start(move |request| {
            let change = json!([{"op": "replace", "path": "/data/key", "value": "changed"}]);
            if request["object"]["metadata"]["name"] != "web" {
                return Admission::Allow;
            }
            match *current.lock().unwrap() {
                Behavior::Allow => Admission::Allow,
                Behavior::Refuse => Admission::Deny("not during the freeze".into()),
                Behavior::ChangeUnseen if request["dryRun"] == true => Admission::Allow,
                Behavior::Change | Behavior::ChangeUnseen => Admission::Patch(change),
            }
        });
        let name = namespace.name();
        let label = format!("test={name}");
        tests::stdout_of(namespace.kubectl().args(["label", "namespace", name, &label]));
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "web.example.dev",
                "clientConfig": webhook.client_config(),
                "namespaceSelector": {"matchLabels": {"test": name}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["configmaps"],
                }],
                "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            }],
        });
        namespace.apply(&configuration.to_string());
        Hook { namespace, behavior, _webhook: webhook }
    }

    fn set(&self, behavior: Behavior) {
        *self.behavior.lock().unwrap() = behavior;
    }

    /// Returns the value in the ConfigMap, or an empty text without a ConfigMap.
    fn value(&self) -> String {
        let get = ["get", "configmap", "web", "--ignore-not-found", "--output"];
        tests::stdout_of(self.namespace.kubectl().args(get).arg("jsonpath={.data.key}"))
    }
}

impl Drop for Hook<'_, '_> {
    fn drop(&mut self) {
        let kind = "mutatingwebhookconfiguration";
        let _gone = self.namespace.kubectl().args(["delete", kind, self.namespace.name()]).output();
    }
}

impl Fixture<'_> {
    /// Waits until the newest run waits for an approval, and returns it.
    fn planned(&self) -> Value {
        until("a plan", TIMEOUT, || {
            let output = self.server.stead().args(["runs", "show", "acme"]).output().unwrap();
            let run: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            assert_ne!(run["state"], "failed", "{}", run_with_logs(&self.server, &run));
            run["state"] == "waiting_for_approval"
        });
        self.server.cli_json(&["runs", "show", "acme"])
    }

    fn deploy(&self) -> Value {
        self.server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
        self.planned()
    }

    fn approve(&self) {
        self.server.cli_json(&["runs", "approve", "acme", "--all", "--reason", "reviewed"]);
    }

    /// Returns true if the apply of a plan made it invalid.
    fn is_invalidated(&self, run: &Value) -> bool {
        let stream = format!("run/{}", run["id"].as_str().unwrap());
        let events = self.server.cli_json(&["audit", "events", "--stream", &stream]);
        events.as_array().unwrap().iter().any(|event| event["type"] == "run.plan_invalidated")
    }
}

/// Lets a webhook refuse or change the object between the approval and the apply.
fn webhooks_after_the_approval(kind: Kind) {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let Some(fixture) = installed(&cluster, kind, OBJECT, &[]) else { return };
    let hook = Hook::start(&fixture.namespace);
    let server = &fixture.server;

    // A webhook that refuses the object: nothing changes, and the run fails with its message.
    fixture.planned();
    hook.set(Behavior::Refuse);
    fixture.approve();
    let run = ended(server, "acme");
    let text = run_with_logs(server, &run);
    assert!(run["state"] == "failed" && text.contains("not during the freeze"), "{text}");
    assert_eq!(hook.value(), "");

    // A webhook that changes the object: the approval does not cover the result, so the step is
    // planned again, and only that plan runs.
    hook.set(Behavior::Allow);
    let run = fixture.deploy();
    hook.set(Behavior::Change);
    fixture.approve();
    until("another plan", TIMEOUT, || fixture.is_invalidated(&run));
    fixture.planned();
    assert_eq!(hook.value(), "");
    fixture.approve();
    succeeded(server, "acme");
    assert_eq!(hook.value(), "changed");

    // A webhook that does not show its change in a dry run: a manifest fails after the apply. The
    // next plan of both types shows the difference.
    hook.set(Behavior::Allow);
    fixture.deploy();
    hook.set(Behavior::ChangeUnseen);
    fixture.approve();
    let run = ended(server, "acme");
    let text = run_with_logs(server, &run);
    match kind {
        Kind::Manifest => {
            assert!(run["state"] == "failed" && text.contains("outcome_differs"), "{text}");
        }
        Kind::Chart => assert_eq!(run["state"], "succeeded", "{text}"),
    }
    assert_eq!(hook.value(), "changed");
    hook.set(Behavior::Allow);
    fixture.deploy();
    fixture.approve();
    succeeded(server, "acme");
    assert_eq!(hook.value(), "approved");
}

#[test]
fn webhooks_that_dry_runs_show_change_no_manifest_without_an_approval() {
    webhooks_after_the_approval(Kind::Manifest);
}

#[test]
fn webhooks_that_dry_runs_show_change_no_chart_without_an_approval() {
    webhooks_after_the_approval(Kind::Chart);
}
