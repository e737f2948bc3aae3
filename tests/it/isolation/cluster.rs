//! Install that reaches only the Runner API, its cluster and its registry. It deploys an image,
//! manifests and a chart whose sources it cannot reach.
use std::{fs, path::PathBuf};

use serde_json::Value;
use tests::{
    Cluster, ClusterNamespace, Customer, Forward, GitServer, Namespace, Registry, Runner, Server,
    Sockets, ended, helm_or_skip, run_with_logs, stdout_of, step, until,
};

use super::{LONG_TIMEOUT, SHORT_TIMEOUT, Vendor, port, wait_until_inside};
use crate::plugins::{publisher, push};

/// Services that the customer reaches besides the Runner API, as ports on its own loopback address.
struct Reachable {
    cluster: Forward,
    registry: Forward,
}

/// Writes the app `shop`. Its chart and one manifest are in repositories of the vendor.
fn app(server: &Server, namespace: &str, git: &GitServer) -> PathBuf {
    git.repository("acme/charts").commit(
        "main",
        &[
            ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            ("web/values.yaml", "image: none\n"),
            (
                "web/templates/web.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n\
                 data: {image: {{ .Values.image | quote }}}\n",
            ),
        ],
    );
    git.repository("acme/manifests").commit(
        "main",
        &[
            ("base/kustomization.yaml", "resources: [settings.yaml]\n"),
            (
                "base/settings.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {from: git}\n",
            ),
        ],
    );
    let dir = server.dir().join("shop");
    for (file, text) in [
        ("metadata.toml", "version = \"v2\"\n".into()),
        (
            "components/image.toml",
            "name = \"image\"\ntype = \"container_image\"\n\
             [public]\nimage_url = \"docker.io/acme/web\"\ntag = \"1.0\"\n"
                .into(),
        ),
        (
            "components/page.toml",
            format!(
                "name = \"page\"\ntype = \"kubernetes_manifest\"\nnamespace = \"{namespace}\"\n\
                 manifest = '''\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: page}}\n\
                 data: {{text: deployed}}\n'''\n"
            ),
        ),
        (
            "components/settings.toml",
            format!(
                "name = \"settings\"\ntype = \"kubernetes_manifest\"\nnamespace = \"{namespace}\"\n\
                 [kustomize]\npath = \"base\"\n\
                 [public_repo]\nrepo = \"acme/manifests\"\ndirectory = \".\"\nbranch = \"main\"\n"
            ),
        ),
        (
            "components/web.toml",
            format!(
                "name = \"web\"\ntype = \"helm_chart\"\nchart_name = \"web\"\nnamespace = \"{namespace}\"\n\
                 [public_repo]\nrepo = \"acme/charts\"\ndirectory = \"web\"\nbranch = \"main\"\n\
                 [values]\nimage = \"{{{{ .nuon.components.image.outputs.image.repository }}}}\"\n"
            ),
        ),
    ] {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write::<_, String>(path, text).unwrap();
    }
    dir
}

/// Returns the port of the cluster's API, which must be on loopback.
fn api_port(cluster: &Cluster) -> u16 {
    let view = ["config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}"];
    let url = stdout_of(cluster.kubectl().args(view));
    let port = url.strip_prefix("https://127.0.0.1:").and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("the API of the test cluster is not on loopback: {url}"))
}

/// Waits for the end of the newest run. Meanwhile, checks that every connection of the customer's
/// network goes to the Runner API, the cluster or the registry.
fn run(server: &Server, namespace: &Namespace, runner: &Runner, reachable: &Reachable) -> Value {
    let ports = [reachable.cluster.link_port(), reachable.registry.link_port()];
    let mut peers = vec![Sockets::peer(&namespace.server_ip(), port(server.runner()))];
    peers.extend(ports.map(|port| Sockets::peer(&namespace.server_ip(), &port.to_string())));
    until("the end of the run", LONG_TIMEOUT, || {
        let sockets = Sockets::of(runner.pid());
        for peer in &sockets.peers {
            assert!(peers.contains(peer), "a connection to {peer}, not to {peers:?}");
        }
        server.cli_json(&["runs", "show", "acme"])["state"] != "running"
    });
    let run = ended(server, "acme");
    assert_eq!(run["state"], "succeeded", "{}", run_with_logs(server, &run));
    run
}

