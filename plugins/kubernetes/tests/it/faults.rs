//! Crashes, cancels, changes between plan and apply, and objects that do not become ready.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    cluster::{Namespace, config_map, deployment},
    plugin::{Component, Plugin, changes},
};

/// ConfigMaps in waves, so that an apply has many separate effects.
fn waves(count: u32) -> String {
    let one = |at: u32| {
        let name = format!("c{at}");
        let wave = format!("  name: {name}\n  annotations: {{stead.dev/wave: \"{at}\"}}\n");
        config_map(&name, "one").replace(&format!("  name: {name}\n"), &wave)
    };
    (0..count).map(one).collect()
}

#[test]
fn killed_apply_is_completed_by_the_next_plan() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &waves(20));
    web.plan().unwrap();
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(Some(&namespace.kubeconfig));
    plugin.send(call);
    plugin.until_log("/c2");
    plugin.kill();
    assert!(namespace.get("configmap", "c2").is_some());
    assert!(namespace.get("configmap", "c19").is_none(), "the kill came too late");

    // The plan of the killed apply never runs again.
    let state = web.state();
    assert!(state["serial"].as_u64() >= Some(1), "{state}");
    let (code, _) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale");

    let plan = web.plan().unwrap();
    assert!(plan["add"].as_u64().unwrap() >= 1);
    web.execute("apply").unwrap();
    assert!(namespace.get("configmap", "c19").is_some());
    assert_eq!(web.plan().unwrap()["noop"], true);
    web.destroy();
    assert!(namespace.get("configmap", "c0").is_none());
}

#[test]
fn change_between_plan_and_apply_makes_the_plan_stale() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let both = format!("{}{}", config_map("a", "one"), config_map("b", "one"));
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &both);
    web.deploy();
    web.set("manifest", both.replace("one", "two"));
    web.plan().unwrap();
    let state = web.state();
    namespace.kubectl_ok(&["patch", "configmap", "b", "-p", r#"{"data":{"key":"theirs"}}"#]);
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale");
    assert!(message.contains("/b has fields of other managers: data.key"), "{message}");
    assert_eq!(namespace.get("configmap", "a").unwrap()["data"]["key"], "one");
    assert_eq!(web.state(), state, "a stale plan changes nothing");

    // Fields of others do not concern the plan.
    namespace.kubectl_ok(&["delete", "configmap", "b"]);
    web.plan().unwrap();
    namespace.kubectl_ok(&["patch", "configmap", "a", "-p", r#"{"data":{"more":"x"}}"#]);
    web.execute("apply").unwrap();
    let live = namespace.get("configmap", "a").unwrap();
    assert_eq!(live["data"], json!({ "key": "two", "more": "x" }));

    // A deleted object makes the plan stale, too.
    web.set("manifest", both.replace("one", "three"));
    web.plan().unwrap();
    namespace.kubectl_ok(&["delete", "configmap", "a"]);
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
}

#[test]
fn plan_of_another_cluster_is_stale() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &config_map("a", "one"));
    web.plan().unwrap();
    let mut plan: Value = serde_json::from_slice(&fs::read(web.plan_file()).unwrap()).unwrap();
    plan["cluster"] = json!("another");
    fs::write(web.plan_file(), plan.to_string()).unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale");
    assert!(message.contains("another cluster"), "{message}");
    assert!(namespace.get("configmap", "a").is_none());
}

#[test]
fn object_that_is_not_ready_in_time_is_named_and_planned_again() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    // The next plan names only the object that is not ready.
    let manifest = format!("{}{}", config_map("a", "one"), deployment("web", 1, false));
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest);
    web.set("ready_timeout_ms", 4000);
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed");
    let part = format!("Deployment.apps {ns}/web: 0 of 1 replicas are available");
    assert!(message.contains(&part), "{message}");
    let plan = web.plan().unwrap();
    let pending = format!("update Deployment.apps {ns}/web [not ready after the last apply]");
    assert_eq!((changes(&plan), &plan["noop"]), (vec![pending], &json!(false)));
}

#[test]
fn cancel_ends_a_wait() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let manifest = deployment("web", 1, false);
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &manifest);
    web.plan().unwrap();
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(Some(&namespace.kubeconfig));
    let id = plugin.send(call);
    plugin.until_log("waiting for Deployment.apps");
    let cancelled = Instant::now();
    plugin.send(json!({ "call": "cancel", "of": id }));
    let (code, _) = plugin.result(id).unwrap_err();
    assert_eq!(code, "cancelled");
    assert!(cancelled.elapsed() < Duration::from_secs(5));
    assert!(web.state()["serial"].as_u64() >= Some(1));
}

#[test]
fn destroy_names_objects_with_finalizers() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let held = config_map("held", "one")
        .replace("  name: held\n", "  name: held\n  finalizers: [example.dev/hold]\n");
    let manifest = format!("{held}{}", config_map("free", "one"));
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest);
    web.deploy();
    web.set("ready_timeout_ms", 2000);
    web.plan_for("destroy").unwrap();
    let (code, message) = web.execute("destroy").unwrap_err();
    assert_eq!(code, "failed");
    let part = format!("ConfigMap {ns}/held is still being deleted (finalizers: example.dev/hold)");
    assert!(message.contains(&part), "{message}");
    assert!(namespace.get("configmap", "free").is_none());

    namespace.kubectl_ok(&[
        "patch",
        "configmap",
        "held",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    let plan = web.plan_for("destroy").unwrap();
    web.execute("destroy").unwrap();
    assert!(namespace.get("configmap", "held").is_none(), "{plan}");
}

#[test]
fn end_of_input_ends_the_plugin() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let manifest = deployment("web", 1, false);
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &manifest);
    web.plan().unwrap();
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(Some(&namespace.kubeconfig));
    plugin.send(call);
    plugin.until_log("waiting for Deployment.apps");
    let closed = Instant::now();
    plugin.close();
    assert!(closed.elapsed() < Duration::from_secs(5));
}
