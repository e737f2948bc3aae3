//! Webhooks of a real server: messages survive a server that is killed, and an endpoint that fails.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tests::{Runner, Server, notes_files, program, until};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Endpoint that responds with a status and counts the messages about each position.
struct Receiver {
    url: String,
    status: Arc<AtomicU16>,
    accepted: Arc<Mutex<BTreeMap<u64, u32>>>,
}

impl Receiver {
    fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (status, accepted) = (Arc::new(AtomicU16::new(500)), Arc::default());
        let receiver = Receiver { url, status, accepted };
        let (status, accepted) = (receiver.status.clone(), receiver.accepted.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (status, accepted) = (status.clone(), accepted.clone());
                std::thread::spawn(move || respond(stream, &status, &accepted));
            }
        });
        receiver
    }

    fn accepted(&self) -> BTreeMap<u64, u32> {
        self.accepted.lock().unwrap().clone()
    }
}

/// Reads one request and responds. A connection that ends early is ignored.
fn respond(
    stream: TcpStream,
    status: &AtomicU16,
    accepted: &Mutex<BTreeMap<u64, u32>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            None if line.trim().is_empty() => break,
            Some(_) | None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let status = status.load(Ordering::SeqCst);
    let message: Value = serde_json::from_slice(&body).ok()?;
    if let (200, Some(position)) = (status, message["data"]["position"].as_u64()) {
        *accepted.lock().unwrap().entry(position).or_default() += 1;
    }
    let response = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.get_mut().write_all(response.as_bytes()).ok()
}

/// Positions of the events on the topics of the test.
fn positions(server: &Server) -> BTreeSet<u64> {
    let of = |kind: &str| {
        let events = server.cli_json(&["audit", "events", "--type", kind]);
        let events = events.as_array().unwrap().clone();
        events.into_iter().map(|event| event["position"].as_u64().unwrap())
    };
    of("run.approval_requested").chain(of("run.finished")).collect()
}

/// Deploys again, which changes nothing, and waits for the end of the run.
fn deploy(server: &Server) {
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    until("the run to end", TIMEOUT, || {
        server.cli_json(&["runs", "show", "acme"])["state"] == "succeeded"
    });
}

#[test]
fn no_message_is_lost_over_kills_of_the_server() {
    // given a webhook whose endpoint fails
    let mut server = Server::up_with("127.0.0.1:0", &["--webhooks-to-private-networks"]);
    let receiver = Receiver::start();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let mut set = vec!["webhooks", "set", "ops", "--url", &receiver.url];
    for topic in ["run.approval_requested", "run.succeeded", "run.failed"] {
        set.extend(["--topic", topic]);
    }
    let configured = server.cli_json(&set);
    assert!(configured["secret"].as_str().unwrap().starts_with("whsec_"));
    let created =
        server.cli_json(&["installs", "create", "notes-files", "acme", "--input", "company=A"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let plugins = server.dir().join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let _runner =
        Runner::start_with(&server, "acme", token, &["--plugin-dir", plugins.to_str().unwrap()]);

    // when the server is killed after each of several events
    // Before its first run, the install has none to show.
    let state = |server: &Server| {
        let run = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        let run: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
        run["state"].as_str().unwrap_or_default().to_owned()
    };
    for approved in 0.. {
        until("a plan that waits, or the end", TIMEOUT, || {
            ["waiting_for_approval", "succeeded"].contains(&state(&server).as_str())
        });
        if state(&server) == "succeeded" {
            assert!(approved > 0);
            break;
        }
        server.kill();
        server.restart();
        server.cli_json(&["runs", "approve", "acme", "--all", "--reason", "the test says so"]);
    }
    deploy(&server);
    server.kill();
    receiver.status.store(200, Ordering::SeqCst);
    server.restart();
    // Their next attempts can be minutes away.
    server.cli_json(&["webhooks", "replay", "ops", "--state", "pending"]);

    // then the endpoint gets a message about each event
    let expected = positions(&server);
    assert!(expected.len() >= 3, "{expected:?}");
    let accepted = || receiver.accepted().into_keys().collect::<BTreeSet<_>>();
    until("all messages", TIMEOUT, || accepted() == expected);
    until("all results to be stored", TIMEOUT, || {
        let pending = server.cli_json(&["webhooks", "deliveries", "ops", "--state", "pending"]);
        pending.as_array().unwrap().is_empty()
    });

    // and gets all of them again after a replay
    let before = receiver.accepted();
    let replayed = server.cli_json(&["webhooks", "replay", "ops"]);
    assert_eq!(replayed["deliveries"], expected.len());
    until("the replayed messages", TIMEOUT, || {
        let now = receiver.accepted();
        before.iter().all(|(position, count)| now[position] > *count)
    });
    let tested = server.cli_json(&["webhooks", "test", "ops"]);
    assert_eq!(tested["status"], 200);
    assert!(!server.log().contains("/hook"), "a log line contains the URL");
}
