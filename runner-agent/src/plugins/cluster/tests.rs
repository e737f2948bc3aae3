use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use domain::ids::{ExecutionId, JobId};
use schemas::manifest::Manifest;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    isolation::Sandbox,
    plugins::{Cancel, Registry, contract::NoShim, testing::TestSink},
    state::KnownState,
};

/// Job on a host with the state of a sandbox.
struct Host {
    dir: TempDir,
    job: JobContext,
}

impl Host {
    fn new(outputs: Value) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let job = context(dir.path());
        let host = Host { dir, job };
        if !outputs.is_null() {
            let sandbox = host.dir.path().join("state/sandbox");
            fs::create_dir_all(&sandbox).unwrap();
            let state = json!({ "version": 4, "lineage": "a", "serial": 1, "outputs": outputs });
            fs::write(sandbox.join("terraform.tfstate"), state.to_string()).unwrap();
        }
        host
    }

    fn with_env(mut self, name: &str, value: &str) -> Host {
        self.job.env.insert(name.into(), value.into());
        self
    }

    /// Prepares the access, and returns it with its error and the lines of the runner.
    async fn prepare(&self, cluster: Value) -> (Result<Option<ClusterAccess>, String>, String) {
        let manifest: Manifest = serde_json::from_value(json!({
            "version": 1, "job": self.job.job, "kind": "plan", "class": "pure",
            "plugin": {"name": "odd", "version": "1"},
            "inputs": {"component": "web", "cluster": cluster},
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        }))
        .unwrap();
        let work = Work::new(&manifest, &self.job).unwrap();
        let mut sink = TestSink::default();
        let prepared = match prepare(&work, &mut sink).await {
            Ok(access) => Ok(access),
            Err(Halt::Error(PluginError::Refused(why))) => Err(why),
            Err(other) => panic!("{other:?}"),
        };
        (prepared, sink.lines.join("\n"))
    }
}

fn context(root: &Path) -> JobContext {
    // The first test of the process installs the TLS provider.
    let _first = rustls::crypto::ring::default_provider().install_default();
    let (base_url, token, http) = (String::new(), String::new(), reqwest::Client::new());
    JobContext {
        work_dir: root.join("work"),
        state_dir: root.join("state"),
        artifacts_dir: root.join("artifacts"),
        plugin_dir: root.join("plugins"),
        plans_dir: root.join("plans"),
        env: BTreeMap::new(),
        git_env: BTreeMap::new(),
        kubeconfig_allows: Allowed::new(),
        background: Arc::new(NoShim),
        sandbox: None,
        cancel: Cancel::default(),
        registry: Registry {
            base_url,
            token,
            http,
            idle_timeout: Registry::IDLE_TIMEOUT,
            observer: None,
        },
        images: Default::default(),
        job: JobId(ulid::Ulid::nil()),
        execution: ExecutionId(ulid::Ulid::nil()),
        rules: None,
        known_state: KnownState::default(),
        known_states: Default::default(),
        state: None,
        state_port: None,
        manifest_digest: format!("sha256:{:064x}", 1).parse().unwrap(),
        unfilled_inputs: None,
    }
}

fn kubeconfig(user: &str) -> Value {
    json!({ "sensitive": true, "value": format!(
        "current-context: c\nclusters: [{{name: c, cluster: {{server: https://10.0.0.1}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {user}}}]"
    )})
}

fn cluster(endpoint: &str) -> Value {
    json!({ "value": {
        "name": "n-1", "endpoint": endpoint, "certificate_authority_data": "Y2VydA==", "tags": {},
    }})
}

fn required() -> Value {
    json!({ "component": "sandbox", "required": true })
}

#[tokio::test]
async fn the_kubeconfig_of_the_customer_wins() {
    let outputs = json!({ "kubeconfig": kubeconfig("{token: own}") });
    let host = Host::new(outputs).with_env(KUBECONFIG, "/etc/kubeconfig");
    let (prepared, _) = host.prepare(required()).await;
    assert!(prepared.unwrap().is_none());
    assert!(!host.dir.path().join("work/cluster").exists());
}

