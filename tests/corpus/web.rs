//! Web for addresses that an app names: a proxy that responds itself, with its own
//! certificates.
use std::{
    collections::BTreeMap,
    io::{BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tests::Certificates;

/// Object behind the address of a manifest. It needs no namespace.
const MANIFEST: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: corpus-remote
rules: []
";
const SCRIPT: &str = "#!/bin/sh\necho \"stand-in for a script\"\n";

/// Running proxy, until the process ends.
pub(crate) struct Web {
    certificates: Certificates,
    port: u16,
}

impl Web {
    /// Starts the proxy for these hosts. Files have their address without `https://`. Other addresses
    /// have a stand-in.
    pub(crate) fn start(hosts: &[String], files: BTreeMap<String, Vec<u8>>) -> Web {
        let certificates = Certificates::for_hosts(hosts);
        let files = Arc::new(files);
        let config = certificates.server_config();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, files) = (Arc::clone(&config), Arc::clone(&files));
                std::thread::spawn(move || serve(stream, config, &files));
            }
        });
        Web { certificates, port }
    }

    /// Returns the variables with which a program uses the proxy and trusts its certificate.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        let proxy = format!("http://127.0.0.1:{}", self.port);
        [("HTTPS_PROXY", proxy), ("SSL_CERT_FILE", self.certificates.ca().display().to_string())]
    }
}

/// Responds to one request in a tunnel.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    files: &BTreeMap<String, Vec<u8>>,
) -> Option<()> {
    let mut plain = BufReader::new(stream);
    let connect = head(&mut plain)?;
    let host = connect.split_whitespace().nth(1)?.split(':').next()?;
    write!(plain.get_mut(), "HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, plain.into_inner()));
    let request = head(&mut stream)?;
    let path = request.split_whitespace().nth(1)?;
    let is_manifest = [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end));
    let stand_in = if is_manifest { MANIFEST } else { SCRIPT };
    let body = files.get(&format!("{host}{path}")).map_or(stand_in.as_bytes(), Vec::as_slice);
    let length = body.len();
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
        .ok()?;
    stream.write_all(body).ok()?;
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
