//! Objects and fields of other owners.

use std::fs;

use serde_json::json;

use crate::{
    cluster::{Namespace, config_map},
    plugin::{Component, changes},
};

#[test]
fn field_of_another_manager_blocks_the_plan_by_name() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &config_map("a", "one"));
    web.deploy();
    namespace.apply_as("operator", &config_map("a", "theirs"));
    let refusal = web.refusal();
    assert!(refusal.contains("web.yaml:1"), "{refusal}");
    assert!(refusal.contains("data.key (operator)"), "{refusal}");
    let live = namespace.get("configmap", "a").unwrap();
    assert_eq!(live["data"]["key"], "theirs", "the plugin never forces");
}

#[test]
fn existing_object_is_adopted_only_with_take_ownership() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    namespace.kubectl_ok(&["create", "configmap", "a", "--from-literal=other=kept"]);
    let mut web = Component::new(&namespace.kubeconfig, ns, &config_map("a", "one"));
    assert!(web.refusal().contains("take_ownership = true"));
    web.set("take_ownership", true);
    let plan = web.plan().unwrap();
    assert_eq!(changes(&plan), [format!("adopt ConfigMap {ns}/a [data.key]")]);
    web.execute("apply").unwrap();
    let live = namespace.get("configmap", "a").unwrap();
    assert_eq!(live["data"], json!({ "key": "one", "other": "kept" }));
    web.set("take_ownership", false);
    assert_eq!(web.plan().unwrap()["noop"], true);
}

#[test]
fn object_of_kubectl_is_adopted_with_its_fields() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let mut web = Component::new(&namespace.kubeconfig, ns, &config_map("a", "one"));
    // The fields of `a` are equal, and those of `b` differ.
    let file = web.dir.path().join("objects.yaml");
    fs::write(&file, format!("{}{}", config_map("a", "one"), config_map("b", "two"))).unwrap();
    namespace.kubectl_ok(&["apply", "--filename", file.to_str().unwrap()]);
    let manifest = |value: &str| format!("{}{}", config_map("a", value), config_map("b", value));
    web.set("manifest", manifest("one"));
    web.set("take_ownership", true);
    let plan = web.plan().unwrap();
    let taken = "takes over fields of kubectl-client-side-apply";
    assert_eq!(
        changes(&plan),
        [
            format!("adopt ConfigMap {ns}/a [{taken}]"),
            format!("adopt ConfigMap {ns}/b [data.key, {taken}]"),
        ]
    );
    web.execute("apply").unwrap();
    web.set("take_ownership", false);
    assert_eq!(web.plan().unwrap()["noop"], true);
    web.set("manifest", manifest("three"));
    web.deploy();
    for name in ["a", "b"] {
        assert_eq!(namespace.get("configmap", name).unwrap()["data"], json!({ "key": "three" }));
    }
    // A field of kubectl that changes later is a conflict.
    namespace.kubectl_ok(&["patch", "configmap", "a", "-p", r#"{"data":{"key":"theirs"}}"#]);
    assert!(web.refusal().contains("data.key (kubectl-patch)"));
}

#[test]
fn objects_of_other_owners_are_refused_by_name() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let mut first = Component::new(&namespace.kubeconfig, ns, &config_map("a", "one"));
    first.deploy();
    let helm = config_map("b", "one").replace(
        "  name: b\n",
        "  name: b\n  labels: {app.kubernetes.io/managed-by: Helm}\n  annotations: \
         {meta.helm.sh/release-name: shop, meta.helm.sh/release-namespace: prod}\n",
    );
    namespace.apply_as("helm", &helm);
    let set = config_map("c", "one")
        .replace("  name: c\n", "  name: c\n  labels: {applyset.kubernetes.io/part-of: set-1}\n");
    namespace.apply_as("kubectl-set", &set);
    let manifest: String = ["a", "b", "c"].map(|name| config_map(name, "two")).concat();
    let mut second = Component::new(&namespace.kubeconfig, ns, &manifest);
    second.set("take_ownership", true);
    let refusal = second.refusal();
    let owner = format!("the Stead component {}/web", first.install);
    for part in [owner.as_str(), "the Helm release prod/shop", "the ApplySet set-1"] {
        assert!(refusal.contains(part), "{refusal}");
    }
}

#[test]
fn object_that_moved_to_another_owner_is_not_pruned() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let both = format!("{}{}", config_map("a", "one"), config_map("b", "one"));
    let mut web = Component::new(&namespace.kubeconfig, ns, &both);
    web.deploy();
    namespace.kubectl_ok(&["annotate", "configmap", "b", "meta.helm.sh/release-name=shop"]);
    web.set("manifest", config_map("a", "one"));
    let plan = web.plan().unwrap();
    let stays = "[stays: it now belongs to the Helm release shop]";
    assert_eq!(changes(&plan), [format!("forget ConfigMap {ns}/b {stays}")]);
    web.execute("apply").unwrap();
    assert!(namespace.get("configmap", "b").is_some());
    assert_eq!(web.plan().unwrap()["noop"], true);
}
