//! Tests that an install reaches the cluster that its sandbox creates, without credentials from the
//! customer's environment. A Terraform module that returns the access to the test cluster stands in
//! for one that creates a cluster.
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tests::{
    Cluster, ClusterNamespace, Customer, Runner, Server, agreed_message, dump, ended, program,
    run_with_logs, stdout_of, step, succeeded, terraform_or_skip, until, until_some,
};

use crate::secrets::{Search, files};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sandbox whose sensitive output is a kubeconfig.
const KUBECONFIG_SANDBOX: &str = r#"
variable "file" { type = string }

resource "terraform_data" "cluster" { input = "cluster" }

output "kubeconfig" {
  value     = file(var.file)
  sensitive = true
}
"#;

/// Sandbox whose output describes a cluster, without credentials.
const CLUSTER_SANDBOX: &str = r#"
variable "file" { type = string }

resource "terraform_data" "cluster" { input = "cluster" }

output "cluster" {
  value = jsondecode(file(var.file))
}
"#;

/// Administrator of the cluster with its own token, for one test.
struct Account<'c> {
    cluster: &'c Cluster,
    name: String,
    token: String,
    server: String,
    authority: String,
}

impl<'c> Account<'c> {
    fn new(cluster: &'c Cluster, namespace: &ClusterNamespace<'_>) -> Self {
        let name = namespace.name().to_owned();
        namespace.apply(&format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: deployer}}}}\n---\n\
             apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\n\
             metadata:\n  name: deployer\n  annotations:\n    kubernetes.io/service-account.name: deployer\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
             metadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
             subjects: [{{kind: ServiceAccount, name: deployer, namespace: {name}}}]\n"
        ));
        let token = until_some("the token of the account", TIMEOUT, || {
            let template = "go-template={{.data.token | base64decode}}";
            let get = ["get", "secret", "deployer", "--output", template];
            let output = namespace.kubectl().args(get).output().unwrap();
            let token = String::from_utf8(output.stdout).unwrap();
            (output.status.success() && token.len() > 100).then_some(token)
        });
        let view = ["config", "view", "--raw", "--flatten", "--minify", "--output", "json"];
        let view: Value = serde_json::from_str(&stdout_of(cluster.kubectl().args(view))).unwrap();
        let own = &view["clusters"][0]["cluster"];
        let text = |key: &str| own[key].as_str().unwrap().to_owned();
        let (server, authority) = (text("server"), text("certificate-authority-data"));
        Account { cluster, name, token, server, authority }
    }

    fn kubeconfig(&self, user: &Value) -> String {
        let own = json!({ "server": self.server, "certificate-authority-data": self.authority });
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{ "name": "main", "cluster": own }],
            "contexts": [{ "name": "main", "context": { "cluster": "main", "user": "deployer" } }],
            "users": [{ "name": "deployer", "user": user }],
        });
        file.to_string()
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let delete = ["delete", "clusterrolebinding", &self.name, "--wait=false"];
        let _deleted = self.cluster.kubectl().args(delete).output();
    }
}