#[tokio::test]
async fn an_output_kubeconfig_is_preferred_and_removed_at_the_end() {
    let outputs = json!({
        "kubeconfig": kubeconfig("{token: own-token}"), "cluster": cluster("https://10.0.0.2"),
    });
    let host = Host::new(outputs);
    let (prepared, lines) = host.prepare(required()).await;
    let access = prepared.unwrap().unwrap();
    let path = access.kubeconfig();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("10.0.0.1") && text.contains("own-token"), "{text}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(lines, "access to the cluster of sandbox");
    drop(access);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_refused_kubeconfig_also_fails_a_job_that_needs_no_cluster() {
    let host = Host::new(json!({ "kubeconfig": kubeconfig("{exec: {command: aws}}") }));
    for input in [required(), json!({ "component": "sandbox" })] {
        let (prepared, _) = host.prepare(input).await;
        let why = prepared.unwrap_err();
        assert!(why.contains("kubeconfig_allows = [\"exec\"]"), "{why}");
    }
}

#[tokio::test]
async fn without_a_cluster_only_a_job_that_needs_one_fails() {
    for (outputs, expected) in [
        (Value::Null, "sandbox is not deployed"),
        (json!({}), "sandbox is not deployed"),
        (json!({ "region": { "value": "eu-1" } }), "neither an output `kubeconfig` nor"),
        (json!({ "kubeconfig": { "value": "a: [" } }), "is not YAML"),
        (json!({ "cluster": { "value": { "name": "n" } } }), "it has no `endpoint`"),
        (json!({ "cluster": cluster("http://10.0.0.1") }), "is not an https URL"),
        (json!({ "cluster": cluster("https://a:b@10.0.0.1") }), "is not an https URL"),
        (json!({ "cluster": cluster("10.0.0.1") }), "the cloud is unknown"),
    ] {
        let host = Host::new(outputs);
        let (prepared, _) = host.prepare(required()).await;
        let why = prepared.unwrap_err();
        assert!(why.starts_with("no access to a cluster: ") && why.contains(expected), "{why}");
        let (prepared, lines) = host.prepare(json!({ "component": "sandbox" })).await;
        assert!(prepared.unwrap().is_none());
        assert!(lines.contains(expected), "{lines}");
    }
}

#[tokio::test]
async fn the_manifest_selects_neither_a_path_nor_an_address() {
    let host = Host::new(json!({ "cluster": cluster("https://10.0.0.1") }));
    let (prepared, _) = host.prepare(json!({ "component": "../sandbox", "required": true })).await;
    assert!(prepared.unwrap_err().contains("is not a valid component name"));
    let other = json!({
        "component": "sandbox", "required": true, "platform": "gcp", "endpoint": "https://10.9.9.9",
    });
    let (prepared, _) = host.prepare(other).await;
    let why = prepared.unwrap_err();
    assert!(why.contains("its endpoint differs from the one in the manifest"), "{why}");
}

/// Stands in for the metadata service of Google: it answers one request.
async fn metadata_double(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = connection.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
        assert!(request.contains("metadata-flavor: google"), "{request}");
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ";
        let text = format!("{head}{}\r\n\r\n{response}", response.len());
        connection.write_all(text.as_bytes()).await.unwrap();
    });
    address
}

