//! Invalid inputs and denied access. The plugin changes nothing.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    cluster::{Namespace, config_map},
    plugin::{Component, Plugin},
};

/// Kubeconfig of a cluster that does not exist.
fn unreachable_cluster(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                contexts: [{name: c, context: {cluster: c, user: u}}]\n\
                users: [{name: u, user: {token: t-secret}}]\n";
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn invalid_inputs_are_refused_before_any_connection() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_cluster(dir.path());
    let refusal = |settings: serde_json::Value| {
        let mut web = Component::new(&kubeconfig, "shop", "");
        web.settings = settings;
        web.refusal()
    };
    for (settings, part) in [
        (json!({ "manifest": "a: [1" }), "manifest:1"),
        (json!({ "manifest": "kind: Pod\n" }), "no apiVersion"),
        (
            json!({ "manifest": config_map("a", "1").repeat(2), "manifest_file": "m.yaml" }),
            "m.yaml:8: ConfigMap a is also at m.yaml:1",
        ),
        (json!({ "manifest": "", "retention": 3 }), "unknown field `retention`"),
        (json!({}), "`manifest` or `kustomize` is missing"),
    ] {
        let message = refusal(settings);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn missing_and_unreachable_clusters_are_named() {
    let mut plugin = Plugin::start(None);
    let call = json!({ "call": "health", "component": "web", "operation": "apply",
        "inputs": { "install": "ins_1", "settings": { "manifest": "" } },
        "source_dir": "/", "state_dir": "/", "work_dir": "/" });
    let (code, message) = plugin.call(call).unwrap_err();
    assert_eq!(code, "refused");
    assert!(message.contains("KUBECONFIG is not set"), "{message}");

    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_cluster(dir.path());
    let (code, message) = Component::new(&kubeconfig, "shop", "").plan().unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("check that the API server is reachable"), "{message}");
    assert!(!message.contains("t-secret"));
}

#[test]
fn build_needs_neither_settings_nor_a_cluster() {
    let mut plugin = Plugin::start(None);
    for call in ["health", "build"] {
        let call = json!({ "call": call, "component": "web", "operation": "apply",
            "inputs": { "component": "web", "repository": "shop/web" },
            "source_dir": "/", "state_dir": "/", "work_dir": "/" });
        plugin.call(call).unwrap();
    }
    let unknown = plugin.call(json!({ "call": "logs" })).unwrap_err();
    assert_eq!(unknown.0, "unsupported");
    plugin.close();
}

#[test]
fn versions_are_negotiated() {
    let mut plugin = Plugin::start(None);
    let first = plugin.call(json!({ "call": "describe", "protocol": 1 })).unwrap();
    assert_eq!(first["protocol"], 1);
    let offered = json!({ "call": "describe", "protocol": 1, "protocols": [1, 2, 3] });
    assert_eq!(plugin.call(offered).unwrap()["protocol"], 2);
    let (code, _) = plugin.call(json!({ "call": "describe", "protocol": 9 })).unwrap_err();
    assert_eq!(code, "refused");
}

#[test]
fn every_problem_of_a_manifest_is_listed() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let elsewhere = config_map("a", "1").replace("  name: a\n", "  name: a\n  namespace: other\n");
    let unknown = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: w}\n---\n";
    let manifest = format!("{elsewhere}{unknown}");
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &manifest);
    let refusal = web.refusal();
    for part in [
        "web.yaml:1: ConfigMap a is in the namespace other, but the component's namespace is",
        "web.yaml:9: the cluster does not serve the kind Widget of example.dev/v1",
    ] {
        // The message names the object without its namespace.
        assert!(refusal.contains(part), "{refusal}");
    }

    web.set("namespace", "does-not-exist");
    web.set("manifest", config_map("a", "1"));
    assert!(web.refusal().contains("the namespace does-not-exist does not exist"));

    web.set("namespace", namespace.name.as_str());
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
                   spec: {ports: [{port: 99999}], selector: {a: b}}\n";
    web.set("manifest", service);
    let refusal = web.refusal();
    assert!(refusal.contains("spec.ports[0].port"), "{refusal}");
    assert!(!refusal.contains("99999"), "{refusal}");
}

