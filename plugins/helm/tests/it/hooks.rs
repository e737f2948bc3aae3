//! Hooks that meet existing objects, and the objects that they leave.

use serde_json::{Value, json};

use crate::{
    cluster::Namespace,
    lifecycle::shown,
    plugin::Component,
    torture::{component, config_map, hook},
};

/// Template of an object that is a hook.
fn object(kind: &str, name: &str, events: &str, policy: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n  annotations:\n    \
         helm.sh/hook: {events}\n    helm.sh/hook-delete-policy: {policy}\n{more}---\n"
    )
}

/// Template of a ConfigMap that is a hook.
fn migrate(policy: &str) -> String {
    object("ConfigMap", "migrate", "pre-install,pre-upgrade", policy, "data: {a: b}\n")
}

fn uid(namespace: &Namespace, kind: &str, name: &str) -> Value {
    namespace.get(kind, name).unwrap()["metadata"]["uid"].clone()
}

/// Asserts that a plan is refused for this reason, and that nothing changed.
#[track_caller]
fn assert_refused(web: &mut Component, namespace: &Namespace, reason: &str) {
    let before = namespace.get("ConfigMap", "migrate").unwrap();
    let policies = ["before-hook-creation", "hook-succeeded", "hook-failed"];
    for (policy, take_ownership) in policies.into_iter().zip([true, true, false]) {
        web.set("take_ownership", take_ownership);
        web.write("templates/hook.yaml", &migrate(policy));
        let refused = web.refusal();
        assert!(refused.contains(reason), "{policy}: {refused}");
        assert!(refused.contains(&format!("ConfigMap {}/migrate", namespace.name)));
    }
    assert_eq!(namespace.get("ConfigMap", "migrate").unwrap(), before);
    let releases = ["get", "secrets", "--selector=owner=helm", "--output=name"];
    assert_eq!(namespace.kubectl_ok(&releases), "");
}

#[test]
fn a_hook_never_takes_an_object_of_another_owner() {
    let files = [("templates/a.yaml", &*config_map("a", "key: x"))];
    let Some((namespace, mut web)) = component(&files) else { return };
    // a user
    namespace.kubectl_ok(&["create", "configmap", "migrate"]);
    assert_refused(&mut web, &namespace, "it has no annotation helm.sh/hook");
    // a hook of a release in the same namespace
    namespace.kubectl_ok(&["annotate", "configmap", "migrate", "helm.sh/hook=pre-install"]);
    assert_refused(&mut web, &namespace, "this component did not create it");
    // another component of Stead
    namespace.apply_as("stead:ins_1/other", &config_map("migrate", "key: z"));
    assert_refused(&mut web, &namespace, "it belongs to the Stead component ins_1/other");
    // a release
    let owner = "meta.helm.sh/release-name=other";
    namespace.kubectl_ok(&["annotate", "configmap", "migrate", owner]);
    assert_refused(&mut web, &namespace, "it belongs to the Helm release other");
}

#[test]
fn an_object_that_appears_after_the_plan_makes_it_stale() {
    let hook = migrate("before-hook-creation");
    let Some((namespace, mut web)) = component(&[("templates/hook.yaml", &hook)]) else { return };
    web.plan().unwrap();
    namespace.kubectl_ok(&["create", "configmap", "migrate"]);
    let own = uid(&namespace, "ConfigMap", "migrate");
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert!(message.contains("an object with the name of the hook ConfigMap"), "{message}");
    assert_eq!(uid(&namespace, "ConfigMap", "migrate"), own);
    namespace.kubectl_ok(&["delete", "configmap", "migrate"]);
    web.execute("apply").unwrap();

    // an upgrade replaces the object of the install, unless another release took it over
    web.write("templates/hook.yaml", &hook.replace("a: b", "a: c"));
    let plan = web.plan().unwrap();
    assert!(shown(&plan, &namespace)[0].starts_with("replace ConfigMap migrate"), "{plan:#}");
    namespace.kubectl_ok(&["annotate", "configmap", "migrate", "meta.helm.sh/release-name=b"]);
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert!(message.contains("belongs to the Helm release b"), "{message}");
    namespace.kubectl_ok(&["annotate", "configmap", "migrate", "meta.helm.sh/release-name-"]);
    web.execute("apply").unwrap();
    assert_eq!(namespace.get("ConfigMap", "migrate").unwrap()["data"], json!({ "a": "c" }));
}

