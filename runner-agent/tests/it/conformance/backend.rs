//! Tests of the HTTP backend that serves the state to Terraform: locks, limits, and a server that
//! rejects a state or does not respond.

use std::{
    collections::VecDeque,
    fs, io,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::ids::{ExecutionId, InstallId, JobId};
use install_keys::{InstallKeys, Seed};
use reqwest::{Method, StatusCode};
use runner_agent::{
    plugins::{Background, Cancel},
    state::{
        Access, Backend, Basis, Decision, Known, KnownState, Remote, Session, StateKeys, StateStore,
    },
};
use schemas::{
    manifest::Fence,
    runner::{STATE_BYTES, StateHead},
};
use tempfile::TempDir;
use ulid::Ulid;
use zeroize::Zeroizing;

use super::state_server::{StateServer, Uploads};

#[derive(Debug)]
struct Quiet;

impl Background for Quiet {
    fn secret(&self, _: Zeroizing<String>) {}
    fn line(&self, _: &str) {}
    fn state(&self, _: &str, _: &StateHead) -> io::Result<()> {
        Ok(())
    }
}

struct Fixture {
    _dir: TempDir,
    store: StateStore,
    cancel: Cancel,
    backend: Backend,
    http: reqwest::Client,
}

fn setting(backend: &Backend, name: &str) -> String {
    backend.env().find(|(key, _)| key == name).unwrap().1
}

impl Fixture {
    async fn new(uploads: Uploads) -> Fixture {
        Fixture::in_job(uploads, true).await
    }

    async fn in_job(uploads: Uploads, is_writable: bool) -> Fixture {
        // Only the first call of a process succeeds. All tests use the same provider.
        let _first = rustls::crypto::ring::default_provider().install_default();
        let (dir, http) = (tempfile::tempdir().unwrap(), reqwest::Client::new());
        let keys = InstallKeys::new(&Seed::from_bytes(&[7; 32]), 1);
        let keys = StateKeys::derive(&keys, "log", InstallId(Ulid::nil()), ["web"]);
        let cipher = keys.component("web");
        let store = StateStore::new(dir.path(), "web").with_cipher(cipher.clone());
        fs::create_dir(store.dir()).unwrap();
        let cancel = Cancel::default();
        let access = Access {
            cipher: cipher.unwrap(),
            fence: Fence { epoch: 1, position: 7 },
            written_by: (JobId(Ulid::nil()), ExecutionId(Ulid::nil())),
            remote: Remote::new(http.clone(), &StateServer::start(uploads).url, "token", "web"),
            background: Arc::new(Quiet),
            cancel: cancel.clone(),
        };
        let known = KnownState::default();
        let known = Known { own: &known, log: None };
        let session = Session::open(store.clone(), access, known, || Ok(())).await.unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = Backend::start(Arc::new(session), &port, is_writable).unwrap();
        Fixture { _dir: dir, store, cancel, backend, http }
    }

    fn request(&self, method: &str, query: &str, body: Vec<u8>) -> reqwest::RequestBuilder {
        let url = format!("{}{query}", setting(&self.backend, "TF_HTTP_ADDRESS"));
        let password = self.backend.password().as_str();
        let request = self.http.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
        request.basic_auth("stead", Some(password)).body(body)
    }

    async fn call(&self, method: &str, query: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
        let response = self.request(method, query, body.into()).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn lock(&self, id: &str) -> (u16, String) {
        self.call("LOCK", "", owner(id)).await
    }

    async fn post(&self, state: impl Into<Vec<u8>>) -> u16 {
        self.call("POST", "?ID=a", state).await.0
    }

    async fn get(&self) -> (u16, String) {
        self.call("GET", "", "").await
    }

    fn pending(&self) -> Option<u64> {
        self.store.pending().unwrap().map(|upload| upload.head.serial)
    }
}

fn owner(id: &str) -> String {
    format!(r#"{{"ID":"{id}","Who":"owner of {id}"}}"#)
}

fn state(serial: u64) -> String {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"l","resources":[]}}"#)
}

#[tokio::test]
async fn the_lock_has_one_owner() {
    let fixture = Fixture::new(Uploads::Accept).await;
    assert_eq!(fixture.get().await, (204, String::new()));
    assert_eq!(fixture.post(state(1)).await, 423, "the lock was released");
    assert_eq!(fixture.lock("a").await.0, 200);
    assert_eq!(fixture.lock("a").await.0, 200, "the response was lost");
    assert_eq!(fixture.lock("b").await, (423, owner("a")));
    assert_eq!(fixture.call("POST", "?ID=b", state(1)).await, (423, owner("a")));
    assert_eq!(fixture.call("POST", "", state(1)).await, (423, owner("a")));
    assert_eq!(fixture.call("UNLOCK", "", owner("b")).await, (409, owner("a")));
    assert_eq!(fixture.call("UNLOCK", "", "").await, (409, owner("a")));
    assert_eq!(fixture.call("LOCK", "", "{}").await.0, 400);
    assert_eq!(fixture.post(state(1)).await, 200);
    assert_eq!(fixture.get().await, (200, state(1)));
    assert_eq!(fixture.call("UNLOCK", "", owner("a")).await.0, 200);
    assert_eq!(fixture.lock("b").await.0, 200);
}

#[tokio::test]
async fn a_client_without_locks_writes_while_nobody_has_the_lock() {
    let fixture = Fixture::new(Uploads::Accept).await;
    assert_eq!(fixture.call("POST", "", state(1)).await.0, 200);
    assert_eq!(fixture.get().await, (200, state(1)));
}

#[tokio::test]
async fn a_plan_cannot_write_the_state() {
    let fixture = Fixture::in_job(Uploads::Accept, false).await;
    assert_eq!(fixture.call("POST", "", state(1)).await.0, 403);
    assert_eq!(fixture.lock("a").await.0, 200);
    assert_eq!(fixture.post(state(1)).await, 403);
    assert_eq!(fixture.get().await, (204, String::new()));
    assert!(fixture.store.stored().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_does_not_hold_up_the_job() {
    let fixture = Fixture::new(Uploads::Accept).await;
    let url = setting(&fixture.backend, "TF_HTTP_ADDRESS");
    let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (stopped, counts) = (Arc::clone(&stop), Arc::clone(&made));
    let flood = std::thread::spawn(move || {
        let mut open = VecDeque::new();
        while !stopped.load(Ordering::Relaxed) {
            if let Ok(connection) = TcpStream::connect(&address) {
                open.push_back(connection);
                counts.fetch_add(1, Ordering::Relaxed);
            }
            if open.len() > 400 {
                open.pop_front();
            }
        }
    });
    let reached = async |number: usize| {
        while made.load(Ordering::Relaxed) < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    reached(1000).await;
    let attempts: usize = setting(&fixture.backend, "TF_HTTP_RETRY_MAX").parse().unwrap();
    // Terraform repeats a request whose connection was closed.
    let repeated = async |method: &str, query: &str, body: String| {
        for _ in 0..=attempts {
            let sent = fixture.request(method, query, body.clone().into_bytes()).send().await;
            if let Ok(response) = sent {
                return response.status().as_u16();
            }
        }
        panic!("{method} failed {attempts} times");
    };
    for serial in 1..=20 {
        assert_eq!(repeated("LOCK", "", owner("a")).await, 200);
        assert_eq!(repeated("POST", "?ID=a", state(serial)).await, 200);
        assert_eq!(repeated("UNLOCK", "", owner("a")).await, 200);
        // Other connections replace each earlier one.
        reached(1000 + 300 * usize::try_from(serial).unwrap()).await;
    }
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert_eq!(fixture.get().await, (200, state(20)));
}

#[tokio::test]
async fn only_the_job_reaches_its_backend() {
    let fixture = Fixture::new(Uploads::Accept).await;
    let url = setting(&fixture.backend, "TF_HTTP_ADDRESS");
    let wrong = fixture.http.get(&url).basic_auth("stead", Some("wrong")).send().await.unwrap();
    let anonymous = fixture.http.get(&url).send().await.unwrap();
    let other = fixture.request("GET", "x", vec![]).send().await.unwrap();
    let statuses = [wrong, anonymous, other].map(|response| response.status().as_u16());
    assert_eq!(statuses, [401, 401, 403]);
    assert_eq!(fixture.call("DELETE", "", "").await.0, 405);
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    // It ends with the job.
    drop(fixture.backend);
    let mut is_gone = false;
    for _ in 0..100 {
        is_gone |= fixture.http.get(&url).send().await.is_err();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_of_other_processes_do_not_hold_up_the_job() {
    let fixture = Fixture::new(Uploads::Accept).await;
    let url = setting(&fixture.backend, "TF_HTTP_ADDRESS");
    let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    // Given connections without a request, and some whose request has no password and never ends.
    let mut idle: Vec<TcpStream> = Vec::new();
    for number in 0..560 {
        let mut connection = TcpStream::connect(&address).unwrap();
        if number % 2 == 0 {
            let head = format!("POST /{number} HTTP/1.1\r\ncontent-length: 9\r\n\r\n");
            // The backend may have closed it.
            let _closed = connection.write_all(head.as_bytes());
        }
        idle.push(connection);
        if number == 160 {
            assert_eq!(fixture.lock("a").await.0, 200);
        }
    }
    assert_eq!(fixture.post(state(1)).await, 200);
    assert_eq!(fixture.get().await, (200, state(1)));
    // The newest idle connection is closed as well, when it has sent no request for some time.
    let mut newest = idle.pop().unwrap();
    newest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let ended = tokio::task::spawn_blocking(move || newest.read_to_end(&mut Vec::new()));
    ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_body_that_differs_from_its_digest_changes_nothing() {
    let fixture = Fixture::new(Uploads::Accept).await;
    fixture.lock("a").await;
    let post = async |state: String, digest: &str| {
        let request = fixture.request("POST", "?ID=a", state.into_bytes());
        let response = request.header("content-md5", digest).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    // As `openssl md5 -binary | base64` prints it.
    let digest = "1lKvhfrUogxGm/53XVKTdw==";
    assert_eq!(post(state(1), digest).await.0, 200);
    for digest in [digest, "", "no base64"] {
        let (status, why) = post(state(2), digest).await;
        assert_eq!(status, 400, "{digest:?}");
        assert!(why.contains("Content-MD5"), "{why}");
    }
    assert_eq!(fixture.get().await, (200, state(1)));
}

#[tokio::test]
async fn a_body_that_is_no_state_or_too_large_changes_nothing() {
    let fixture = Fixture::new(Uploads::Accept).await;
    fixture.lock("a").await;
    assert_eq!(fixture.post(state(1)).await, 200);
    for invalid in ["", "{}", "[1]", r#"{"serial":2}"#, r#"{"serial":2,"lineage":"a b"}"#] {
        assert_eq!(fixture.post(invalid).await, 400, "{invalid}");
    }
    let of_size = |size: u64| {
        let (start, end) = (r#"{"serial":2,"lineage":"l","outputs":{},"x":""#, r#""}"#);
        let padding = usize::try_from(size).unwrap() - start.len() - end.len();
        format!("{start}{}{end}", "x".repeat(padding))
    };
    assert_eq!(fixture.post(of_size(STATE_BYTES + 1)).await, 413);
    assert_eq!(fixture.get().await, (200, state(1)));
    assert_eq!(fixture.post(of_size(STATE_BYTES)).await, 200);
    assert_eq!(fixture.get().await.1.len() as u64, STATE_BYTES);
    assert_eq!(fixture.pending(), None);
}

#[tokio::test]
async fn a_rejected_state_is_not_acknowledged_and_kept_as_a_rescue() {
    let fixture = Fixture::new(Uploads::Reject).await;
    fixture.lock("a").await;
    let (status, why) = fixture.call("POST", "?ID=a", state(1)).await;
    assert_eq!(status, 409);
    assert!(why.contains("another host has written"), "{why}");
    assert_eq!(fixture.get().await.0, 204);
    assert!(fixture.store.stored().unwrap().is_none());
    // It is encrypted, and blocks plans until a user decides.
    let rescued = fixture.store.unresolved().unwrap();
    assert_eq!(rescued.len(), 1, "{rescued:?}");
    let decision = Decision::Restore(rescued[0].clone());
    fixture.store.decide(decision, &Basis::default()).unwrap().carry_out().unwrap();
    assert_eq!(*fixture.store.read().unwrap().unwrap(), state(1).into_bytes());
}

#[tokio::test]
async fn a_state_without_a_response_is_acknowledged_from_the_disk() {
    let fixture = Fixture::new(Uploads::Lose).await;
    fixture.lock("a").await;
    for serial in [1, 2] {
        assert_eq!(fixture.post(state(serial)).await, 200);
        assert_eq!(fixture.pending(), Some(serial));
    }
    let state_on_disk = fixture.store.read().unwrap().unwrap();
    assert_eq!(*state_on_disk, state(2).into_bytes());
}

#[tokio::test]
async fn without_disk_and_server_a_write_waits_until_the_job_is_stopped() {
    let fixture = Fixture::new(Uploads::Lose).await;
    fixture.lock("a").await;
    // Given a directory in place of the file that would be written.
    fs::create_dir(fixture.store.dir().join("state.encrypted.next")).unwrap();
    let post = fixture.request("POST", "?ID=a", state(1).into()).send();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fixture.cancel.requested.cancel();
    };
    let (response, ()) = tokio::join!(post, stop);
    let response = response.unwrap();
    // Terraform repeats a request after any status from 500.
    assert_eq!(response.status(), StatusCode::FAILED_DEPENDENCY);
    let why = response.text().await.unwrap();
    assert!(why.contains("this host cannot store it"), "{why}");
    assert_eq!(fixture.get().await.0, 204);
}

#[tokio::test]
async fn without_disk_the_server_alone_stores_the_state() {
    let fixture = Fixture::new(Uploads::Accept).await;
    fixture.lock("a").await;
    fs::create_dir(fixture.store.dir().join("state.encrypted.next")).unwrap();
    assert_eq!(fixture.post(state(1)).await, 200);
    assert_eq!(fixture.get().await, (200, state(1)));
}
