//! Raw HTTP, for requests that no well-behaved client sends.
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

#[derive(Debug)]
pub struct HttpResponse {
    /// HTTP status; 0 if the status line cannot be parsed.
    pub status: u16,
    /// Header lines of the response, unparsed.
    pub headers: String,
    /// Body as text.
    pub body: String,
}

impl HttpResponse {
    /// Returns the body as JSON, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Returns the code of a problem.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_string()
    }
}

/// Sends one request without TLS. `url` is `http://host:port/path`.
#[track_caller]
pub fn call(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
    let (host, head) = head(method, url, headers, body);
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A server that rejects a long body need not read all of it.
    let _may_fail = stream.write_all(body);
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    parse_response(&bytes).unwrap_or_else(|| panic!("{method} {url}: no response ({read:?})"))
}

/// Sends a request with a shell that `prefix` starts, for a host that only this shell can reach.
#[track_caller]
pub(crate) fn call_through(
    prefix: &[String],
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let (host, head) = head(method, url, headers, body);
    let (host, port) = host.split_once(':').unwrap();
    let script = "exec 3<>/dev/tcp/$0/$1; cat >&3; exec cat <&3";
    let mut child = Command::new(&prefix[0])
        .args(&prefix[1..])
        .args(["timeout", "30", "bash", "-c", script, host, port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&[head.as_bytes(), body].concat()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    parse_response(&output.stdout)
        .unwrap_or_else(|| panic!("{method} {url}: no response ({output:?})"))
}

/// Returns the host with its port, and everything before the body.
#[track_caller]
fn head<'u>(
    method: &str,
    url: &'u str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (&'u str, String) {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url} is not plain HTTP"));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    (host, head)
}

fn parse_response(bytes: &[u8]) -> Option<HttpResponse> {
    let text = String::from_utf8_lossy(bytes);
    let (headers, body) = text.split_once("\r\n\r\n")?;
    let status = headers.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Some(HttpResponse { status, headers: headers.to_string(), body: body.to_string() })
}
