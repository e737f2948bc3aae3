//! Deploys, changes and teardowns.

use std::fs;

use serde_json::json;

use crate::{
    cluster::{Namespace, config_map, deployment},
    plugin::{Component, changes},
};

#[test]
fn component_is_created_changed_and_destroyed() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  \
                   selector: {app: web}\n  ports: [{port: 80}]\n---\n";
    let manifest = |value: &str, replicas| {
        format!("{}{}{service}", deployment("web", replicas, true), config_map("settings", value))
    };
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest("one", 1));
    web.set(
        "outputs",
        json!({
            "address": { "kind": "Service", "name": "web", "field": "spec.clusterIP" },
            "image": { "kind": "Deployment", "name": "web",
                       "field": "spec.template.spec.containers[0].image" },
        }),
    );
    assert_eq!(web.state(), json!({ "serial": 0 }));

    let plan = web.plan().unwrap();
    let created = [
        format!("create ConfigMap {ns}/settings"),
        format!("create Service {ns}/web"),
        format!("create Deployment.apps {ns}/web"),
    ];
    assert_eq!(changes(&plan), created);
    assert_eq!((&plan["noop"], &plan["add"]), (&json!(false), &json!(3)));
    assert!(namespace.get("configmap", "settings").is_none(), "a plan changes nothing");
    assert_eq!(web.state(), json!({ "serial": 0 }));

    let outputs = web.execute("apply").unwrap();
    assert_eq!(outputs["outputs"]["image"], "localhost/busybox:1");
    assert!(outputs["outputs"]["address"].as_str().unwrap().contains('.'));
    let live = namespace.get("deployment", "web").unwrap();
    assert_eq!(live["status"]["readyReplicas"], 1, "the apply waits for the pod");
    let state = web.state();
    assert!(state["serial"].as_u64() >= Some(1), "{state}");

    let plan = web.plan().unwrap();
    assert_eq!((changes(&plan), &plan["noop"]), (vec![], &json!(true)));

    web.set("manifest", manifest("two", 2));
    let plan = web.plan().unwrap();
    let updated = [
        format!("update ConfigMap {ns}/settings [data.key]"),
        format!("update Deployment.apps {ns}/web [spec.replicas]"),
    ];
    assert_eq!(changes(&plan), updated);
    web.execute("apply").unwrap();
    assert_eq!(namespace.get("configmap", "settings").unwrap()["data"]["key"], "two");
    let after = web.state();
    assert_eq!(after["lineage"], state["lineage"]);
    assert!(after["serial"].as_u64() > state["serial"].as_u64(), "{after}");

    let plan = web.destroy();
    assert_eq!((&plan["destroy"], plan["resources"].as_array().unwrap().len()), (&json!(3), 3));
    for (kind, name) in [("configmap", "settings"), ("service", "web"), ("deployment", "web")] {
        assert!(namespace.get(kind, name).is_none(), "{kind} {name}");
    }
    assert_eq!(namespace.kubectl_ok(&["get", "pods", "--output", "name"]), "");
    assert_eq!(web.state()["lineage"], state["lineage"], "the state outlives the objects");
}

#[test]
fn pruning_follows_readiness_and_keeps_protected_objects() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let volume = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: NS-data}\nspec:\n  \
                  capacity: {storage: 1Mi}\n  accessModes: [ReadWriteOnce]\n  \
                  storageClassName: NS\n  hostPath: {path: /tmp}\n---\n\
                  apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  \
                  accessModes: [ReadWriteOnce]\n  storageClassName: NS\n  \
                  resources: {requests: {storage: 1Mi}}\n---\n"
        .replace("NS", ns);
    let first = format!("{}{volume}", config_map("old", "one"));
    let mut web = Component::new(&namespace.kubeconfig, ns, &first);
    web.deploy();

    web.set("manifest", format!("{}{}", config_map("new", "one"), deployment("web", 1, true)));
    let plan = web.plan().unwrap();
    assert_eq!(
        changes(&plan),
        [
            format!("create ConfigMap {ns}/new"),
            format!("create Deployment.apps {ns}/web"),
            format!(
                "forget PersistentVolumeClaim {ns}/data \
                 [stays: a PersistentVolumeClaim is never pruned]"
            ),
            format!(
                "forget PersistentVolume {ns}-data [stays: a PersistentVolume is never pruned]"
            ),
            format!("delete ConfigMap {ns}/old"),
        ]
    );
    web.execute("apply").unwrap();
    let at = |part: &str| {
        let found = web.log.iter().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no {part}: {:?}", web.log))
    };
    let pruned = at(&format!("deleted ConfigMap {ns}/old"));
    assert!(at(&format!("Deployment.apps {ns}/web is ready")) < pruned);
    assert!(namespace.get("configmap", "old").is_none());
    assert!(namespace.get("pvc", "data").is_some());
    assert!(web.plan().unwrap()["noop"] == true);
    namespace.kubectl_ok(&["delete", "pvc", "data", "--wait=false"]);
    namespace.kubectl_ok(&["delete", "pv", &format!("{ns}-data"), "--wait=false"]);
}

