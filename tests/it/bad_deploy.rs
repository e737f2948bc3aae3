//! Tests that an invalid input of a deploy is rejected at the earliest point, with its location and
//! a remedy, and that nothing in the cluster changes.
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tests::{
    Cluster, ClusterNamespace, Customer, Runner, Server, agreed_message, ended, job_events,
    program, run_with_logs, stdout_of, succeeded, until, until_some,
};

const PLUGINS: [&str; 2] = ["kubernetes_manifest", "helm_chart"];
const SANDBOX: &str = r#"
type      = "kubernetes_manifest"
namespace = "{{ .nuon.inputs.inputs.namespace }}"
manifest  = """
apiVersion: v1
kind: ConfigMap
metadata: {name: base}
"""
"#;
const INPUTS: &str = r#"
[[group]]
name = "main"
display_name = "Main"
description = "Main"

[[input]]
name = "namespace"
display_name = "Namespace"
description = "Namespace of the objects"
group = "main"
required = true
"#;

/// Writes the app `shop`: a ConfigMap as its sandbox, and these files. The content `-` removes a
/// file.
fn app(server: &Server, files: &[(&str, String)]) -> PathBuf {
    let dir = server.dir().join("shop");
    let _may_be_missing = fs::remove_dir_all(&dir);
    let chart = "apiVersion: v2\nname: shop\nversion: 1.0.0\n";
    let common = [
        ("metadata.toml", "version = \"v2\"\n"),
        ("sandbox.toml", SANDBOX),
        ("inputs.toml", INPUTS),
        ("chart/Chart.yaml", chart),
        ("chart/values.yaml", "a: 1\n"),
    ];
    let own = files.iter().map(|(path, text)| (*path, text.as_str()));
    for (path, text) in common.into_iter().chain(own) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text {
            "-" => fs::remove_file(path).unwrap(),
            text => fs::write(path, text).unwrap(),
        }
    }
    dir
}

fn manifest(name: &str, yaml: &str) -> String {
    format!(
        "name = \"{name}\"\ntype = \"kubernetes_manifest\"\n\
         namespace = \"{{{{ .nuon.inputs.inputs.namespace }}}}\"\nmanifest = '''\n{yaml}'''\n"
    )
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n")
}

/// Component of the chart in the app directory, with these values.
fn chart(values: &str) -> String {
    format!(
        "name = \"chart\"\ntype = \"helm_chart\"\nchart_name = \"shop\"\n\
         namespace = \"{{{{ .nuon.inputs.inputs.namespace }}}}\"\n\
         [public_repo]\nrepo = \".\"\ndirectory = \"chart\"\n\
         [[values_file]]\ncontents = '''\n{values}'''\n"
    )
}

fn sync_arguments(app: &Path) -> Vec<String> {
    let plugins = PLUGINS.iter().flat_map(|name| {
        let path = program(&format!("stead-plugin-{name}"));
        ["--plugin".to_owned(), format!("{name}={}", path.display())]
    });
    let sync = ["apps", "sync", app.to_str().unwrap(), "--wait"].map(str::to_owned);
    sync.into_iter().chain(plugins).collect()
}