#[test]
fn a_hook_deletes_no_claim_and_no_inventory() {
    let spec = "spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: \
                {requests: {storage: 1Mi}}}\n";
    let events = "pre-install,pre-upgrade";
    let claim = object("PersistentVolumeClaim", "data", events, "before-hook-creation", spec);
    let settings = config_map("settings", "a: {{ .Values.a | quote }}");
    let files = [("templates/claim.yaml", &*claim), ("templates/a.yaml", &settings)];
    let Some((namespace, mut web)) = component(&files) else { return };
    web.set("values", json!({ "a": "one" }));
    web.deploy();
    let own = uid(&namespace, "PersistentVolumeClaim", "data");
    web.set("values", json!({ "a": "two" }));
    let refused = web.refusal();
    assert!(refused.contains("a PersistentVolumeClaim is never deleted"), "{refused}");
    assert_eq!(uid(&namespace, "PersistentVolumeClaim", "data"), own);
    let plan = web.destroy();
    let line = "forget PersistentVolumeClaim data [stays: an uninstall does not delete hooks]";
    assert!(shown(&plan, &namespace).contains(&line.to_owned()), "{plan:#}");
    assert_eq!(uid(&namespace, "PersistentVolumeClaim", "data"), own);

    let inventory = object("Secret", "x\n  namespace: stead", "pre-install", "hook-failed", "");
    web.write("templates/claim.yaml", &inventory);
    let refused = web.refusal();
    assert!(refused.contains("where Stead stores its inventories"), "{refused}");
    let unknown =
        migrate("hook-failed").replace("v1\nkind: ConfigMap", "example.dev/v1\nkind: Job");
    web.write("templates/claim.yaml", &unknown);
    let refused = web.refusal();
    let part = "the cluster does not serve the kind Job of example.dev/v1";
    assert!(refused.contains("hook ") && refused.contains(part), "{refused}");
    let both = object("ConfigMap", "settings", "post-install", "before-hook-creation", "");
    web.write("templates/claim.yaml", &both);
    let refused = web.refusal();
    assert!(refused.contains("is a hook and an object of the chart"), "{refused}");
}

#[test]
fn a_failed_hook_stays_or_goes_by_its_policy() {
    let hooks = |command: &str| {
        let kept = hook("kept", "pre-install", 1, "before-hook-creation", command);
        [hook("gone", "pre-install", 0, "hook-failed", "true"), kept].concat()
    };
    let failing = hook("gone", "pre-install", 0, "hook-failed", "false");
    let Some((namespace, mut web)) = component(&[("templates/hooks.yaml", &failing)]) else {
        return;
    };
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed", "{message}");
    assert_eq!(namespace.get("Pod", "gone"), None, "hook-failed");

    // without that policy, the failed hook stays, and the next plan replaces it
    web.write("templates/hooks.yaml", &hooks("false"));
    let plan = web.plan().unwrap();
    let lines = shown(&plan, &namespace);
    assert!(lines[0].starts_with("create Pod gone [hook: pre-install"), "{lines:?}");
    assert!(lines[1].starts_with("create Pod kept [hook: pre-install"), "{lines:?}");
    web.execute("apply").unwrap_err();
    let failed = uid(&namespace, "Pod", "kept");
    web.write("templates/hooks.yaml", &hooks("true"));
    let plan = web.plan().unwrap();
    let lines = shown(&plan, &namespace);
    let line = "update Pod gone [hook: pre-install, weight: 0, deleted: hook-failed]";
    assert_eq!(lines[0], line, "it succeeded, so it stayed");
    assert!(lines[1].starts_with("replace Pod kept [hook: pre-install"), "{lines:?}");
    web.execute("apply").unwrap();
    assert_ne!(uid(&namespace, "Pod", "kept"), failed);
    let plan = web.destroy();
    let lines = shown(&plan, &namespace);
    for name in ["gone", "kept"] {
        let line = format!("forget Pod {name} [stays: an uninstall does not delete hooks]");
        assert!(lines.contains(&line), "{lines:?}");
    }
}

