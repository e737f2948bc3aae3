//! Install, upgrade, drift and uninstall of a release.

use serde_json::{Value, json};

use crate::{
    cluster::Namespace,
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
