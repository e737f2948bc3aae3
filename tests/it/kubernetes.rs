//! Tests the component type `kubernetes_manifest` on a real cluster: from a sync to running pods,
//! a second version, a repeated deploy and a teardown.
use std::{fs, path::PathBuf, time::Duration};

use serde_json::Value;
use tests::{
    Cluster, Customer, Server, ended, kubernetes_app, kubernetes_app_v2, program, stdout_of, step,
    succeeded, until,
};
use ulid::Ulid;

#[test]
fn an_app_on_a_cluster_is_deployed_changed_and_removed() {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = format!("example-{}", Ulid::new().to_string().to_lowercase());
    let get = |arguments: &[&str]| {
        let output =
            cluster.kubectl().args(["--namespace", &namespace, "get"]).args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };

    // given an app whose parts all belong to the plugin
    let server = Server::up();
    let executable = program("stead-plugin-kubernetes_manifest");
    let plugin = format!("kubernetes_manifest={}", executable.display());
    let sync = |app: PathBuf| {
        server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"])
    };
    sync(kubernetes_app(server.dir()));
    let inputs = [format!("namespace={namespace}"), "image=localhost/busybox:1".to_owned()];
    let inputs = ["--input", &inputs[0], "--input", &inputs[1]];
    let create = ["installs", "create", "kubernetes", "acme", "--auto-approve"];
    let created = server.cli_json(&[&create[..], &inputs[..]].concat());
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(&executable, plugins.join("stead-plugin-kubernetes_manifest")).unwrap();

    // when the customer's runner has access to the cluster
    let _runner = Customer::new(&server, "customer")
        .in_sandbox_with(&server, &cluster)
        .pass("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())
        .with(&["--plugin-dir", plugins.to_str().unwrap()])
        .start(&server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });

    // then its pods run, its jobs ran in a sandbox, and the outputs are those of the live objects
    let run = succeeded(&server, "acme");
    let job = server.cli_json(&["jobs", "show", step(&run, "web")["job"].as_str().unwrap()]);
    assert_eq!(job["attempts"][0]["isolation"]["level"], "sandbox", "{job:#}");
    let page = || get(&["configmap", "page", "--output", r"jsonpath={.data.index\.html}"]);
    let ready = || get(&["deployment", "web", "--output", "jsonpath={.status.readyReplicas}"]);
    assert_eq!((page().as_str(), ready().as_str()), ("Deployed by Stead\n", "1"));
    let install = server.cli_json(&["installs", "show", "acme"]);
    let components = install["components"].as_array().unwrap();
    let web = components.iter().find(|one| one["name"] == "web").unwrap();
    let address = get(&["service", "web", "--output", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(web["outputs"]["address"], Value::String(address), "{install:#}");

    // when version 2 changes the text, the page and the pods that show it change
    sync(kubernetes_app_v2(server.dir()));
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    let run = succeeded(&server, "acme");
    assert_eq!(page(), "Deployed again by Stead\n");
    let plan = &step(&run, "page")["plan"];
    assert_eq!((&plan["add"], &plan["change"]), (&Value::from(0), &Value::from(1)), "{run:#}");
    let shown = stdout_of(server.stead_for_people().args(["runs", "show", "acme", "--plans"]));
    let values = "data[index.html]: \"Deployed by Stead⏎\" → \"Deployed again by Stead⏎\"";
    assert!(shown.contains(values), "{shown}");

    // a repeated deploy has no changes
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = succeeded(&server, "acme");
    assert_eq!(step(&run, "web")["plan"]["noop"], true, "{run:#}");

    // a drift check finds a deleted object, and does not create it again
    let check = || {
        let mut command = server.stead_for_people();
        let output = command.args(["installs", "drift", "acme"]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = check();
    assert_eq!(code, Some(0), "{text}");
    let delete = ["--namespace", &namespace, "delete", "configmap", "page"];
    stdout_of(cluster.kubectl().args(delete));
    let (code, text) = check();
    assert_eq!(code, Some(6), "{text}");
    assert!(text.contains("+ ConfigMap") && text.contains("data[index.html]"), "{text}");
    assert_eq!(page(), "");

    // the deprovision removes all objects that the app created, including the namespace
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    succeeded(&server, "acme");
    assert_eq!(get(&["namespace", &namespace, "--ignore-not-found", "--output", "name"]), "");
}

#[test]
fn a_cluster_that_a_sandbox_cannot_reach_fails_in_the_preflight() {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = format!("example-{}", Ulid::new().to_string().to_lowercase());
    let server = Server::up();
    let executable = program("stead-plugin-kubernetes_manifest");
    let plugin = format!("kubernetes_manifest={}", executable.display());
    let app = kubernetes_app(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let inputs = [format!("namespace={namespace}"), "image=localhost/busybox:1".to_owned()];
    let inputs = ["--input", &inputs[0], "--input", &inputs[1]];
    let create = ["installs", "create", "kubernetes", "acme", "--auto-approve"];
    let created = server.cli_json(&[&create[..], &inputs[..]].concat());
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(&executable, plugins.join("stead-plugin-kubernetes_manifest")).unwrap();

    // given a cluster on the loopback interface, and a policy that opens no port
    let _runner = Customer::new(&server, "customer")
        .in_sandbox()
        .pass("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())
        .with(&["--plugin-dir", plugins.to_str().unwrap()])
        .start(&server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });

    // then the preflight names the line of the policy, and nothing was created
    let run = ended(&server, "acme");
    assert_eq!((&run["state"], &run["preflight"]["state"]), (&"failed".into(), &"failed".into()));
    let checks = run["preflight"].to_string();
    assert!(checks.contains("cannot reach the cluster of KUBECONFIG: 127.0.0.1:"), "{checks}");
    assert!(checks.contains("sandbox_loopback = ["), "{checks}");
    let get = ["get", "namespace", &namespace, "--ignore-not-found", "--output", "name"];
    assert_eq!(stdout_of(cluster.kubectl().args(get)), "");
}