#[test]
fn denied_and_expired_access_is_explained() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let own = fs::read_to_string(&namespace.kubeconfig).unwrap();
    let as_other = |user: &str| {
        let path = dir.path().join("other");
        let text = own.replace("user: {token:", &format!("user: {{{user} token:"));
        assert_ne!(text, own);
        fs::write(&path, text).unwrap();
        path
    };
    let manifest = config_map("a", "one");
    let kubeconfig = as_other("as: nobody,");
    let (code, message) =
        Component::new(&kubeconfig, &namespace.name, &manifest).plan().unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("RBAC"), "{message}");
    let path = dir.path().join("expired");
    let at = own.find("token:").unwrap();
    let end = at + own[at..].find('}').unwrap();
    fs::write(&path, format!("{}token: expired{}", &own[..at], &own[end..])).unwrap();
    let (code, message) = Component::new(&path, &namespace.name, &manifest).plan().unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("invalid or expired"), "{message}");
}

#[test]
fn preflight_names_missing_permissions() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let mut web = Component::new(&namespace.kubeconfig, ns, &config_map("a", "one"));
    let checks = web.preflight();
    let all = ["cluster", "inventory", "kinds", "permissions"];
    for (check, name) in checks.as_array().unwrap().iter().zip(all) {
        assert_eq!((&check["check"], &check["status"]), (&json!(name), &json!("ok")), "{check}");
    }

    // given a user who can read everything and write nothing
    let rules = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
         metadata: {{name: {ns}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {ns}}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {ns}}}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {ns}}}\n\
         rules: [{{apiGroups: ['*'], resources: ['*'], verbs: [get, list]}}]\n"
    );
    namespace.apply_as("customer", &rules);
    let own = fs::read_to_string(&namespace.kubeconfig).unwrap();
    let path = web.dir.path().join("reader");
    fs::write(&path, own.replace("user: {token:", &format!("user: {{as: {ns}, token:"))).unwrap();
    web.kubeconfig = path;
    let checks = web.preflight();
    namespace.kubectl_ok(&["delete", "clusterrole,clusterrolebinding", ns]);
    let message = |at: usize| checks[at]["message"].as_str().unwrap().to_owned();
    assert_eq!(checks[0]["status"], "ok");
    assert!(message(1).contains("stead"), "{checks}");
    assert!(message(3).contains(&format!("delete configmaps in {ns}")), "{checks}");
}

#[test]
fn preflight_names_unknown_kinds() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let check = |kinds: &[(&str, &str)]| {
        let object = |(version, kind): &(&str, &str)| {
            format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n---\n")
        };
        let manifest: String = kinds.iter().map(object).collect();
        let checks = Component::new(&namespace.kubeconfig, &namespace.name, &manifest).preflight();
        let found = checks.as_array().unwrap().iter().find(|check| check["check"] == "kinds");
        let found = found.unwrap_or_else(|| panic!("{checks}")).clone();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("message"))
    };
    let (status, message) = check(&[("apps/v1", "Deploymnt"), ("example.dev/v1", "Widget")]);
    assert_eq!(status, "failed");
    let part = "web.yaml:1: the cluster does not serve the kind Deploymnt of apps/v1";
    assert!(message.contains(part) && !message.contains("Widget"), "{message}");
    // Another component can define this kind.
    let (status, message) = check(&[("apps/v1", "Deployment"), ("example.dev/v1", "Widget")]);
    assert_eq!(status, "deferred");
    assert!(
        message.contains("web.yaml:5: the cluster does not serve the kind Widget"),
        "{message}"
    );
}

#[test]
fn one_process_refuses_an_object_of_two_components() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_cluster(dir.path());
    let mut plugin = Plugin::start(Some(&kubeconfig));
    let mut health = |component: &str| {
        plugin.call(json!({ "call": "health", "component": component, "operation": "apply",
            "inputs": { "install": "ins_1", "settings": { "namespace": "shop",
                "manifest": config_map("a", "1"), "manifest_file": format!("{component}.yaml") } },
            "source_dir": "/", "state_dir": "/", "work_dir": "/" }))
    };
    health("api").unwrap();
    let (code, message) = health("web").unwrap_err();
    assert_eq!(code, "refused");
    let part = "web.yaml:1: ConfigMap shop/a is also in the component api (api.yaml:1)";
    assert!(message.contains(part), "{message}");
}