fn config_map(namespace: &ClusterNamespace<'_>, name: &str, field: &str) -> String {
    let output = format!("jsonpath={{.data.{field}}}");
    let get = ["get", "configmap", name, "--ignore-not-found", "--output", &output];
    stdout_of(namespace.kubectl().args(get))
}

#[test]
fn an_image_manifests_and_a_chart_are_deployed_without_other_network_access() {
    let Some(helm) = helm_or_skip() else { return };
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let (Some(upstream), Some(own)) = (Registry::start_or_skip(), Registry::start_or_skip()) else {
        return;
    };
    let Some(namespace) = Namespace::new_or_skip() else { return };

    // given a vendor with a git server and an upstream registry
    let path = format!("{}:{}", helm.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let git = GitServer::start();
    let image = upstream.push_image("acme/web", "1.0", "linux/amd64", &[b"layer"]);
    let publisher = publisher();
    let mirror = format!("docker.io={}", upstream.url());
    let configuration = git.configuration("");
    let vendor = Vendor::with_builder(
        &namespace,
        &["--registry-mirror", &mirror, "--plugin-publisher", &publisher.key],
        &[("PATH", &path), ("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap())],
    );
    let server = &vendor.server;
    for plugin in ["stead-plugin-helm_chart", "stead-plugin-kubernetes_manifest"] {
        push(server, &publisher.file, plugin);
    }
    let objects = cluster.namespace();
    let app = app(server, objects.name(), &git);
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);

    // given a customer whose network leads to the Runner API, the cluster and the registry only
    let reachable = Reachable {
        cluster: namespace.forward(api_port(&cluster)),
        registry: namespace.forward(own.port()),
    };
    vendor.assert_reaches_only_the_runner_listener(&namespace);
    for (what, port) in [("git", git.port()), ("the upstream registry", upstream.port())] {
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(), "{what}");
        for ip in ["127.0.0.1", &namespace.server_ip()] {
            assert!(!namespace.reaches(ip, &port.to_string()), "{what} is reachable at {ip}");
        }
    }

    let requests = git.requests().len();
    assert!(requests > 0, "the build runner read nothing from git");

    // when the install is provisioned
    let create = ["installs", "create", "shop", "acme", "--auto-approve"];
    let created = server.cli_json(&create);
    let customer = Customer::new(server, "customer");
    let own_ca = customer.dir().join("ca.pem");
    fs::copy(vendor.certificates.ca(), &own_ca).unwrap();
    let runner = customer
        .through(&namespace.enter())
        .with(&["--ca-file", own_ca.to_str().unwrap(), "--plugin-publisher", &publisher.key])
        .with(&["--registry", &format!("oci://{}/acme", own.host())])
        .pass("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())
        .pass("PATH", &path)
        .start(server, created["enrolment"]["token"].as_str().unwrap());
    wait_until_inside(&runner);
    until("the provision run", SHORT_TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let provisioned = run(server, &namespace, &runner, &reachable);

    // then the image, the manifests and the chart are there, from the artifacts of the Runner API
    let copied = own.manifest("acme/image", &image.digest);
    assert!(copied.is_some(), "{provisioned:#}");
    assert_eq!(config_map(&objects, "page", "text"), "deployed");
    assert_eq!(config_map(&objects, "settings", "from"), "git");
    assert_eq!(config_map(&objects, "web", "image"), format!("{}/acme/image", own.host()));
    assert_eq!(git.requests().len(), requests, "the install read from git");
    for component in ["page", "settings", "web"] {
        assert_eq!(step(&provisioned, component)["state"], "succeeded", "{provisioned:#}");
    }

    // and the install leaves the cluster in the same way
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    run(server, &namespace, &runner, &reachable);
    let names = ["page", "settings", "web"].map(|name| config_map(&objects, name, "text"));
    assert_eq!(names, ["", "", ""]);
}