/// Writes the app `shop`: a sandbox, a ConfigMap on its cluster, and an action that reads it.
fn app(server: &Server, namespace: &str, sandbox: &str) -> PathBuf {
    let dir = server.dir().join("shop");
    for (path, text) in [
        ("metadata.toml", "version = \"v2\"\n".to_owned()),
        (
            "inputs.toml",
            "[[group]]\nname = \"main\"\ndisplay_name = \"Main\"\ndescription = \"Main\"\n\
             [[input]]\nname = \"file\"\ndisplay_name = \"File\"\ndescription = \"File of the host\"\n\
             group = \"main\"\nrequired = true\n"
                .to_owned(),
        ),
        (
            "sandbox.toml",
            "terraform_version = \"1.11.4\"\n[public_repo]\nrepo = \".\"\ndirectory = \"sandbox\"\n\
             [vars]\nfile = \"{{ .nuon.inputs.inputs.file }}\"\n"
                .to_owned(),
        ),
        ("sandbox/main.tf", sandbox.to_owned()),
        (
            "components/page.toml",
            format!(
                "name = \"page\"\ntype = \"kubernetes_manifest\"\nnamespace = \"{namespace}\"\n\
                 manifest = \"\"\"\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: page}}\n\
                 data: {{text: deployed}}\n\"\"\"\n"
            ),
        ),
        (
            "actions/look.toml",
            format!(
                "name = \"look\"\ntimeout = \"60s\"\n[[triggers]]\ntype = \"post-provision\"\n\
                 [[triggers]]\ntype = \"manual\"\n[[steps]]\nname = \"look\"\n\
                 inline_contents = '''\nset -e\n\
                 text=$(\"$KUBECTL\" --namespace {namespace} get configmap page --output 'jsonpath={{.data.text}}')\n\
                 echo \"text=$text\" >> \"$STEAD_OUTPUT_FILE\"\n\
                 echo \"mode=$(stat --format %a \"$KUBECONFIG\")\" >> \"$STEAD_OUTPUT_FILE\"\n\
                 cat \"$KUBECONFIG\"\n'''\n"
            ),
        ),
    ] {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// Publishes the app with the plugin for manifests.
fn sync(server: &Server, app: &Path) {
    let plugin = program("stead-plugin-kubernetes_manifest");
    let plugin = format!("kubernetes_manifest={}", plugin.display());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
}

/// Creates an install and returns its enrolment token.
fn install(server: &Server, name: &str, file: &Path) -> String {
    let input = format!("file={}", file.display());
    let create = ["installs", "create", "shop", name, "--auto-approve", "--input", &input];
    server.cli_json(&create)["enrolment"]["token"].as_str().unwrap().to_owned()
}

/// Customer with the plugin and with `kubectl`, but without a kubeconfig.
fn customer(server: &Server, name: &str) -> Customer {
    let plugins = server.dir().join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    let plugin = "stead-plugin-kubernetes_manifest";
    fs::copy(program(plugin), plugins.join(plugin)).unwrap();
    let kubectl = std::env::var("STEAD_TEST_KUBECTL").unwrap_or_else(|_| "kubectl".into());
    Customer::new(server, name)
        .with(&["--plugin-dir", plugins.to_str().unwrap()])
        .pass("KUBECTL", &kubectl)
}

fn wait_for_run(server: &Server, install: &str) {
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", install]).as_array().unwrap().is_empty()
    });
}

/// Checks that a secret of the customer is in no response of the server, and in no file except the
/// state of the sandbox.
fn assert_stays_at_the_customer(server: &Server, runner: &Runner, secret: &str, source: &Path) {
    let search = Search::new(&[secret]);
    for job in server.cli_json(&["jobs", "list"]).as_array().unwrap() {
        let id = job["id"].as_str().unwrap();
        let log = server.stead_for_people().args(["jobs", "logs", id]).output().unwrap();
        search.is_clean(&format!("the log of {id}"), &log.stdout);
    }
    for args in
        [&["audit", "export"][..], &["installs", "state", "acme"], &["runs", "show", "acme"]]
    {
        search.is_clean(&format!("{args:?}"), stdout_of(server.stead().args(args)).as_bytes());
    }
    search.is_clean("the dump", &dump(server));
    until("the jobs' directories to be deleted", TIMEOUT, || {
        let jobs = fs::read_dir(runner.data().join("jobs")).unwrap().filter_map(Result::ok);
        let mut directories =
            jobs.flat_map(|job| ["work", "tmp"].map(|name| job.path().join(name)));
        !directories.any(|directory| directory.exists())
    });
    let mut all = Vec::new();
    files(server.dir(), &mut all);
    let state = runner.data().join("state/sandbox");
    for file in all.iter().filter(|file| !file.starts_with(&state) && file.as_path() != source) {
        // Postgres renames its files while it runs.
        let Ok(bytes) = fs::read(file) else { continue };
        search.is_clean(&file.display().to_string(), &bytes);
    }
}

