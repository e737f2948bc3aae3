//! Install, upgrade, drift and uninstall of a release.

use serde_json::{Value, json};

use crate::{
    cluster::{Namespace, config_map},
    plugin::{Component, changes, helm_or_skip},
};

pub const SETTINGS: (&str, &str) = (
    "templates/settings.yaml",
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  \
     color: {{ .Values.color | quote }}\n  release: {{ .Release.Name }}-{{ .Release.Revision }}\n",
);

/// Addresses of a plan without the namespace of the test.
pub fn shown(plan: &Value, namespace: &Namespace) -> Vec<String> {
    let all = changes(plan).into_iter();
    all.map(|line| line.replace(&format!("{}/", namespace.name), "")).collect()
}

#[test]
fn a_release_is_installed_upgraded_and_uninstalled() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let extra = (
        "templates/extra.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\ndata: {a: \"{{ \"{{\" }} x\"}\n",
    );
    let notes = ("templates/NOTES.txt", "Hello from {{ .Release.Name }}.\n");
    let values = ("values.yaml", "color: blue\n");
    let mut web = Component::new(&namespace, helm, &[SETTINGS, extra, notes, values]);
    web.set("values", json!({ "color": "red" }));
    let output = json!({ "kind": "ConfigMap", "name": "settings", "field": "data.color" });
    web.set("outputs", json!({ "color": output }));
    let color = || {
        let object = namespace.get("ConfigMap", "settings");
        object.map(|object| object["data"]["color"].as_str().unwrap().to_owned())
    };

    // when a release is planned, then nothing changes
    let plan = web.plan().unwrap();
    assert_eq!(
        shown(&plan, &namespace),
        ["create ConfigMap extra", "create ConfigMap settings", "create HelmRelease web"]
    );
    assert_eq!(color(), None);
    let outputs = web.execute("apply").unwrap();
    assert_eq!(
        outputs["outputs"],
        json!({ "color": "red", "release": "web", "revision": 1, "namespace": namespace.name })
    );
    assert_eq!(color().as_deref(), Some("red"));
    assert!(web.log.iter().any(|line| line == "Hello from web."), "{:?}", web.log);
    let extra = namespace.get("ConfigMap", "extra").unwrap();
    assert_eq!(extra["data"]["a"], "{{ x");

    // when the same is planned again, then only the text with the revision would change
    web.write(SETTINGS.0, &SETTINGS.1.replace("-{{ .Release.Revision }}", "-1"));
    let plan = web.plan().unwrap();
    assert_eq!(plan["noop"], true, "{plan:#}");

    // when a value changes and an object is removed
    web.set("values", json!({ "color": "green" }));
    web.remove("templates/extra.yaml");
    let plan = web.plan().unwrap();
    assert_eq!(
        shown(&plan, &namespace),
        [
            "update ConfigMap settings [data.color]",
            "delete ConfigMap extra",
            "update HelmRelease web [values]"
        ]
    );
    web.execute("apply").unwrap();
    assert_eq!((color().as_deref(), namespace.get("ConfigMap", "extra")), (Some("green"), None));

    // when another program changes a field, then the next plan finds it
    namespace.kubectl_ok(&["patch", "configmap", "settings", "--patch", "data: {color: pink}"]);
    let refused = web.refusal();
    assert!(refused.contains("data.color (kubectl-patch)"), "{refused}");
    namespace.kubectl_ok(&["delete", "configmap", "settings"]);
    assert_eq!(shown(&web.plan().unwrap(), &namespace)[0], "create ConfigMap settings");
    web.execute("apply").unwrap();

    // when it is destroyed
    let plan = web.destroy();
    assert_eq!(shown(&plan, &namespace), ["delete ConfigMap settings", "delete HelmRelease web"]);
    assert_eq!(color(), None);
    assert_eq!(
        namespace.kubectl_ok(&["get", "secrets", "--selector=owner=helm", "-o", "name"]),
        ""
    );
    assert_eq!(web.plan_for("destroy").unwrap()["noop"], true);
}

#[test]
fn removals_are_decided_again_before_the_first_effect() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let (a, b) = (config_map("a", "x"), config_map("b", "x"));
    let files = [("templates/a.yaml", a.as_str()), ("templates/b.yaml", &b)];
    let mut web = Component::new(&namespace, helm, &files);
    web.deploy();
    let take_over = |release: &str| {
        let owner = format!("meta.helm.sh/release-name={release}");
        namespace.kubectl_ok(&["annotate", "configmap", "a", &owner, "--overwrite"]);
    };
    // Another release takes an object over after the plan of an uninstall.
    web.plan_for("destroy").unwrap();
    take_over("other");
    let (code, message) = web.execute("destroy").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert!(message.contains("belongs to the Helm release"), "{message}");
    assert!(namespace.get("ConfigMap", "a").is_some() && namespace.get("ConfigMap", "b").is_some());

    // A user creates an object of the same name after the plan of an upgrade.
    take_over("web");
    web.remove("templates/b.yaml");
    web.plan().unwrap();
    namespace.kubectl_ok(&["delete", "configmap", "b"]);
    namespace.kubectl_ok(&["create", "configmap", "b"]);
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert!(message.contains("another object now has its name"), "{message}");
    assert!(namespace.get("ConfigMap", "b").is_some());
}

#[test]
fn a_namespace_with_objects_of_others_is_not_uninstalled() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let inner = format!("{}-inner", namespace.name);
    let template = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {inner}}}\n");
    let mut web = Component::new(&namespace, helm, &[("templates/inner.yaml", &template)]);
    web.deploy();
    let customer = |verb: &str| {
        namespace.kubectl_ok(&[verb, "configmap", "customer", "--namespace", &inner]);
    };
    customer("create");
    let (code, message) = web.plan_for("destroy").unwrap_err();
    assert_eq!(code, "refused", "{message}");
    assert!(message.contains(&format!("it contains ConfigMap {inner}/customer")), "{message}");
    customer("delete");
    web.plan_for("destroy").unwrap();
    customer("create");
    let (code, message) = web.execute("destroy").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    customer("delete");
    web.destroy();
    assert_eq!(namespace.get("Namespace", &inner), None);
}

#[test]
fn a_chart_creates_a_namespace_and_objects_in_it() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let inner = format!("{}-inner", namespace.name);
    let template = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {inner}}}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {inner}}}\n\
         data: {{color: red}}\n"
    );
    let mut web = Component::new(&namespace, helm, &[("templates/inner.yaml", &template)]);
    let plan = web.plan().unwrap();
    assert_eq!(
        shown(&plan, &namespace),
        [
            format!("create Namespace {inner}"),
            format!("create ConfigMap {inner}/a [known after apply]"),
            "create HelmRelease web".to_owned()
        ]
    );
    web.execute("apply").unwrap();
    let get = ["get", "configmap", "a", "--namespace", &inner, "--output=jsonpath={.data.color}"];
    assert_eq!(namespace.kubectl_ok(&get), "red");
    assert_eq!(web.plan().unwrap()["noop"], true);
    web.destroy();
    assert_eq!(namespace.get("Namespace", &inner), None);
}
