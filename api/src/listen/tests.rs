//! Tests with real connections, with and without TLS.
use std::{fs, path::Path, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::extract::Raw;

#[tokio::test]
async fn a_port_in_use_is_named_with_the_flag_that_changes_it() {
    let first = open("127.0.0.1:0".parse().unwrap(), "--control-listen", false, false).await;
    let first = first.unwrap();
    let again = open(first.address, "--control-listen", false, false).await;
    let refusal = again.err().unwrap().to_string();
    assert!(refusal.contains(&first.address.to_string()), "{refusal}");
    assert!(refusal.contains("--control-listen"), "{refusal}");
}

#[tokio::test]
async fn plain_http_outside_loopback_requires_a_flag() {
    let outside: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let refused = open(outside, "--runner-listen", false, false).await.err().unwrap();
    assert!(matches!(refused, ListenError::Plain { .. }));
    assert!(open(outside, "--runner-listen", true, false).await.is_ok());
    let door = open(outside, "--runner-listen", false, true).await.unwrap();
    assert_eq!(door.url(true), format!("https://127.0.0.1:{}", door.address.port()));
}

/// Writes a certificate for 127.0.0.1 and its key to files.
pub(super) fn certificate(directory: &Path, name: &str) -> (Certificate, String) {
    let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    let (chain, key) =
        (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    fs::write(&chain, generated.cert.pem()).unwrap();
    fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    (Certificate { chain, key }, generated.cert.pem())
}

async fn door(tls: bool) -> BoundListener {
    open("127.0.0.1:0".parse().unwrap(), "--runner-listen", false, tls).await.unwrap()
}

fn routes() -> Router {
    Router::new().route("/", get(|| async { "here" }))
}

#[tokio::test]
async fn only_a_client_that_pins_the_certificate_connects() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, pem) = certificate(dir.path(), "server");
    let (door, stop) = (door(true).await, CancellationToken::new());
    let url = door.url(true);
    let tls = Some(acceptor(&certificate).unwrap());
    let serving = tokio::spawn(serve(
        ("test", door.listener),
        tls,
        routes(),
        Limits::default(),
        stop.clone(),
    ));

    let pinned = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
    let client = reqwest::Client::builder().add_root_certificate(pinned).build().unwrap();
    let answer = client.get(&url).send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    assert_eq!(answer.text().await.unwrap(), "here");
    assert!(reqwest::Client::new().get(&url).send().await.is_err(), "an unknown authority");
    let plain = url.replace("https", "http");
    assert!(client.get(&plain).send().await.is_err(), "plain HTTP at the TLS port");
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, _) = certificate(dir.path(), "ours");
    let (other, _) = certificate(dir.path(), "other");
    let mixed = Certificate { chain: ours.chain.clone(), key: other.key };
    let refusal = acceptor(&mixed).err().unwrap().to_string();
    assert!(refusal.contains("cannot be used together"), "{refusal}");
    fs::write(&ours.chain, "").unwrap();
    let refusal = acceptor(&ours).err().unwrap().to_string();
    assert!(refusal.contains("ours.crt"), "{refusal}");
}

#[tokio::test]
async fn oversized_or_endless_head_is_rejected() {
    let (door, stop) = (door(false).await, CancellationToken::new());
    let address = door.address;
    let limits = Limits { head: Duration::from_millis(300), ..Limits::default() };
    let serving =
        tokio::spawn(serve(("test", door.listener), None, routes(), limits, stop.clone()));

    let mut long = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(20 * 1024));
    // The server may respond and close before it has read everything.
    let _ = long.write_all(head.as_bytes()).await;
    let mut answer = String::new();
    let _ = long.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), slow.read_to_string(&mut answer));
    ended.await.expect("the connection is ended").unwrap();
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn stalled_body_is_rejected() {
    let (door, stop) = (door(false).await, CancellationToken::new());
    let address = door.address;
    let routes = Router::new().route("/", post(|Raw(body): Raw| async move { body }));
    let limits = Limits { body_idle: Duration::from_millis(300), ..Limits::default() };
    let serving = tokio::spawn(serve(("test", door.listener), None, routes, limits, stop.clone()));

    let head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nconnection: close\r\n\r\n";
    // A slow body is accepted.
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    slow.write_all(head).await.unwrap();
    for piece in [b"a", b"b", b"c"] {
        tokio::time::sleep(Duration::from_millis(150)).await;
        slow.write_all(piece).await.unwrap();
    }
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("abc"), "{answer}");

    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    silent.write_all(head).await.unwrap();
    silent.write_all(b"a").await.unwrap();
    let mut answer = String::new();
    let ended = tokio::time::timeout(Duration::from_secs(5), silent.read_to_string(&mut answer));
    ended.await.expect("the connection is ended").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn open_requests_are_cut_after_the_drain() {
    let (door, stop) = (door(false).await, CancellationToken::new());
    let (url, forever) =
        (door.url(false), Router::new().route("/", get(std::future::pending::<()>)));
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limits = Limits { drain: Duration::from_millis(200), ..Limits::default() };
    let serving = tokio::spawn(serve(("test", door.listener), None, forever, limits, stop.clone()));
    let call = tokio::spawn(async move { reqwest::Client::new().get(url).send().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
    assert!(call.await.unwrap().is_err());
}

#[test]
fn only_a_chain_with_its_root_can_be_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "our own");
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["stead.example".to_string()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let at = |name: &str, pem: String| {
        let chain = dir.path().join(name);
        fs::write(&chain, pem).unwrap();
        Certificate { chain, key: dir.path().join("key") }
    };
    let whole = at("whole", leaf.pem() + &ca.pem());
    let expected =
        format!("sha256:{}", hex::encode(<sha2::Sha256 as sha2::Digest>::digest(ca.der())));
    assert_eq!(private_root(&whole), Some(expected));
    assert_eq!(private_root(&at("leaf", leaf.pem())), None);
    assert!(private_root(&certificate(dir.path(), "alone").0).is_some());
}