#[test]
fn manifests_and_actions_use_the_sensitive_kubeconfig_of_the_sandbox() {
    if !terraform_or_skip() {
        return;
    }
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    let account = Account::new(&cluster, &namespace);
    let server = Server::up();
    let source = server.dir().join("kubeconfig");
    fs::write(&source, account.kubeconfig(&json!({ "token": account.token }))).unwrap();
    sync(&server, &app(&server, namespace.name(), KUBECONFIG_SANDBOX));

    let token = install(&server, "acme", &source);
    let runner =
        customer(&server, "customer").in_sandbox_with(&server, &cluster).start(&server, &token);
    wait_for_run(&server, "acme");
    let run = succeeded(&server, "acme");

    let get = ["get", "configmap", "page", "--output", "jsonpath={.data.text}"];
    assert_eq!(stdout_of(namespace.kubectl().args(get)), "deployed");
    let state = server.cli_json(&["installs", "state", "acme"]);
    let outputs = &state["nuon"]["actions"]["workflows"]["look"]["outputs"];
    assert_eq!(
        (&outputs["text"], &outputs["mode"]),
        (&json!("deployed"), &json!("600")),
        "{state:#}"
    );
    assert_eq!(state["nuon"]["sandbox"]["outputs"].get("kubeconfig"), None, "{state:#}");
    let job = step(&run, "look")["job"].as_str().unwrap();
    let log = stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(log.contains("access to the cluster of sandbox"), "{log}");
    assert!(log.contains(r#""token":"[redacted]""#), "{log}");
    assert_stays_at_the_customer(&server, &runner, &account.token, &source);
}

/// Starts a double of the metadata service of Google Cloud, whose token is that of the account. Returns
/// its address.
fn metadata_double(token: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = json!({ "access_token": token, "expires_in": 3599 }).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            let head = head.join("\n").to_lowercase();
            let is_valid = head.contains("service-accounts/default/token")
                && head.contains("metadata-flavor: google");
            let status = if is_valid { "200 OK" } else { "403 Forbidden" };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n");
            let _sent = write!(&stream, "{head}Connection: close\r\n\r\n{body}");
        }
    });
    address
}

#[test]
fn manifests_and_actions_use_the_token_of_the_cloud_for_the_cluster_of_the_sandbox() {
    if !terraform_or_skip() {
        return;
    }
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    let account = Account::new(&cluster, &namespace);
    let server = Server::up();
    let source = server.dir().join("cluster.json");
    let described = json!({
        "name": "main", "endpoint": account.server,
        "certificate_authority_data": account.authority,
    });
    fs::write(&source, described.to_string()).unwrap();
    let app = app(&server, namespace.name(), CLUSTER_SANDBOX);
    fs::write(app.join("runner.toml"), "runner_type = \"gcp\"\n").unwrap();
    sync(&server, &app);

    let token = install(&server, "acme", &source);
    let runner = customer(&server, "customer")
        .pass("GCE_METADATA_HOST", &metadata_double(&account.token))
        .start(&server, &token);
    wait_for_run(&server, "acme");
    let run = succeeded(&server, "acme");

    let get = ["get", "configmap", "page", "--output", "jsonpath={.data.text}"];
    assert_eq!(stdout_of(namespace.kubectl().args(get)), "deployed");
    let state = server.cli_json(&["installs", "state", "acme"]);
    let outputs = &state["nuon"]["actions"]["workflows"]["look"]["outputs"];
    assert_eq!(outputs["text"], "deployed", "{state:#}");
    let endpoint = &state["nuon"]["sandbox"]["outputs"]["cluster"]["endpoint"];
    assert_eq!(*endpoint, account.server.as_str(), "{state:#}");
    // The kubeconfig names a file with the token, which the runner can replace.
    let job = step(&run, "look")["job"].as_str().unwrap();
    let log = stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(log.contains("\"tokenFile\":") && !log.contains("\"token\":"), "{log}");
    assert_stays_at_the_customer(&server, &runner, &account.token, &source);
}

#[test]
fn a_kubeconfig_that_runs_a_program_is_refused() {
    if !terraform_or_skip() {
        return;
    }
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    let account = Account::new(&cluster, &namespace);
    let server = Server::up();
    let (source, touched) = (server.dir().join("kubeconfig"), server.dir().join("touched"));
    let program = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/bin/sh",
        "args": ["-c", format!("touch {}", touched.display())], "interactiveMode": "Never",
    }});
    fs::write(&source, account.kubeconfig(&program)).unwrap();
    sync(&server, &app(&server, namespace.name(), KUBECONFIG_SANDBOX));

    let token = install(&server, "acme", &source);
    let _runner = customer(&server, "customer").start(&server, &token);
    wait_for_run(&server, "acme");
    let run = ended(&server, "acme");

    assert_eq!(run["state"], "failed", "{run:#}");
    let shown = run_with_logs(&server, &run);
    assert!(shown.contains("refused the output `kubeconfig` of sandbox"), "{shown}");
    assert!(shown.contains(r#"kubeconfig_allows = ["exec"]"#), "{shown}");
    assert_eq!(step(&run, "page")["state"], "failed", "{shown}");
    assert!(!touched.exists(), "the program ran");
    let detail = step(&run, "page")["reason"].as_str().unwrap_or_default();
    let input = ("a kubeconfig with `exec`", "preflight, or plan after a new sandbox");
    agreed_message("kubeconfig-exec", input, detail, &[]);
}
