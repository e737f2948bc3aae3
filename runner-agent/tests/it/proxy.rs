//! Tests that a runner connects through its proxy, except to the servers in `NO_PROXY`.
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Runner at its first start, which tries to enrol.
struct Agent(Child);

impl Agent {
    fn start(dir: &Path, server: &str, (proxy, no_proxy): (&TcpListener, &str)) -> Agent {
        let token = dir.join("token");
        std::fs::write(&token, "a token").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead-runner"));
        for name in ["http_proxy", "https_proxy", "no_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let key = format!("sha256:{}", "0".repeat(64));
        let child = command
            .arg("--data")
            .arg(dir.join("data"))
            .args(["--mode", "install", "--server", server, "--server-key", &key, "--token-file"])
            .arg(token)
            .env("HTTPS_PROXY", format!("http://{}", proxy.local_addr().unwrap()))
            .env("NO_PROXY", no_proxy)
            .stdin(Stdio::null())
            .spawn();
        Agent(child.unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Accepts the next connection, within 20 seconds.
fn accept(listener: &TcpListener) -> TcpStream {
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                return stream;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no connection within 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let read = stream.read(&mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

#[test]
fn a_runner_connects_through_the_proxy_which_resolves_the_name() {
    let (dir, proxy) = (tempfile::tempdir().unwrap(), listener());
    // Only the proxy can resolve this name.
    let server = "https://stead.invalid:7071";
    let _agent = Agent::start(dir.path(), server, (&proxy, "other.invalid"));
    let mut stream = accept(&proxy);
    let request = String::from_utf8(read(&mut stream)).unwrap();
    assert!(request.starts_with("CONNECT stead.invalid:7071 HTTP/1.1\r\n"), "{request}");
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    assert_eq!(
        read(&mut stream).first(),
        Some(&TLS_HANDSHAKE),
        "the rest is encrypted for the server"
    );
}

#[test]
fn a_runner_does_not_use_the_proxy_for_a_server_in_no_proxy() {
    let (dir, proxy, server) = (tempfile::tempdir().unwrap(), listener(), listener());
    let address = format!("https://{}", server.local_addr().unwrap());
    let _agent = Agent::start(dir.path(), &address, (&proxy, "127.0.0.1"));
    assert_eq!(read(&mut accept(&server)).first(), Some(&TLS_HANDSHAKE));
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