#[tokio::test]
async fn a_cluster_without_a_kubeconfig_gets_the_token_of_its_cloud() {
    let metadata = metadata_double(r#"{"access_token":"ya29.token","expires_in":3599}"#).await;
    let host = Host::new(json!({ "cluster": cluster("10.0.0.1") }))
        .with_env("GCE_METADATA_HOST", &metadata);
    let input = json!({ "component": "sandbox", "required": true, "platform": "gcp" });
    let (prepared, _) = host.prepare(input).await;
    let access = prepared.unwrap().unwrap();
    let text = fs::read_to_string(access.kubeconfig()).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["clusters"][0]["cluster"]["server"], "https://10.0.0.1");
    assert_eq!(file["clusters"][0]["cluster"]["certificate-authority-data"], "Y2VydA==");
    let token = file["users"][0]["user"]["tokenFile"].as_str().unwrap();
    assert_eq!(fs::read_to_string(token).unwrap(), "ya29.token");
    assert_eq!(fs::metadata(token).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(access.renewal.is_some());
}

#[tokio::test]
async fn a_cluster_of_aws_gets_a_token_under_the_credentials_of_the_job() {
    let endpoint = "https://AB12.gr7.eu-central-1.eks.amazonaws.com";
    let host = Host::new(json!({ "cluster": cluster(endpoint) }))
        .with_env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .with_env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI");
    let (prepared, _) = host.prepare(required()).await;
    let access = prepared.unwrap().unwrap();
    let token = fs::read_to_string(access.dir.join("token")).unwrap();
    assert!(token.starts_with("k8s-aws-v1."), "{token}");
}

/// Records the values to redact.
#[derive(Debug, Default)]
struct Secrets(std::sync::Mutex<Vec<String>>);

impl crate::plugins::Background for Secrets {
    fn secret(&self, value: Zeroizing<String>) {
        self.0.lock().unwrap().push(value.to_string());
    }
    fn line(&self, _: &str) {}

    fn state(&self, _: &str, _: &schemas::runner::StateHead) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn terraform_prints_no_credential_of_its_own_kubeconfig() {
    let mut host = Host::new(json!({ "kubeconfig": kubeconfig("{token: t-secret}") }));
    let secrets = Arc::new(Secrets::default());
    host.job.background = secrets.clone();
    let manifest: Manifest = serde_json::from_value(json!({
        "version": 1, "job": host.job.job, "kind": "plan", "class": "pure",
        "plugin": {"name": "terraform_module", "version": "1"}, "inputs": {"component": "sandbox"},
        "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
    }))
    .unwrap();
    redact_output(&Work::new(&manifest, &host.job).unwrap()).unwrap();
    assert_eq!(*secrets.0.lock().unwrap(), ["t-secret"]);
}

/// Each source of the address is checked before a credential is requested or a program starts.
#[tokio::test]
async fn a_cluster_that_a_sandbox_cannot_reach_is_named_for_each_source() {
    let at = |output: Value, address: &str| {
        let text = output.to_string().replace("https://10.0.0.1", &format!("'{address}'"));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let own = tempfile::NamedTempFile::new().unwrap();
    for (address, port) in [
        ("https://127.0.0.1:8443", 8443),
        ("https://localhost.:8443", 8443),
        ("https://[::ffff:127.0.0.1]:8443", 8443),
        ("https://127.0.0.9:6443", 6443),
    ] {
        let written = at(kubeconfig("{token: t}"), address);
        fs::write(own.path(), written["value"].as_str().unwrap()).unwrap();
        let paths = format!("/nonexistent:{}", own.path().display());
        let hosts = [
            ("sandbox", Host::new(json!({ "kubeconfig": written }))),
            ("sandbox", Host::new(json!({ "cluster": cluster(address) }))),
            (KUBECONFIG, Host::new(Value::Null).with_env(KUBECONFIG, &paths)),
        ];
        for (of, mut host) in hosts {
            host.job.sandbox = Some(Sandbox::of_test(vec![6443]));
            let (prepared, _) = host.prepare(required()).await;
            let why = prepared.unwrap_err();
            let expected = format!("no access to a cluster: cannot reach the cluster of {of}: ");
            assert!(why.starts_with(&expected) && why.contains(&format!(":{port} is on")), "{why}");
            assert!(!host.dir.path().join("work/cluster").exists());
            // An action that does not need the cluster runs without it.
            let (prepared, lines) = host.prepare(json!({ "component": "sandbox" })).await;
            assert!(prepared.unwrap().is_none());
            assert!(lines.contains("cannot reach the cluster"), "{lines}");
        }
    }
    // A port of the policy, a proxy, and a job without a sandbox.
    let local = kubeconfig("{token: t}");
    let proxied = at(local.clone(), "https://127.0.0.1:8443', proxy-url: 'http://10.9.9.9:3128");
    for (output, sandbox) in [
        (at(local.clone(), "https://127.0.0.1:6443"), Some(Sandbox::of_test(vec![6443]))),
        (proxied, Some(Sandbox::of_test(vec![]))),
        (at(local, "https://127.0.0.1:8443"), None),
    ] {
        let mut host = Host::new(json!({ "kubeconfig": output }));
        host.job.sandbox = sandbox;
        let (prepared, _) = host.prepare(required()).await;
        assert!(prepared.unwrap().is_some(), "{output}");
    }
}
