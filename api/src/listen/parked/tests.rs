//! Tests of parked connections over real sockets.
use std::{future::Future, net::SocketAddr, time::Duration};

use axum::{Extension, Router, response::IntoResponse as _, routing::post};
use futures::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::super::{Limits, ParkedResponse, acceptor, open, serve, tests::certificate};

/// Receives a sender for each deferred response. The sender is closed when its caller has
/// disconnected.
type Waits = mpsc::UnboundedReceiver<oneshot::Sender<&'static str>>;

/// More bytes than the socket buffers of both sides hold.
const LARGE: usize = 32 << 20;

struct Served {
    address: SocketAddr,
    waits: Waits,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// Serves `/wait`, which defers its response and includes the request's body, and `/`, which
/// responds immediately.
async fn served(tls: Option<tokio_rustls::TlsAcceptor>) -> Served {
    let (requests, waits) = mpsc::unbounded_channel();
    let wait = move |parked: Option<Extension<ParkedResponse>>, body: String| {
        let (sender, receiver) = oneshot::channel();
        requests.send(sender).unwrap();
        let later = receiver.map(move |text| format!("{body} {}", text.unwrap()).into_response());
        async move {
            match parked {
                Some(Extension(parked)) => parked.defer(later.boxed()),
                None => later.await,
            }
        }
    };
    let routes = Router::new()
        .route("/wait", post(wait))
        .route("/", post(|| async { "at once" }))
        .route("/large", post(|| async { "y".repeat(LARGE) }));
    let door = open("127.0.0.1:0".parse().unwrap(), "--x", false, tls.is_some()).await.unwrap();
    let (address, stop) = (door.address, CancellationToken::new());
    let limits = Limits { drain: Duration::from_secs(2), ..Limits::default() };
    let serving = serve(("test", door.listener), tls, routes, limits, stop.clone());
    Served { address, waits, stop, serving: tokio::spawn(serving) }
}

impl Served {
    async fn next(&mut self) -> oneshot::Sender<&'static str> {
        soon(self.waits.recv()).await.unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        soon(self.serving).await.unwrap();
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), what).await.expect("timed out")
}

fn call(path: &str, body: &str, more: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{more}content-length: {length}\r\n\r\n{body}")
        .into()
}

/// Reads one response whose body has this end.
async fn read_response(stream: &mut TcpStream, end: &str) -> String {
    let mut response = String::new();
    while !response.ends_with(end) {
        let mut some = [0; 1024];
        let read = soon(stream.read(&mut some)).await.unwrap();
        assert!(read > 0, "ended after {response:?}");
        response.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    response
}

#[tokio::test]
async fn deferred_response_equals_a_direct_one_and_keeps_the_connection() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    for (body, text) in [("first", "yes"), ("second", "no")] {
        stream.write_all(&call("/wait", body, "")).await.unwrap();
        let sender = served.next().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        sender.send(text).unwrap();
        let response = read_response(&mut stream, &format!("{body} {text}")).await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(
            response.contains("\r\ndate: ") && !response.contains("connection: close"),
            "{response}"
        );
        stream.write_all(&call("/", "", "")).await.unwrap();
        read_response(&mut stream, "at once").await;
    }
    served.end().await;
}

#[tokio::test]
async fn request_during_a_deferred_response_is_served_after_it() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    // The client sends a second request together with the first, and a third one while the first
    // waits.
    let two = [call("/wait", "first", ""), call("/wait", "second", "")].concat();
    stream.write_all(&two).await.unwrap();
    let sender = served.next().await;
    stream.write_all(&call("/", "", "")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    sender.send("yes").unwrap();
    read_response(&mut stream, "first yes").await;
    served.next().await.send("too").unwrap();
    let rest = read_response(&mut stream, "at once").await;
    assert!(rest.contains("second too"), "{rest}");
    served.end().await;
}

#[tokio::test]
async fn disconnect_drops_the_deferred_response() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(&call("/wait", "x", "")).await.unwrap();
    let mut sender = served.next().await;
    assert!(!sender.is_closed());
    drop(stream);
    soon(sender.closed()).await;
    served.end().await;
}

#[tokio::test]
async fn last_response_before_shutdown_closes_the_connection() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(&call("/wait", "x", "")).await.unwrap();
    let sender = served.next().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    served.stop.cancel();
    sender.send("bye").unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    assert!(response.contains("connection: close") && response.ends_with("x bye"), "{response}");
    served.end().await;
}

#[tokio::test]
async fn endless_deferred_response_is_cut_at_shutdown() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(&call("/wait", "x", "")).await.unwrap();
    let mut sender = served.next().await;
    served.stop.cancel();
    timeout(Duration::from_secs(30), sender.closed()).await.expect("cut after the drain");
    served.end().await;
}

#[tokio::test]
async fn connection_close_request_is_not_parked() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(&call("/wait", "x", "connection: close\r\n")).await.unwrap();
    served.next().await.send("bye").unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    assert!(response.contains("connection: close") && response.ends_with("x bye"), "{response}");
    served.end().await;
}

#[tokio::test]
async fn deferred_response_does_not_cut_an_unsent_response() {
    let mut served = served(None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let both = [call("/large", "", ""), call("/wait", "x", "")].concat();
    stream.write_all(&both).await.unwrap();
    // The server reads the second request when the first is complete, long before the client has
    // received its response.
    let request = timeout(Duration::from_millis(500), served.waits.recv()).await;
    let mut answers = vec![0; LARGE];
    soon(stream.read_exact(&mut answers)).await.unwrap();
    let sender = match request {
        Ok(sender) => sender.unwrap(),
        Err(_) => served.next().await,
    };
    sender.send("later").unwrap();
    let mut rest = Vec::new();
    while !rest.ends_with(b"x later") {
        assert_ne!(soon(stream.read_buf(&mut rest)).await.unwrap(), 0);
    }
    answers.extend(rest);
    let text = String::from_utf8(answers).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2);
    assert!(text.contains(&format!("{}HTTP/1.1 200 OK", "y".repeat(LARGE))));
    drop(stream);
    served.end().await;
}

#[tokio::test]
async fn deferred_responses_work_over_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, pem) = certificate(dir.path(), "server");
    let mut served = served(Some(acceptor(&certificate).unwrap())).await;
    let pinned = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
    for client in [reqwest::Client::builder(), reqwest::Client::builder().http1_only()] {
        let client = client.add_root_certificate(pinned.clone()).build().unwrap();
        for body in ["first", "second"] {
            let url = format!("https://{}/wait", served.address);
            let request = tokio::spawn(client.post(url).body(body).send());
            let sender = served.next().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            sender.send("yes").unwrap();
            let response = soon(request).await.unwrap().unwrap();
            assert_eq!(response.text().await.unwrap(), format!("{body} yes"));
        }
        let url = format!("https://{}/wait", served.address);
        let request = tokio::spawn(client.post(url).send());
        let mut sender = served.next().await;
        request.abort();
        drop((request, client));
        soon(sender.closed()).await;
    }
    served.end().await;
}