#[test]
fn hooks_of_an_uninstall_are_checked_and_named() {
    let hook = object("ConfigMap", "last", "post-delete", "before-hook-creation", "");
    let Some((namespace, mut web)) = component(&[("templates/hook.yaml", &hook)]) else { return };
    web.deploy();
    namespace.kubectl_ok(&["create", "configmap", "last"]);
    let (code, message) = web.plan_for("destroy").unwrap_err();
    assert_eq!(code, "refused", "{message}");
    assert!(message.contains("it has no annotation helm.sh/hook"), "{message}");
    namespace.kubectl_ok(&["delete", "configmap", "last"]);
    let plan = web.destroy();
    let lines = shown(&plan, &namespace);
    assert_eq!(lines[0], "forget ConfigMap last [stays: Helm leaves this hook after its success]");
    assert!(lines[1].starts_with("create ConfigMap last [hook: post-delete"), "{lines:?}");
    assert!(namespace.get("ConfigMap", "last").is_some());
}

/// Details of a plan by address.
fn details<'p>(plan: &'p Value, address: &str) -> &'p Value {
    let resources = plan["details"]["resources"].as_array().unwrap();
    let found = resources.iter().find(|one| one["address"] == address);
    &found.unwrap_or_else(|| panic!("no {address}: {plan:#}"))["attributes"]
}

#[test]
fn details_have_the_fields_of_objects_and_hooks() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {p: HIDDEN-{{ \
                  .Values.v }}}\n";
    let hidden =
        object("Secret", "seed", "pre-upgrade", "hook-succeeded", "stringData: {a: HIDDEN}\n");
    let files = [
        ("templates/a.yaml", &*config_map("a", "key: {{ .Values.v }}")),
        ("templates/secret.yaml", secret),
        ("templates/hooks.yaml", &[migrate("before-hook-creation"), hidden].concat()),
    ];
    let Some((namespace, mut web)) = component(&files) else { return };
    let ns = &namespace.name;
    web.set("values", json!({ "v": "one" }));
    web.deploy();
    web.set("values", json!({ "v": "two" }));
    let plan = web.plan().unwrap();
    assert_eq!(
        details(&plan, &format!("ConfigMap {ns}/a")),
        &json!([{ "path": "data.key", "before": { "value": "one" }, "after": { "value": "two" } }])
    );
    assert_eq!(
        details(&plan, &format!("Secret {ns}/db")),
        &json!([{ "path": "data.p", "before": "sensitive", "after": "sensitive" }])
    );
    let hook = details(&plan, &format!("ConfigMap {ns}/migrate")).as_array().unwrap();
    let data = json!({ "path": "data.a", "after": { "value": "b" } });
    assert!(hook.contains(&data) && hook.iter().any(|one| one["path"] == "kind"), "{hook:?}");
    assert!(details(&plan, &format!("Secret {ns}/seed")).to_string().contains("sensitive"));
    let release = details(&plan, &format!("HelmRelease {ns}/web"));
    let revision = json!({ "path": "revision", "before": { "value": 1 }, "after": { "value": 2 } });
    assert_eq!(release, &json!([revision]));
    assert!(!plan.to_string().contains("HIDDEN"), "{plan:#}");
    web.execute("apply").unwrap();
    assert!(!format!("{:?}", web.log).contains("HIDDEN"));
}
