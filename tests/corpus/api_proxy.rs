//! API of the test cluster as an app sees it. The cluster is older than most apps, so the proxy drops
//! the fields of built-in kinds that the cluster does not know, and converts stable versions to beta
//! versions. It also replaces containers of pods. The directory stays unchanged.
use std::{
    collections::BTreeSet,
    fs,
    io::{BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use ::tests::{Certificates, Cluster, stdout_of};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::{
    http::{self, Request},
    older_versions::OlderVersions,
    pods,
    schema::Schemas,
    session::{Failure, Outcome},
};

/// File of the fields that the cluster does not know.
pub(crate) const FIELDS: &str = "fields";
/// File of the kinds that the cluster has as beta versions only.
pub(crate) const VERSIONS: &str = "versions";
/// File of the images that pods do not run.
pub(crate) const PODS: &str = "pods";
/// Time for the start of `kubectl proxy`.
const START: Duration = Duration::from_secs(30);

/// Running proxy with its kubeconfig. `kubectl proxy` behind it has the credentials.
pub(crate) struct ApiProxy {
    _kubectl: Kubectl,
    kubeconfig: PathBuf,
    behind: Arc<Behind>,
    _certificates: Certificates,
}

impl ApiProxy {
    /// Starts the proxy. It writes its files and the dropped fields to a directory.
    pub(crate) fn start(cluster: &Cluster, dir: &Path) -> Outcome<ApiProxy> {
        let socket = dir.join("api.socket");
        let schemas = cluster.kubectl().args(["get", "--raw", "/openapi/v2"]).output().unwrap();
        let schemas = Schemas::new(serde_json::from_slice(&schemas.stdout).unwrap_or_default());
        let mut kubectl = cluster.kubectl();
        kubectl.arg("proxy").arg(format!("--unix-socket={}", socket.display()));
        let kubectl = kubectl.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let kubectl = Kubectl(kubectl);
        let certificates = Certificates::for_ip("127.0.0.1");
        let config = certificates.server_config();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kubeconfig = dir.join("kubeconfig");
        fs::write(&kubeconfig, text(port, &certificates.ca())).unwrap();
        let started = std::time::Instant::now();
        while UnixStream::connect(&socket).is_err() {
            if started.elapsed() > START {
                return Err(Failure::new("kubectl proxy does not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let older = OlderVersions::of(|path| http::get(&socket, path));
        let behind = Arc::new(Behind { socket, dir: dir.to_owned(), schemas, older });
        let shared = Arc::clone(&behind);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, behind) = (Arc::clone(&config), Arc::clone(&shared));
                std::thread::spawn(move || forward(stream, config, &behind));
            }
        });
        Ok(ApiProxy { _kubectl: kubectl, kubeconfig, behind, _certificates: certificates })
    }

    /// Returns true for a kind that the cluster has as a beta version only.
    pub(crate) fn converts(&self, group: &str, version: &str, kind: &str) -> bool {
        self.behind.older.converts(group, version, kind)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Running `kubectl proxy`.
struct Kubectl(Child);

impl Drop for Kubectl {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Returns a kubeconfig for the proxy. JSON is YAML.
fn text(port: u16, ca: &Path) -> String {
    let ca = stdout_of(Command::new("base64").arg("-w0").arg(ca).stdin(Stdio::null()));
    let server = format!("https://127.0.0.1:{port}");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "corpus",
        "clusters": [{"name": "corpus", "cluster": {
            "server": server, "certificate-authority-data": ca.trim(),
        }}],
        "users": [{"name": "corpus", "user": {"token": "corpus"}}],
        "contexts": [{"name": "corpus", "context": {
            "cluster": "corpus", "user": "corpus", "namespace": "default",
        }}],
    });
    kubeconfig.to_string()
}

/// API behind the proxy, and the directory for the names of what it changes.
struct Behind {
    socket: PathBuf,
    dir: PathBuf,
    schemas: Schemas,
    older: OlderVersions,
}

/// Forwards one request and its response.
fn forward(stream: TcpStream, config: Arc<ServerConfig>, behind: &Behind) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut client = BufReader::new(StreamOwned::new(connection, stream));
    let request = Request::read(&mut client)?;
    let client = client.get_mut();
    let response = behind.older.response(&request.line, |path| http::get(&behind.socket, path));
    if let Some(response) = response {
        let (text, kind) = (response.to_string(), "Content-Type: application/json");
        let head = format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}", text.len());
        write!(client, "{head}\r\nConnection: close\r\n\r\n{text}").ok()?;
    } else {
        behind.forward(request, client)?;
    }
    client.conn.send_close_notify();
    client.flush().ok()
}

impl Behind {
    fn forward(&self, request: Request, client: &mut impl std::io::Write) -> Option<()> {
        let conversion = self.older.conversion(&request.line);
        let (body, line) = match &conversion {
            Some(conversion) => (conversion.request(&request.body), &conversion.line),
            None => (request.body, &request.line),
        };
        if let Some(conversion) = conversion.as_ref().filter(|_| !body.is_empty()) {
            self.note(VERSIONS, &[conversion.kind.clone()].into());
        }
        let (body, dropped) = self.schemas.without_newer_fields(&body);
        self.note(FIELDS, &dropped);
        let body = self.pod(&body, line).unwrap_or(body);
        let mut server = UnixStream::connect(&self.socket).ok()?;
        let mut head = format!("{line}\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
        request.headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        server.write_all(head.as_bytes()).ok()?;
        server.write_all(&body).ok()?;
        match conversion {
            Some(conversion) => conversion.respond(server, client).ok(),
            None => std::io::copy(&mut server, client).ok().map(drop),
        }
    }

    /// Returns a pod that the node can run. The webhook could not change such a pod: every apply of
    /// its manifest would restore the app's containers.
    fn pod(&self, body: &[u8], line: &str) -> Option<Vec<u8>> {
        let namespace = line.split("/api/v1/namespaces/").nth(1)?.split(['/', '?', ' ']).next()?;
        let mut pod: Value = serde_json::from_slice(body).ok()?;
        if pod["kind"] != "Pod" {
            return None;
        }
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
        // An operator that the test cluster lacks would create the account.
        if !account.is_empty() && http::get(&self.socket, &path)?["code"] == 404 {
            let spec = pod["spec"].as_object_mut()?;
            for field in ["serviceAccountName", "serviceAccount"] {
                spec.remove(field);
            }
            self.note(FIELDS, &["Pod serviceAccountName".to_owned()].into());
        }
        if let Some(spec) = pods::substitute(&pod) {
            self.note(PODS, &pods::images(&pod));
            pod["spec"] = spec;
        }
        Some(pod.to_string().into_bytes())
    }

    /// Appends names to a file.
    fn note(&self, file: &str, names: &BTreeSet<String>) {
        if !names.is_empty() {
            let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
            let file = fs::File::options().create(true).append(true).open(self.dir.join(file));
            let _best_effort = file.map(|mut file| file.write_all(lines.as_bytes()));
        }
    }
}
