//! Tests an app of Helm charts on a cluster: first version, change, no drift, teardown.
use std::{path::PathBuf, time::Duration};

use serde_json::Value;
use tests::{
    Cluster, Customer, helm_app, helm_app_v2, helm_or_skip, server_with_plugin, stdout_of, step,
    succeeded, until,
};
use ulid::Ulid;

#[test]
fn an_app_of_charts_is_deployed_changed_and_removed() {
    let Some(helm) = helm_or_skip() else { return };
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", helm.parent().unwrap().display());
    let namespace = format!("example-{}", Ulid::new().to_string().to_lowercase());
    let get = |arguments: &[&str]| {
        let output =
            cluster.kubectl().args(["--namespace", &namespace, "get"]).args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };

    // given an app whose parts are all charts
    let (server, key) = server_with_plugin("helm_chart", &[("PATH", &path)]);
    let sync = |app: PathBuf| server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    sync(helm_app(server.dir()));
    let inputs = [format!("namespace={namespace}"), "image=localhost/busybox:1".to_owned()];
    let inputs = ["--input", &inputs[0], "--input", &inputs[1]];
    let create = ["installs", "create", "helm", "acme", "--auto-approve"];
    let created = server.cli_json(&[&create[..], &inputs[..]].concat());

    // when the customer's runner has access to the cluster
    let _runner = Customer::new(&server, "customer")
        .in_sandbox_with(&server, &cluster)
        .pass("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())
        .pass("PATH", &path)
        .with(&["--plugin-publisher", &key])
        .start(&server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });

    // then its pods run, and the outputs are those of the release
    succeeded(&server, "acme");
    let page = || get(&["configmap", "page", "--output", r"jsonpath={.data.index\.html}"]);
    let ready = || get(&["deployment", "web", "--output", "jsonpath={.status.readyReplicas}"]);
    assert_eq!((page().as_str(), ready().as_str()), ("Deployed by Stead\n", "1"));
    let install = server.cli_json(&["installs", "show", "acme"]);
    let components = install["components"].as_array().unwrap();
    let web = components.iter().find(|one| one["name"] == "web").unwrap();
    let address = get(&["service", "web", "--output", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(web["outputs"]["address"], Value::String(address), "{install:#}");
    assert_eq!(web["outputs"]["revision"], 1, "{install:#}");

    // when a second version has another value, only its objects change
    sync(helm_app_v2(server.dir()));
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    let run = succeeded(&server, "acme");
    assert_eq!(page(), "Deployed again by Stead\n");
    let plan = &step(&run, "web")["plan"];
    assert_eq!((&plan["add"], &plan["change"]), (&Value::from(0), &Value::from(3)), "{run:#}");
    let shown = stdout_of(server.stead_for_people().args(["runs", "show", "acme", "--plans"]));
    assert!(shown.contains("data[index.html]"), "{shown}");

    // a repeated deploy has no changes
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = succeeded(&server, "acme");
    assert_eq!(step(&run, "web")["plan"]["noop"], true, "{run:#}");

    // the teardown removes the releases, and the namespace stays
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    succeeded(&server, "acme");
    assert_eq!(get(&["all,configmap,secret", "--selector=app.kubernetes.io/managed-by=Helm"]), "");
    assert_eq!(get(&["secret", "--selector=owner=helm", "--output", "name"]), "");
    stdout_of(cluster.kubectl().args(["delete", "namespace", &namespace, "--wait=false"]));
}
