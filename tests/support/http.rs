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
    let _refused_early = stream.write_all(body);
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    answer(&bytes).unwrap_or_else(|| panic!("{method} {url}: no response ({read:?})"))
}

/// Sends a request with a shell that `words` start, for a host that is reachable only from there.
#[track_caller]
pub(crate) fn call_through(
    words: &[String],
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let (host, head) = head(method, url, headers, body);
    let (host, port) = host.split_once(':').unwrap();
    let talk = "exec 3<>/dev/tcp/$0/$1; cat >&3; exec cat <&3";
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args(["timeout", "30", "bash", "-c", talk, host, port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&[head.as_bytes(), body].concat()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    answer(&output.stdout).unwrap_or_else(|| panic!("{method} {url}: no response ({output:?})"))
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

fn answer(bytes: &[u8]) -> Option<HttpResponse> {
    let text = String::from_utf8_lossy(bytes);
    let (headers, body) = text.split_once("\r\n\r\n")?;
    let status = headers.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Some(HttpResponse { status, headers: headers.to_string(), body: body.to_string() })
}
