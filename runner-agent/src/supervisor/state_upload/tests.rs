//! Tests of late uploads with files of real states and a scripted server.
use std::fs;

use schemas::{manifest::Fence, runner::StateUpload};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{super::tests as fixtures, *};

fn head(serial: u64) -> StateHead {
    let digest = format!("hmac-sha256:1:{serial:064x}");
    let fence = Fence { epoch: 1, position: 9 };
    StateHead { lineage: "l".into(), serial, fence, digest, is_empty: false }
}

/// Stores a state of a component that the server does not have.
fn spool(agent: &Agent, component: &str, serial: u64) -> StateStore {
    let written_by = Some((fixtures::job(), fixtures::execution()));
    let upload = StateUpload { head: head(serial), written_by, is_decided: false };
    let root = agent.data.path("state");
    let store = StateStore::new(&root, component);
    fs::create_dir_all(store.dir()).unwrap();
    let file = store.dir().join("state.encrypted");
    fs::write(file, format!("{}\nciphertext", serde_json::to_string(&upload).unwrap())).unwrap();
    store
}

fn stored(serial: u64) -> &'static str {
    format!("200 OK|{}", serde_json::to_string(&head(serial)).unwrap()).leak()
}

fn rejection(status: u16, code: &str) -> &'static str {
    let problem = schemas::problem::Problem::new(status, code, "title", "detail");
    format!("{status} Status|{}", serde_json::to_string(&problem).unwrap()).leak()
}

#[tokio::test]
async fn a_drain_uploads_every_state() {
    // An answer of a proxy is no response of the server.
    let proxy = "502 Bad Gateway|<html>";
    let (_dir, agent, requests) = fixtures::agent(vec![proxy, stored(7)]).await;
    let store = spool(&agent, "web", 7);
    assert_eq!(pending_components(&agent), ["web"]);
    assert_eq!(finish(&agent).await, Vec::<String>::new());
    assert_eq!(store.pending().unwrap(), None);
    let requests = requests.lock().unwrap();
    assert!(requests.iter().all(|request| request.starts_with("PUT /runner/v1/state/web ")));
    assert!(requests[1].contains(&format!("execution: {}", fixtures::execution())));
}

#[tokio::test]
async fn a_drain_names_the_component_whose_state_only_this_host_has() {
    for (status, code) in [(409, "state_conflict"), (412, "fenced"), (507, "state_quota_exceeded")]
    {
        let (_dir, agent, requests) = fixtures::agent(vec![rejection(status, code)]).await;
        let store = spool(&agent, "web", 7);
        assert_eq!(finish(&agent).await, ["web"], "{code}");
        assert!(store.pending().unwrap().is_some() && requests.lock().unwrap().len() == 1);
    }
}

#[tokio::test]
async fn a_second_signal_ends_a_drain_that_gets_no_response() {
    let (_dir, agent, requests, signals) = fixtures::agent_with_signals(vec![]).await;
    spool(&agent, "web", 7);
    signals.send(StopLevel::Detach).unwrap();
    assert_eq!(finish(&agent).await, ["web"]);
    assert!(requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_component_without_a_response_does_not_hold_up_the_others() {
    let (dir, mut agent, _) = fixtures::agent(vec![]).await;
    // Given a server that never responds about `a_slow`.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65536];
            let read = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            if !request.contains("a_slow") {
                let body = stored(7).split_once('|').unwrap().1;
                let (head, length) = ("HTTP/1.1 200 OK\r\nconnection: close", body.len());
                let text = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
            open.push(stream);
        }
    });
    let client = crate::client::Client::new(&base, &crate::tls::Trust::Public).unwrap();
    Arc::get_mut(&mut agent).unwrap().client = client;
    let slow = spool(&agent, "a_slow", 7);
    let others: Vec<_> = (0..6).map(|n| spool(&agent, &format!("b{n}"), 7)).collect();
    let uploads = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { match run(&agent).await {} }
    });
    let is_uploaded = |store: &StateStore| store.pending().unwrap().is_none();
    fixtures::until("the other states", || others.iter().all(is_uploaded)).await;
    assert!(!is_uploaded(&slow));
    uploads.abort();
    drop(dir);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_state_is_sent_again_after_a_long_pause_and_a_newer_one_at_once() {
    let mut uploads = Uploads::default();
    let error = |code: &str| ServerRejection {
        status: 412,
        problem: schemas::problem::Problem::new(412, code, "title", "detail"),
        have: None,
    };
    uploads.ended(Ok(("web".into(), Outcome::Rejected(head(7), error("fenced")))));
    let failed = &uploads.failed["web"];
    assert_eq!((failed.count, failed.next - Instant::now()), (1, REJECTED_PAUSE));
    uploads.ended(Ok(("web".into(), Outcome::Rejected(head(7), error("fenced")))));
    assert_eq!(uploads.failed["web"].count, 2);
    uploads.ended(Ok(("web".into(), Outcome::NoResponse(head(8)))));
    let failed = &uploads.failed["web"];
    assert_eq!((failed.count, failed.next - Instant::now()), (1, INTERVAL));
    uploads.ended(Ok(("web".into(), Outcome::Stored(Some(head(8))))));
    assert!(uploads.failed.is_empty());
}
