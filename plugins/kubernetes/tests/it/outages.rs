//! Failures of the cluster in the middle of an apply: what is shown, what is left, and what the next
//! plan does.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    cluster::{Namespace, config_map},
    double::{ApiServer, error},
    plugin::{Component, changes},
};

fn three() -> String {
    ["a", "b", "c"].map(|name| config_map(name, "one")).concat()
}

/// A dry run counts each object alone, so only the apply meets the quota.
#[test]
fn quota_stops_the_apply_and_the_next_plan_completes_it() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    namespace.kubectl_ok(&["create", "quota", "small", "--hard=count/configmaps=2"]);
    let mut web = Component::new(&namespace.kubeconfig, ns, &three());
    // The controller of quotas counts the ConfigMap of the namespace first.
    let limit = Instant::now() + Duration::from_secs(60);
    let get = ["get", "quota", "small", "--output", "jsonpath={.status.used}"];
    while !namespace.kubectl_ok(&get).contains(":\"1\"") {
        assert!(Instant::now() < limit, "the quota counts no ConfigMap");
        std::thread::sleep(Duration::from_millis(100));
    }

    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed");
    assert!(
        message.contains("ConfigMap") && message.contains("exceeded quota: small"),
        "{message}"
    );
    let left = ["a", "b", "c"].iter().filter(|name| namespace.get("configmap", name).is_some());
    assert_eq!(left.count(), 1);

    namespace.kubectl_ok(&["delete", "quota", "small"]);
    let plan = web.plan().unwrap();
    assert_eq!(plan["add"], 2, "{plan:#}");
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);
}

#[test]
fn namespace_in_termination_blocks_the_plan() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let held = config_map("held", "one")
        .replace("  name: held\n", "  name: held\n  finalizers: [example.dev/hold]\n");
    namespace.apply_as("other", &held);
    namespace.kubectl_ok(&["delete", "namespace", &namespace.name, "--wait=false"]);
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &three());
    let (code, message) = web.plan().unwrap_err();
    assert_eq!(code, "refused");
    assert!(message.contains("is being terminated"), "{message}");
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    namespace.kubectl_ok(&["patch", "configmap", "held", "--patch", patch]);
}

/// Returns a component on a double, and the switch that lets the double reject its token from the
/// second change on.
fn with_expiring_token(dir: &Path) -> (Component, Arc<AtomicBool>) {
    let (is_expired, changes) = (Arc::new(AtomicBool::new(false)), AtomicU32::new(0));
    let expires = Arc::clone(&is_expired);
    let server = ApiServer::start(move |request, _| {
        let is_change = request.method == "PATCH" && !request.query.contains("dryRun");
        let count = changes.fetch_add(u32::from(is_change), Ordering::SeqCst);
        let is_rejected = expires.load(Ordering::SeqCst) && count >= 1;
        is_rejected.then(|| error(401, "Unauthorized", "Unauthorized"))
    });
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n";
    let manifest = format!("{namespace}{}", config_map("a", "one"));
    (Component::new(&server.kubeconfig(dir), "shop", &manifest), is_expired)
}

#[test]
fn token_that_expires_in_the_middle_fails_the_apply_and_the_next_plan_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut web, is_expired) = with_expiring_token(dir.path());
    assert_eq!(web.plan().unwrap()["add"], 2);
    is_expired.store(true, Ordering::SeqCst);
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("invalid or expired"), "{message}");
    is_expired.store(false, Ordering::SeqCst);
    let plan = web.plan().unwrap();
    assert_eq!(changes(&plan).last().map(|line| line.contains("ConfigMap")), Some(true), "{plan}");
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);
}

#[test]
fn busy_server_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut left = 2;
    let server = ApiServer::start(move |request, _| {
        let is_apply = request.method == "PATCH" && left > 0;
        left -= u32::from(is_apply);
        is_apply.then(|| error(429, "TooManyRequests", "slow down"))
    });
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n";
    let manifest = format!("{namespace}{}", config_map("a", "one"));
    let mut web = Component::new(&server.kubeconfig(dir.path()), "shop", &manifest);
    assert_eq!(web.plan().unwrap()["add"], 2);
    web.execute("apply").unwrap();
}