fn sync(server: &Server, files: &[(&str, String)]) {
    let arguments = sync_arguments(&app(server, files));
    server.cli_json(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Creates an install in a namespace, and starts its runner with the plugins and a kubeconfig.
fn start(server: &Server, namespace: &str, kubeconfig: &Path, approve: &[&str]) -> Runner {
    let input = format!("namespace={namespace}");
    let create = ["installs", "create", "shop", "acme", "--input", &input];
    let created = server.cli_json(&[&create[..], approve].concat());
    let plugins = server.dir().join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    for name in PLUGINS {
        let file = format!("stead-plugin-{name}");
        fs::copy(program(&file), plugins.join(file)).unwrap();
    }
    let runner = Customer::new(server, "customer")
        .pass("KUBECONFIG", kubeconfig.to_str().unwrap())
        .with(&["--plugin-dir", plugins.to_str().unwrap()])
        .start(server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    runner
}

/// Returns the names of the ConfigMaps in a namespace, without those of Kubernetes.
fn config_maps(namespace: &ClusterNamespace<'_>) -> String {
    let get = ["get", "configmap", "--output", "jsonpath={.items[*].metadata.name}"];
    let names = stdout_of(namespace.kubectl().args(get));
    let own = names.split_whitespace().filter(|name| *name != "kube-root-ca.crt");
    own.collect::<Vec<_>>().join(" ")
}

#[test]
fn invalid_files_are_rejected_before_a_sync() {
    let server = Server::up();
    let template = "a: {{ .nuon.install.id }}\n";
    let broken = "apiVersion: v1\nkind: [\n";
    for (name, input, files, texts) in [
        (
            "values-file",
            "values that are no map",
            vec![("components/chart.toml", chart("- a\n"))],
            ["components/chart.toml:10:1", "the values are no map"],
        ),
        (
            "manifest-file",
            "a manifest that is not YAML",
            vec![("components/web.toml", manifest("web", broken))],
            ["components/web.toml:", "not valid YAML"],
        ),
        (
            "chart-file",
            "a chart without `Chart.yaml` in the app directory",
            vec![("components/chart.toml", chart(template)), ("chart/Chart.yaml", "-".into())],
            ["components/chart.toml:7:14", "has no Chart.yaml"],
        ),
        (
            "two-components",
            "the same object in two components",
            vec![
                ("components/api.toml", manifest("api", &config_map("web"))),
                ("components/web.toml", manifest("web", &config_map("web"))),
            ],
            ["components/web.toml:5:1", "ConfigMap web is also in the component `api`"],
        ),
    ] {
        let app = app(&server, &files);
        let arguments = sync_arguments(&app);
        let (code, message) =
            server.refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, 2, "{name}: {message}");
        assert!(texts.iter().all(|text| message.contains(text)), "{name}: {message}");
        let mut lines = message.lines().skip_while(|line| !line.contains(texts[1]));
        let finding: Vec<&str> = lines.by_ref().take(1).map(str::trim).collect();
        let remedy = lines.find_map(|line| line.split_once("try: ")).unwrap().1;
        let path = format!("{}/", app.display());
        let text = format!("{}\n{remedy}", finding.concat());
        agreed_message(name, (input, "`validate`, `sync`"), &text, &[(&path, "")]);
    }
    assert_eq!(server.cli_json(&["apps", "list"]).as_array().unwrap().len(), 0);
}

#[test]
fn the_preflight_lists_all_invalid_inputs_and_changes_nothing() {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    let server = Server::up();
    let object = "{{ .nuon.install.name }}";
    let unknown = "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: web}\n";
    // given an install whose cluster is known
    sync(&server, &[]);
    let kubeconfig = cluster.kubeconfig().to_owned();
    let _runner = start(&server, namespace.name(), &kubeconfig, &["--auto-approve"]);
    succeeded(&server, "acme");

    // when a version has invalid components
    sync(
        &server,
        &[
            ("components/api.toml", manifest("api", &config_map(object))),
            ("components/web.toml", manifest("web", &config_map(object))),
            ("components/kind.toml", manifest("kind", unknown)),
            ("components/chart.toml", chart(&format!("- {object}\n"))),
        ],
    );

    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "invalid"]);
    let run = ended(&server, "acme");

    // then its run fails before the first change, with all findings
    assert_eq!(run["preflight"]["state"], "failed", "{}", run_with_logs(&server, &run));
    assert_eq!(config_maps(&namespace), "base");
    let checks = run["preflight"]["checks"].as_array().unwrap();
    let failed = checks.iter().filter(|check| check["status"] == "failed");
    let messages: Vec<&str> = failed.filter_map(|check| check["message"].as_str()).collect();
    for (name, input, part) in [
        (
            "two-rendered-components",
            "the same object in two components, from templates",
            "is also in the component",
        ),
        ("unknown-kind", "an unknown kind", "does not serve the kind Deploymnt"),
        ("rendered-values", "values that are no map, from a template", "the file is not a map"),
    ] {
        let message = messages.iter().find(|message| message.contains(part));
        let message = message.unwrap_or_else(|| panic!("{name}: {run:#}"));
        let variable = [(namespace.name(), "NAMESPACE")];
        agreed_message(name, (input, "preflight"), message, &variable);
    }
}

/// API server of another cluster: its namespace `kube-system` has another UID, it has no other
/// objects, and allows everything. Returns its port. Its thread ends with the process.
fn other_cluster() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _closed = serve(stream);
        }
    });
    port
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().to_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split([' ', '?']);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, response) = match (method, path) {
        ("GET", "/api/v1/namespaces/kube-system") => {
            let metadata = json!({ "name": "kube-system", "uid": "other" });
            (200, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }))
        }
        ("GET", "/api/v1") => {
            let kind = json!({ "name": "configmaps", "singularName": "", "kind": "ConfigMap",
                               "namespaced": true, "verbs": ["get", "list"] });
            (200, json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [kind] }))
        }
        ("GET", _) => (
            404,
            json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404,
                          "reason": "NotFound", "message": "not found" }),
        ),
        // Dry runs and access reviews. The request is also a valid response.
        _ => {
            let mut object: Value = serde_json::from_slice(&body)?;
            object["status"] = json!({ "allowed": true });
            (201, object)
        }
    };
    let response = response.to_string();
    let (mut stream, length) = (stream, response.len());
    write!(
        stream,
        "HTTP/1.1 {status} Test\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{response}"
    )
}

#[test]
fn an_apply_on_another_cluster_than_the_plan_changes_nothing() {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    let server = Server::up();
    sync(&server, &[]);
    let kubeconfig = server.dir().join("kubeconfig");
    let view = ["config", "view", "--raw", "--flatten", "--minify"];
    fs::write(&kubeconfig, stdout_of(cluster.kubectl().args(view))).unwrap();

    // given a plan for one cluster, and then a kubeconfig of another one
    let _runner = start(&server, namespace.name(), &kubeconfig, &[]);
    until_some("the plan", Duration::from_secs(120), || {
        let output = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        let run: Value = serde_json::from_slice(&output.stdout).ok()?;
        (run["state"] == "waiting_for_approval").then_some(())
    });
    let other = format!("http://127.0.0.1:{}", other_cluster());
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": other } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "token": "t" } }],
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();

    // when the plan is approved, then its apply changes nothing, and the step is planned again
    server.cli_json(&["runs", "approve", "acme", "--all", "--reason", "test"]);
    let run = ended(&server, "acme");

    assert_eq!(run["state"], "failed", "{run:#}");
    let jobs = server.cli_json(&["jobs", "list", "--install", "acme"]);
    let apply = jobs.as_array().unwrap().iter().find(|job| job["kind"] == "apply").unwrap();
    let events = job_events(&server, apply["id"].as_str().unwrap());
    let details = events.iter().filter_map(|event| event["readable_payload"]["detail"].as_str());
    let detail = details.into_iter().find(|detail| detail.contains("another cluster"));
    let detail = detail.unwrap_or_else(|| panic!("{events:#?}"));
    let input = ("a cluster that is not the one of the plan", "apply");
    agreed_message("other-cluster", input, detail, &[(other.as_str(), "URL")]);
    assert_eq!(config_maps(&namespace), "");
}
