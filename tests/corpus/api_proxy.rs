//! API of the test cluster as an app sees it. The cluster is older than most apps, so the proxy drops
//! the fields of built-in kinds that the cluster does not know. The directory stays unchanged.
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
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
    cron_jobs,
    schema::Schemas,
    session::{Failure, Outcome},
};

/// File of the fields that the cluster does not know.
pub(crate) const FIELDS: &str = "fields";
/// Time for the start of `kubectl proxy`.
const START: Duration = Duration::from_secs(30);

/// Running proxy with its kubeconfig. `kubectl proxy` behind it has the credentials.
pub(crate) struct ApiProxy {
    kubectl: Child,
    kubeconfig: PathBuf,
    _certificates: Certificates,
}

impl ApiProxy {
    /// Starts the proxy. It writes its files and the dropped fields to a directory.
    pub(crate) fn start(cluster: &Cluster, dir: &Path) -> Outcome<ApiProxy> {
        let (socket, fields) = (dir.join("api.socket"), dir.join(FIELDS));
        let schemas = cluster.kubectl().args(["get", "--raw", "/openapi/v2"]).output().unwrap();
        let schemas = Schemas::new(serde_json::from_slice(&schemas.stdout).unwrap_or_default());
        let mut kubectl = cluster.kubectl();
        kubectl.arg("proxy").arg(format!("--unix-socket={}", socket.display()));
        let kubectl = kubectl.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let certificates = Certificates::for_ip("127.0.0.1");
        let config = certificates.server_config();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kubeconfig = dir.join("kubeconfig");
        fs::write(&kubeconfig, text(port, &certificates.ca())).unwrap();
        let proxy = ApiProxy { kubectl, kubeconfig, _certificates: certificates };
        let started = std::time::Instant::now();
        while UnixStream::connect(&socket).is_err() {
            if started.elapsed() > START {
                return Err(Failure::new("kubectl proxy does not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let (schemas, socket, fields) = (Arc::new(schemas), Arc::new(socket), Arc::new(fields));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, schemas) = (Arc::clone(&config), Arc::clone(&schemas));
                let (socket, fields) = (Arc::clone(&socket), Arc::clone(&fields));
                std::thread::spawn(move || forward(stream, config, &schemas, (&socket, &fields)));
            }
        });
        Ok(proxy)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        let _ended = self.kubectl.kill();
        let _status = self.kubectl.wait();
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

/// Forwards one request and its response.
fn forward(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    schemas: &Schemas,
    (socket, fields): (&Path, &Path),
) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut client = BufReader::new(StreamOwned::new(connection, stream));
    let request = Request::read(&mut client)?;
    let conversion = cron_jobs::converted(&request.line);
    let (body, line) = match &conversion {
        Some((_, line)) => (cron_jobs::request(&request.body), line),
        None => (request.body, &request.line),
    };
    let (body, mut dropped) = schemas.without_newer_fields(&body);
    let body = match pod_without_account(&body, line, socket) {
        Some(body) => {
            dropped.insert("Pod serviceAccountName".into());
            body
        }
        None => body,
    };
    note(fields, &dropped);
    let mut server = UnixStream::connect(socket).ok()?;
    let mut head = format!("{line}\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
    request.headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    server.write_all(head.as_bytes()).ok()?;
    server.write_all(&body).ok()?;
    let client = client.get_mut();
    match conversion {
        Some((conversion, _)) => cron_jobs::respond(conversion, server, client).ok()?,
        None => drop(std::io::copy(&mut server, client).ok()?),
    }
    client.conn.send_close_notify();
    client.flush().ok()
}

/// Returns a pod without its service account, if the account does not exist. An operator that the test
/// cluster lacks would create it.
fn pod_without_account(body: &[u8], line: &str, socket: &Path) -> Option<Vec<u8>> {
    let namespace = line.split("/api/v1/namespaces/").nth(1)?.split(['/', '?', ' ']).next()?;
    let mut pod: Value = serde_json::from_slice(body).ok()?;
    if pod["kind"] != "Pod" {
        return None;
    }
    let account = pod["spec"]["serviceAccountName"].as_str()?;
    let mut server = UnixStream::connect(socket).ok()?;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    write!(server, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let status = text_line(&mut BufReader::new(server))?;
    if !status.contains(" 404 ") {
        return None;
    }
    let spec = pod["spec"].as_object_mut()?;
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.remove(field);
    }
    Some(pod.to_string().into_bytes())
}

/// Appends the names of dropped fields to a file.
fn note(file: &Path, dropped: &BTreeSet<String>) {
    if !dropped.is_empty() {
        let lines: String = dropped.iter().map(|name| format!("{name}\n")).collect();
        let opened = fs::File::options().create(true).append(true).open(file);
        let _best_effort = opened.map(|mut file| file.write_all(lines.as_bytes()));
    }
}

/// Request of an HTTP/1.1 client.
struct Request {
    line: String,
    /// Headers except those of the connection and of its credentials.
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &mut impl BufRead) -> Option<Request> {
        const OWN: [&str; 8] = [
            "accept-encoding",
            "authorization",
            "connection",
            "content-length",
            "expect",
            "host",
            "transfer-encoding",
            "upgrade",
        ];
        let line = text_line(stream)?;
        let (mut headers, mut length, mut is_chunked) = (vec![], 0, false);
        loop {
            let header = text_line(stream)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':')?;
            let (name, value) = (name.to_ascii_lowercase(), value.trim());
            match name.as_str() {
                "content-length" => length = value.parse().ok()?,
                "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
                _ => {}
            }
            if !OWN.contains(&name.as_str()) {
                headers.push(header);
            }
        }
        let mut body = vec![];
        if is_chunked {
            while let Ok(size) = usize::from_str_radix(&text_line(stream)?, 16) {
                let start = body.len();
                body.resize(start + size, 0);
                stream.read_exact(&mut body[start..]).ok()?;
                text_line(stream)?;
                if size == 0 {
                    break;
                }
            }
        } else {
            body.resize(length, 0);
            stream.read_exact(&mut body).ok()?;
        }
        Some(Request { line, headers, body })
    }
}

fn text_line(stream: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let read = stream.by_ref().take(1 << 16).read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_headers_without_those_of_the_connection() {
        let text = "POST /api HTTP/1.1\r\nHost: a\r\nAuthorization: b\r\nAccept: c\r\n\
                    Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let request = Request::read(&mut BufReader::new(text.as_bytes())).unwrap();
        assert_eq!(
            (request.line.as_str(), request.body.as_slice()),
            ("POST /api HTTP/1.1", &b"abc"[..])
        );
        assert_eq!(request.headers, ["Accept: c"]);
        let text = "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabc";
        assert_eq!(Request::read(&mut BufReader::new(text.as_bytes())).unwrap().body, b"ab");
    }
}
