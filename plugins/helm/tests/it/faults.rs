//! Applies that are killed, and releases of other programs.

use std::{fs, process::Command};

use serde_json::json;

use crate::{
    cluster::{Namespace, config_map, deployment},
    plugin::{Component, Plugin, changes, helm_or_skip, search_path},
};

/// Starts the apply of the last plan, and kills it while Helm waits.
fn kill_during_apply(web: &mut Component) {
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(&web.helm, Some(&web.kubeconfig));
    plugin.call(json!({ "call": "describe", "protocol": 1 })).unwrap();
    plugin.send(call);
    plugin.until_log("waiting for Deployment");
    plugin.kill();
}

#[test]
fn a_killed_apply_is_completed_by_the_next_plan() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let files = [("templates/web.yaml", &*deployment("web", 1, false))];
    let mut web = Component::new(&namespace, helm, &files);
    let status = || {
        let args = ["get", "secrets", "--selector=owner=helm", "--output"];
        let args = [&args[..], &["jsonpath={.items[*].metadata.labels.status}"]].concat();
        namespace.kubectl_ok(&args)
    };
    // a killed install
    web.plan().unwrap();
    kill_during_apply(&mut web);
    assert_eq!(status(), "pending-install");
    web.write("templates/web.yaml", &deployment("web", 1, true));
    let plan = web.plan().unwrap();
    let last = changes(&plan).pop().unwrap();
    assert!(last.contains("removes the record of revision 1 (pending-install)"), "{last}");
    web.execute("apply").unwrap();
    assert_eq!((status().as_str(), web.plan().unwrap()["noop"].clone()), ("deployed", true.into()));

    // a killed upgrade, with an object that only the killed one had
    web.write("templates/web.yaml", &deployment("web", 1, false));
    web.write("templates/left.yaml", &config_map("left", "x"));
    web.plan().unwrap();
    kill_during_apply(&mut web);
    assert_eq!(status(), "deployed pending-upgrade");
    web.write("templates/web.yaml", &deployment("web", 1, true));
    web.remove("templates/left.yaml");
    let plan = web.plan().unwrap();
    let lines = changes(&plan);
    assert!(lines.iter().any(|line| line.starts_with("delete ConfigMap")), "{lines:?}");
    let last = lines.last().unwrap();
    assert!(last.contains("removes the record of revision 2 (pending-upgrade)"), "{last}");
    web.execute("apply").unwrap();
    assert_eq!(
        (status().as_str(), namespace.get("ConfigMap", "left")),
        ("superseded deployed", None)
    );
    assert_eq!(web.plan().unwrap()["noop"], true);
    web.destroy();
    assert_eq!(status(), "");
}

#[test]
fn an_uninstall_follows_the_newest_revision() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let keep = "name: kept\n  annotations: {helm.sh/resource-policy: keep}\n";
    let kept = config_map("kept", "x").replace("name: kept\n", keep);
    let web = deployment("web", 1, true);
    let files = [("templates/web.yaml", web.as_str()), ("templates/kept.yaml", kept.as_str())];
    let mut web = Component::new(&namespace, helm, &files);
    web.deploy();
    let lines = changes(&web.plan_for("destroy").unwrap());
    assert!(lines.iter().any(|line| line.starts_with("forget ConfigMap")), "{lines:?}");
    // The revision of a killed upgrade no longer keeps the object.
    web.write("templates/web.yaml", &deployment("web", 1, false));
    web.write("templates/kept.yaml", &config_map("kept", "x"));
    web.plan().unwrap();
    kill_during_apply(&mut web);
    let plan = web.destroy();
    let lines = changes(&plan);
    assert!(lines.iter().any(|line| line.starts_with("delete ConfigMap")), "{lines:?}");
    assert_eq!(namespace.get("ConfigMap", "kept"), None);
}

#[test]
fn releases_and_objects_of_others_are_refused_or_adopted() {
    let (Some(helm), Some(namespace)) = (helm_or_skip(), Namespace::create_or_skip()) else {
        return;
    };
    let files = [("templates/a.yaml", &*config_map("a", "x"))];
    let mut web = Component::new(&namespace, helm.clone(), &files);
    let kubeconfig = namespace.kubeconfig.to_str().unwrap();
    let chart = web.dir.path().join("source");
    let install = |name: &str| {
        let mut command = Command::new(&helm);
        command.args(["install", name, chart.to_str().unwrap(), "--namespace", &namespace.name]);
        let output = command.args(["--kubeconfig", kubeconfig]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // an object of another release
    install("other");
    let refused = web.refusal();
    assert!(refused.contains("belongs to the Helm release"), "{refused}");
    let mut uninstall = Command::new(&helm);
    uninstall.args(["uninstall", "other", "--namespace", &namespace.name]);
    assert!(uninstall.args(["--kubeconfig", kubeconfig]).status().unwrap().success());

    // an object without an owner
    namespace.apply_as("test", &config_map("a", "x"));
    let refused = web.refusal();
    assert!(refused.contains("set take_ownership = true"), "{refused}");
    web.set("take_ownership", true);
    let plan = web.plan().unwrap();
    assert!(changes(&plan)[0].starts_with("adopt ConfigMap"), "{plan:#}");
    web.execute("apply").unwrap();

    // the release of another component
    let mut second = Component::new(&namespace, helm, &files);
    second.name = "second".into();
    second.set("take_ownership", true);
    let refused = second.refusal();
    assert!(refused.contains("belongs to the Stead component"), "{refused}");
    // another name of the release would leave the first one behind
    web.set("release", "renamed");
    let refused = web.refusal();
    assert!(refused.contains("restore chart_name"), "{refused}");
}

/// A program that is named `helm` and reports another version.
#[test]
fn an_old_helm_is_named_by_the_preflight() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let double = dir.path().join("helm");
    fs::write(&double, "#!/bin/sh\necho v3.9.4+gdbc6d8e\n").unwrap();
    let mut permissions = fs::metadata(&double).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(&double, permissions).unwrap();
    assert!(search_path(dir.path()).to_str().unwrap().starts_with(dir.path().to_str().unwrap()));
    let mut web = Component::new(&namespace, double, &[]);
    let checks = web.preflight();
    assert_eq!(checks[0]["status"], "failed", "{checks:#}");
    assert!(checks[0]["message"].as_str().unwrap().contains("3.9.4+gdbc6d8e is too old"));
    assert_eq!(checks[1]["status"], "ok", "{checks:#}");
}
