//! Releases that belong to another component.

use std::{fmt::Write as _, fs};

use crate::{
    cluster::{Namespace, config_map},
    plugin::{Component, helm_or_skip},
};

/// Starts with the release of another component. The second one would adopt it.
fn second() -> Option<(Namespace, Component)> {
    let (helm, namespace) = (helm_or_skip()?, Namespace::create_or_skip()?);
    let files = [("templates/a.yaml", &*config_map("a", "x"))];
    Component::new(&namespace, helm.clone(), &files).deploy();
    let mut second = Component::new(&namespace, helm, &files);
    second.name = "second".into();
    second.set("take_ownership", true);
    Some((namespace, second))
}

#[test]
fn the_owner_is_found_among_many_inventories() {
    let Some((namespace, mut second)) = second() else { return };
    // Secrets of more than one page, before the inventory in the order of names
    let mut secrets = String::new();
    for at in 0..60 {
        write!(
            secrets,
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a-{}-{at}\n  namespace: stead\n  \
             labels: {{test: {}}}\n---\n",
            namespace.name, namespace.name
        )
        .unwrap();
    }
    let file = second.dir.path().join("secrets.yaml");
    fs::write(&file, secrets).unwrap();
    namespace.kubectl_ok(&["create", "--namespace=stead", "--filename", file.to_str().unwrap()]);
    let refused = second.plan();
    let selector = format!("--selector=test={}", namespace.name);
    namespace.kubectl_ok(&["delete", "secrets", "--namespace=stead", &selector]);
    let (code, message) = refused.unwrap_err();
    assert_eq!(code, "refused", "{message}");
    assert!(message.contains("belongs to the Stead component"), "{message}");
}

#[test]
fn without_the_right_to_list_inventories_no_release_is_adopted() {
    let Some((namespace, mut second)) = second() else { return };
    let ns = &namespace.name;
    let subject = format!(
        "subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {ns}}}]\n---\n"
    );
    let rules = |kind: &str, name: &str, verbs: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n\
             rules: [{{apiGroups: ['*'], resources: ['*'], verbs: {verbs}}}]\n---\n"
        )
    };
    let binding = |kind: &str, role: &str, name: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role}, name: {name}}}\n{subject}"
        )
    };
    let all = [
        rules("ClusterRole", ns, "[get, create, update, patch, delete]"),
        binding("ClusterRoleBinding", "ClusterRole", ns),
        rules("Role", "all", "['*']"),
        binding("RoleBinding", "Role", "all"),
    ];
    namespace.apply_as("customer", &all.concat());
    let own = fs::read_to_string(&namespace.kubeconfig).unwrap();
    let path = second.dir.path().join("limited");
    fs::write(&path, own.replace("user: {token:", &format!("user: {{as: {ns}, token:"))).unwrap();
    second.kubeconfig = path;
    let adopting = second.plan();
    second.set("take_ownership", false);
    let existing = second.plan();
    namespace.kubectl_ok(&["delete", "clusterrole,clusterrolebinding", ns]);
    let (code, message) = adopting.unwrap_err();
    assert_eq!(code, "failed", "{message}");
    assert!(message.contains("RBAC denies list on secrets in stead; allow it"), "{message}");
    let (code, message) = existing.unwrap_err();
    assert_eq!(code, "refused", "{message}");
    assert!(message.contains("this component did not create it"), "{message}");
}