#[test]
fn definition_and_its_object_are_one_component() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let group = format!("{ns}.example.dev");
    let definition = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: widgets.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  \
         names: {{kind: Widget, plural: widgets, singular: widget}}\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        properties:\n          spec:\n            type: object\n            \
         properties: {{size: {{type: integer}}}}\n---\n"
    );
    let widget = |name: &str, size: u32| {
        format!(
            "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: {name}}}\n\
             spec: {{size: {size}}}\n---\n"
        )
    };
    let own_namespace =
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {ns}-own}}\n---\n");
    let manifest = format!("{}{definition}{own_namespace}", widget("a", 1));
    let mut web = Component::new(&namespace.kubeconfig, &format!("{ns}-own"), &manifest);
    let plan = web.plan().unwrap();
    let definition_address =
        format!("CustomResourceDefinition.apiextensions.k8s.io widgets.{group}");
    assert_eq!(
        changes(&plan),
        [
            format!("create Namespace {ns}-own"),
            format!("create {definition_address}"),
            format!("create Widget.{group} {ns}-own/a [known after apply]"),
        ]
    );
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);

    web.set("manifest", format!("{}{definition}{own_namespace}", widget("a", 2)));
    let plan = web.plan().unwrap();
    assert_eq!(changes(&plan), [format!("update Widget.{group} {ns}-own/a [spec.size]")]);
    web.execute("apply").unwrap();

    // An object of another owner prevents the deletion of the definition and the namespace.
    namespace.kubectl_ok(&["create", "configmap", "foreign", "--namespace", &format!("{ns}-own")]);
    namespace.apply_as("kubectl", &widget("b", 1));
    let plan = web.destroy();
    assert_eq!(
        changes(&plan),
        [
            format!("delete Widget.{group} {ns}-own/a"),
            format!("forget {definition_address} [stays: it contains Widget.{group} {ns}/b]"),
            format!("forget Namespace {ns}-own [stays: it contains ConfigMap {ns}-own/foreign]"),
        ]
    );
    assert!(namespace.get("crd", &format!("widgets.{group}")).is_some());
    namespace.kubectl_ok(&["delete", "crd", &format!("widgets.{group}"), "--wait=false"]);
    namespace.kubectl_ok(&["delete", "namespace", &format!("{ns}-own"), "--wait=false"]);
}

#[test]
fn immutable_field_replaces_a_job() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let job = |argument: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: seed}}\nspec:\n  template:\n    \
             spec:\n      restartPolicy: Never\n      containers:\n      - name: seed\n        \
             image: localhost/busybox:1\n        command: [echo, {argument}]\n"
        )
    };
    let mut web = Component::new(&namespace.kubeconfig, ns, &job("one"));
    web.deploy();
    assert_eq!(web.plan().unwrap()["noop"], true);
    let uid = namespace.get("job", "seed").unwrap()["metadata"]["uid"].clone();
    web.set("manifest", job("two"));
    let plan = web.plan().unwrap();
    assert_eq!(changes(&plan), [format!("replace Job.batch {ns}/seed [spec.template]")]);
    assert_eq!((&plan["add"], &plan["destroy"]), (&json!(1), &json!(1)));
    web.execute("apply").unwrap();
    assert_ne!(namespace.get("job", "seed").unwrap()["metadata"]["uid"], uid);
}

#[test]
fn values_of_secrets_appear_in_no_plan_output_or_log() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let secret = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: db}}\nstringData: {{password: {value}}}\n"
        )
    };
    let mut web = Component::new(&namespace.kubeconfig, ns, &secret("hunter2-first"));
    let field = json!({ "kind": "Secret", "name": "db", "field": "data.password" });
    web.set("outputs", json!({ "password": field }));
    let outputs = web.deploy();
    assert_eq!(outputs, json!({ "outputs": {}, "withheld": ["password"] }));
    assert_eq!(web.plan().unwrap()["noop"], true);
    web.set("manifest", secret("hunter2-second"));
    let plan = web.plan().unwrap();
    assert_eq!(changes(&plan), [format!("update Secret {ns}/db [data.password]")]);
    web.execute("apply").unwrap();
    assert!(!format!("{plan}{:?}", web.log).contains("hunter2"));
}

#[test]
fn kustomization_is_built_with_its_patches_and_rendered_files() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let mut web = Component::new(&namespace.kubeconfig, ns, "");
    let base = web.dir.path().join("source/base");
    fs::create_dir(&base).unwrap();
    let kustomization = "namePrefix: {{ .nuon.install.name }}-\nresources: [settings.yaml]\n";
    fs::write(base.join("kustomization.yaml"), kustomization).unwrap();
    fs::write(base.join("settings.yaml"), config_map("settings", "one")).unwrap();
    let patch =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: acme-settings}\ndata: {more: x}\n";
    web.settings = json!({ "namespace": ns, "kustomize": {
        "path": "./base", "patches": [patch],
        "files": { "base/kustomization.yaml": "namePrefix: acme-\nresources: [settings.yaml]\n" },
    } });
    let plan = web.plan().unwrap();
    assert_eq!(changes(&plan), [format!("create ConfigMap {ns}/acme-settings")]);
    web.execute("apply").unwrap();
    let live = namespace.get("configmap", "acme-settings").unwrap();
    assert_eq!(live["data"], json!({ "key": "one", "more": "x" }));

    web.settings["kustomize"]["path"] = json!("../base");
    assert!(web.refusal().contains("leaves the component's source"));
    web.settings["kustomize"]["path"] = json!("./missing");
    assert!(web.refusal().contains("has no directory ./missing"));
}
