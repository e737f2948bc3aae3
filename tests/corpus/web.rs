//! Web for addresses that an app names: a proxy that answers them itself, with its own certificates.
use std::{
    io::{BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::Arc,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tests::Certificates;

/// Object behind the address of a manifest.
const MANIFEST: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: remote
data:
  source: a stand-in
";
const SCRIPT: &str = "#!/bin/sh\necho \"stand-in for a script\"\n";

/// Running proxy, until the process ends.
pub(crate) struct Web {
    certificates: Certificates,
    port: u16,
}

impl Web {
    /// Starts the proxy for these hosts.
    pub(crate) fn start(hosts: &[String]) -> Web {
        let certificates = Certificates::for_hosts(hosts);
        let config = certificates.server_config();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = Arc::clone(&config);
                std::thread::spawn(move || serve(stream, config));
            }
        });
        Web { certificates, port }
    }

    /// Makes a command use the proxy and trust its certificate.
    pub(crate) fn configure(&self, command: &mut Command) {
        let proxy = format!("http://127.0.0.1:{}", self.port);
        command.env("HTTPS_PROXY", proxy).env("SSL_CERT_FILE", self.certificates.ca());
    }
}

/// Answers one request in a tunnel.
fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    let mut plain = BufReader::new(stream);
    head(&mut plain)?;
    write!(plain.get_mut(), "HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, plain.into_inner()));
    let request = head(&mut stream)?;
    let path = request.split_whitespace().nth(1)?;
    let is_manifest = [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end));
    let body = if is_manifest { MANIFEST } else { SCRIPT };
    let length = body.len();
    let stream = stream.get_mut();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

/// Reads the head of a request, and returns its first line.
fn head(stream: &mut impl std::io::BufRead) -> Option<String> {
    let mut first = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            return first;
        }
        first.get_or_insert(line);
    }
}
