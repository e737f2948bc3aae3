//! Responses of an API server that the test cluster cannot return, from a double.

use serde_json::json;

use crate::{
    cluster::config_map,
    double::{ApiServer, error},
    plugin::{Component, changes},
};

const SHOP: &str = "/api/v1/namespaces/shop";

fn shop(kubeconfig: &std::path::Path) -> Component {
    Component::new(kubeconfig, "shop", &manifest("one"))
}

fn manifest(value: &str) -> String {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n";
    format!("{namespace}{}", config_map("a", value))
}

#[test]
fn overloaded_server_is_asked_again_a_few_times() {
    let dir = tempfile::tempdir().unwrap();
    let mut left = 2;
    let server = ApiServer::start(move |request, _| {
        let is_read = request.path.contains("/namespaces/stead/secrets/") && left > 0;
        left -= u32::from(is_read);
        is_read.then(|| error(503, "ServiceUnavailable", "the server is overloaded"))
    });
    let mut web = shop(&server.kubeconfig(dir.path()));
    assert_eq!(web.state(), json!({ "serial": 0 }));

    let server = ApiServer::start(|request, _| {
        let is_read = request.path.contains("kube-system");
        is_read.then(|| error(503, "ServiceUnavailable", "the server is overloaded"))
    });
    let mut web = shop(&server.kubeconfig(dir.path()));
    let (code, message) = web.plan().unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("the server is overloaded"), "{message}");
    let attempts = server.count("GET /api/v1/namespaces/kube-system");
    assert!((2..=6).contains(&attempts), "{attempts}");
}

#[test]
fn inventory_write_with_a_lost_response_is_no_foreign_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut is_first = true;
    let server = ApiServer::start(move |request, objects| {
        let is_write = request.method == "PUT" && std::mem::take(&mut is_first);
        if !is_write {
            is_first &= request.method != "PUT";
            return None;
        }
        let mut stored = request.body.clone();
        stored["metadata"]["resourceVersion"] = json!("77");
        objects.insert(request.path.clone(), stored);
        Some(error(504, "Timeout", "request did not complete within the allotted timeout"))
    });
    let mut web = shop(&server.kubeconfig(dir.path()));
    web.plan().unwrap();
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);
}

#[test]
fn foreign_write_before_the_first_effect_makes_the_plan_stale() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(|request, _| {
        let is_write = request.method == "POST" && request.path.ends_with("/stead/secrets");
        is_write.then(|| error(409, "AlreadyExists", "the object exists"))
    });
    let mut web = shop(&server.kubeconfig(dir.path()));
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert_eq!(server.count(&format!("PATCH {SHOP}/configmaps")), 0, "no effect");
}

#[test]
fn object_that_changed_after_the_check_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    // Another program changes the object before the first update, and takes it before the second.
    let mut updates = 0;
    let server = ApiServer::start(move |request, objects| {
        let is_update = request.method == "PATCH" && !request.query.contains("dryRun");
        request.body["metadata"]["resourceVersion"].as_str().filter(|_| is_update)?;
        updates += 1;
        let live = objects.get_mut(&request.path).unwrap();
        live["metadata"]["resourceVersion"] = json!("77");
        if updates == 2 {
            live["metadata"]["annotations"] = json!({ "meta.helm.sh/release-name": "shop" });
        }
        Some(error(409, "Conflict", "the object has been modified"))
    });
    let mut web = shop(&server.kubeconfig(dir.path()));
    web.deploy();
    web.set("manifest", manifest("two"));
    web.deploy();
    assert_eq!(web.plan().unwrap()["noop"], true);

    web.set("manifest", manifest("three"));
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed", "{message}");
    assert!(message.contains("now belongs to the Helm release shop; plan again"), "{message}");
}

#[test]
fn aggregated_api_that_is_down_keeps_only_the_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(|request, _| match request.path.as_str() {
        "/apis" => Some((
            200,
            json!({ "groups": [{ "name": "metrics.k8s.io",
                "versions": [{ "groupVersion": "metrics.k8s.io/v1beta1" }] }] }),
        )),
        "/apis/metrics.k8s.io/v1beta1" => {
            Some(error(503, "ServiceUnavailable", "the server is unable to handle the request"))
        }
        _ => None,
    });
    let mut web = shop(&server.kubeconfig(dir.path()));
    web.deploy();
    let plan = web.destroy();
    let changes = changes(&plan);
    assert_eq!(changes[0], "delete ConfigMap shop/a");
    let stays = "forget Namespace shop [stays: cannot verify that it is empty: cannot read the \
                 kinds of metrics.k8s.io/v1beta1";
    assert!(changes[1].starts_with(stays), "{changes:?}");
    assert_eq!(server.count(&format!("DELETE {SHOP}/configmaps/a")), 1);
}

#[test]
fn inventory_in_a_manifest_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(|_, _| None);
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: inventory-x}\n";
    let mut web = Component::new(&server.kubeconfig(dir.path()), "stead", secret);
    let refusal = web.refusal();
    assert!(refusal.contains("Secret stead/inventory-x is in the namespace stead"), "{refusal}");
}

#[test]
fn value_of_a_secret_is_in_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start(|request, _| {
        let is_apply = request.method == "PATCH" && request.path.contains("/secrets/");
        is_apply.then(|| {
            let message = "admission webhook \"policy\" denied the request: hunter2 is too weak";
            error(403, "Forbidden", message)
        })
    });
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {a: hunter2}\n";
    let kubeconfig = server.kubeconfig(dir.path());
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n";
    let mut web = Component::new(&kubeconfig, "shop", namespace);
    web.deploy();
    web.set("manifest", format!("{namespace}{secret}"));
    let refusal = web.refusal();
    assert!(refusal.contains("Forbidden (403)") && !refusal.contains("hunter2"), "{refusal}");
    assert!(!format!("{:?}", web.log).contains("hunter2"));
}
