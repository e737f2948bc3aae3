//! Tests that the server rejects forbidden requests of a runner, and that a runner refuses forged
//! or repeated responses.
use std::{
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use serde_json::{Value, json};
use tests::{
    Customer, HttpResponse, InterceptingProxy, RecordedCall, Runner, Server, call, notes_files,
    position, program, settled_position, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a server with a published app of the plugin `files`.
fn published() -> Server {
    let server = Server::up();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    server
}

/// Creates an install and returns its enrolment token.
fn install(server: &Server, name: &str) -> String {
    let created =
        server.cli_json(&["installs", "create", "notes-files", name, "--input", "company=A"]);
    created["enrolment"]["token"].as_str().unwrap().to_string()
}

/// Returns a directory with the vendor's plugin, as the customer installs it.
fn plugins(server: &Server) -> String {
    let plugins = server.dir().join("plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    plugins.to_str().unwrap().to_string()
}

/// Starts a runner that calls through an intercepting proxy.
fn runner(server: &Server, proxy: &InterceptingProxy, name: &str) -> Runner {
    let (token, plugins) = (install(server, name), plugins(server));
    let more = ["--plugin-dir", plugins.as_str()];
    Customer::new(server, name).calls(proxy.url()).with(&more).start(server, &token)
}

/// Returns the first claim that the proxy forwarded, and its response.
fn claimed(proxy: &InterceptingProxy) -> (RecordedCall, Value) {
    let claim = until_some("a claim", TIMEOUT, || proxy.calls_to("/claim").into_iter().next());
    let response = serde_json::from_slice(&claim.response).unwrap();
    (claim, response)
}

/// Repeats a call with another body and other headers, as the same runner.
fn repeat_call(
    server: &Server,
    of: &RecordedCall,
    path: &str,
    more: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let token = of.header("authorization").to_string();
    let mut headers = vec![("Authorization", token.as_str())];
    headers.extend(more);
    call(&of.method, &format!("{}{path}", server.runner()), &headers, body)
}

#[test]
fn forbidden_calls_of_a_runner_are_rejected_and_change_nothing() {
    let server = published();
    let (one, two) = (
        InterceptingProxy::before(server.runner(), |_| None),
        InterceptingProxy::before(server.runner(), |_| None),
    );
    let (_a, _b) = (runner(&server, &one, "acme"), runner(&server, &two, "beta"));
    let (own_claim, response) = claimed(&one);
    let (other_claim, _) = claimed(&two);
    let execution = response["execution"].as_str().unwrap();
    // Both runs wait for approval, so nothing else changes the log.
    for name in ["acme", "beta"] {
        until_some("a plan that waits", TIMEOUT, || {
            let run = server.stead().args(["runs", "show", name]).output().unwrap();
            String::from_utf8_lossy(&run.stdout).contains("waiting_for_approval").then_some(())
        });
    }
    let before = settled_position(&server);
    let refused = |response: HttpResponse, expected: &[(u16, &str)]| {
        assert!(expected.contains(&(response.status, response.code().as_str())), "{response:?}");
    };
    let json = ("Content-Type", "application/json");

    // Sends a second claim of the job, as the job's own runner and as the runner of the other
    // install.
    let mut claim: Value = serde_json::from_slice(&own_claim.body).unwrap();
    claim["claim_id"] = json!("another");
    let body = claim.to_string();
    let response = repeat_call(&server, &own_claim, &own_claim.path, &[json], body.as_bytes());
    refused(response, &[(409, "claimed_by_other"), (410, "expired")]);
    refused(
        repeat_call(&server, &other_claim, &own_claim.path, &[json], &other_claim.body),
        &[(403, "not_offered")],
    );

    // Sends log calls after the end of the job, with an unknown execution, and as the other runner.
    let log = own_claim.path.replace("/claim", "/log");
    let patch = RecordedCall { method: "PATCH".into(), ..own_claim.clone() };
    let other = RecordedCall { method: "PATCH".into(), ..other_claim.clone() };
    let chunk = vec![b'x'; 1024];
    let range = format!("bytes 0-{}/*", chunk.len() - 1);
    let digest = "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:";
    let range = range.as_str();
    fn headers<'a>(execution: &'a str, range: &'a str, digest: &'a str) -> [(&'a str, &'a str); 3] {
        [("Execution", execution), ("Content-Range", range), ("Repr-Digest", digest)]
    }
    let stale = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    refused(
        repeat_call(&server, &patch, &log, &headers(stale, range, digest), b"x"),
        &[(412, "fenced")],
    );
    refused(
        repeat_call(&server, &other, &log, &headers(execution, range, digest), b"x"),
        &[(403, "forbidden")],
    );
    let late = repeat_call(&server, &patch, &log, &headers(execution, range, digest), &chunk);
    refused(late, &[(412, "fenced")]);

    // Sends reports with an unknown execution, and as the other runner.
    let events = own_claim.path.replace("/claim", "/events");
    let post = RecordedCall { method: "POST".into(), ..own_claim.clone() };
    let other = RecordedCall { method: "POST".into(), ..other_claim };
    let report = |execution: &str| {
        json!({"execution": execution, "seq": 1, "type": "started", "payload": {}, "log_len": 0})
            .to_string()
    };
    let response = repeat_call(
        &server,
        &post,
        &events,
        &[json, ("Execution", stale)],
        report(stale).as_bytes(),
    );
    refused(response, &[(412, "fenced")]);
    let with = [json, ("Execution", execution)];
    refused(
        repeat_call(&server, &other, &events, &with, report(execution).as_bytes()),
        &[(403, "forbidden")],
    );
    // The other runner's report is recorded once as a suspected forgery, and nothing else is
    // recorded.
    let forged = server.cli_json(&["audit", "events", "--type", "runner.forgery_suspected"]);
    let [forged] = forged.as_array().unwrap().as_slice() else { panic!("{forged:#}") };
    assert_eq!(forged["payload"]["execution"], execution);
    assert_eq!(position(&server), before + 1, "something else was written");
}

/// Returns the SHA-256 of some bytes in the form of `Repr-Digest`.
fn repr_digest(bytes: &[u8], dir: &Path) -> String {
    let file = dir.join("chunk");
    std::fs::write(&file, bytes).unwrap();
    let command = "openssl dgst -sha256 -binary \"$0\" | base64";
    let digest = tests::stdout_of(Command::new("sh").args(["-c", command]).arg(&file));
    format!("sha-256=:{}:", digest.trim())
}

#[test]
fn a_log_chunk_above_the_limit_is_rejected_and_the_job_continues() {
    const MAX_CHUNK_BYTES: usize = 256 * 1024;
    let server = published();
    // The proxy holds the response to the first claim until the test releases it. By then the
    // execution exists, and the runner has sent no log bytes.
    let (claimed, first) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let gate = Mutex::new(Some((claimed, released)));
    let proxy = InterceptingProxy::before(server.runner(), move |call| {
        if call.path.ends_with("/claim") {
            let first = gate.lock().unwrap().take();
            if let Some((claimed, released)) = first {
                claimed.send(call.clone()).unwrap();
                let _released = released.recv();
            }
        }
        None
    });
    let _runner = runner(&server, &proxy, "acme");
    let claim: RecordedCall = first.recv_timeout(TIMEOUT).unwrap();
    let response: Value = serde_json::from_slice(&claim.response).unwrap();
    let execution = response["execution"].as_str().unwrap();
    let before = settled_position(&server);
    let patch = RecordedCall { method: "PATCH".into(), ..claim.clone() };
    let path = claim.path.replace("/claim", "/log");
    let send = |bytes: &[u8], packed: bool| {
        let range = format!("bytes 0-{}/*", bytes.len() - 1);
        let digest = repr_digest(bytes, server.dir());
        let mut headers =
            vec![("Execution", execution), ("Content-Range", &range), ("Repr-Digest", &digest)];
        if packed {
            headers.push(("Content-Encoding", "zstd"));
            let body = zstd::encode_all(bytes, 3).unwrap();
            assert!(
                body.len() < MAX_CHUNK_BYTES / 8,
                "the compressed body is too large: {}",
                body.len()
            );
            return repeat_call(&server, &patch, &path, &headers, &body);
        }
        repeat_call(&server, &patch, &path, &headers, bytes)
    };

    // Sends one byte too many, far too many, and too many bytes in a small compressed body.
    // Everything else in the requests is valid.
    for (length, packed) in
        [(MAX_CHUNK_BYTES + 1, false), (64 * MAX_CHUNK_BYTES, false), (MAX_CHUNK_BYTES + 1, true)]
    {
        let response = send(&vec![b'x'; length], packed);
        assert_eq!(
            (response.status, response.code().as_str()),
            (413, "too_large"),
            "{length}: {response:?}"
        );
        assert!(response.body.contains("256 KiB"), "{response:?}");
    }
    assert_eq!(position(&server), before, "something was written");

    // The log contains none of these bytes: it begins with the runner's own records.
    release.send(()).unwrap();
    until_some("a plan that waits", TIMEOUT, || {
        let run = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        String::from_utf8_lossy(&run.stdout).contains("waiting_for_approval").then_some(())
    });
    let job = claim.path.rsplit('/').nth(1).unwrap();
    assert_eq!(server.cli_json(&["jobs", "show", job])["state"], "succeeded");
    let log = tests::stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(!log.is_empty() && !log.contains("xxxx"), "{log}");
    // The rest of a log may arrive after the final report.
    let finalized = until_some("the finalized log", TIMEOUT, || {
        tests::job_events(&server, job)
            .into_iter()
            .find(|event| event["type"] == "job.log_finalized")
    });
    assert_eq!(finalized["payload"]["complete"], true, "{finalized:#}");
}

/// Changes one character in the middle of an envelope's payload in the response to a claim.
fn tampered(call: &RecordedCall, envelope: &str) -> Option<Vec<u8>> {
    if !call.path.ends_with("/claim") {
        return None;
    }
    let mut response: Value = serde_json::from_slice(&call.response).ok()?;
    let payload = response[envelope]["payload"].as_str()?.to_string();
    let middle = payload.len() / 2;
    let other = if payload.as_bytes()[middle] == b'A' { "B" } else { "A" };
    let mut changed = payload;
    changed.replace_range(middle..=middle, other);
    response[envelope]["payload"] = json!(changed);
    Some(response.to_string().into_bytes())
}

#[test]
fn a_changed_manifest_or_grant_is_refused_and_the_vendor_is_informed() {
    let server = published();
    for envelope in ["manifest", "grant"] {
        let proxy =
            InterceptingProxy::before(server.runner(), move |call| tampered(call, envelope));
        let runner = runner(&server, &proxy, envelope);
        let rule = format!("{envelope}_signature");
        let refusal = until_some("the refusal", TIMEOUT, || {
            let events = server.cli_json(&["audit", "events", "--type", "runner.refused"]);
            let all = events.as_array().unwrap().clone();
            all.into_iter().find(|event| event["payload"]["rule"] == rule.as_str())
        });
        assert!(refusal["stream"].as_str().unwrap().starts_with("runner/"), "{refusal:#}");
        assert!(runner.ledger().is_empty(), "something was done");
        let journal = tests::stdout_of(&mut runner.local(&["journal"]));
        assert!(journal.contains(&rule), "{journal}");
    }
}

#[test]
fn a_repeated_response_is_ignored() {
    let server = published();
    let first = Mutex::new(None);
    let replaying = Arc::new(AtomicBool::new(false));
    let replays = Arc::clone(&replaying);
    let proxy = InterceptingProxy::before(server.runner(), move |call| {
        if !call.path.ends_with("/claim") {
            return None;
        }
        let mut first = first.lock().unwrap();
        let recorded = first.get_or_insert_with(|| call.response.clone());
        replays.load(Ordering::SeqCst).then(|| recorded.clone())
    });
    let runner = runner(&server, &proxy, "acme");
    until_some("a plan that waits", TIMEOUT, || {
        let run = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        String::from_utf8_lossy(&run.stdout).contains("waiting_for_approval").then_some(())
    });
    // From here on the proxy responds to every claim with the recorded response to the first claim. Any earlier, the
    // plan or the preflight would be lost: both are claimed at the start.
    replaying.store(true, Ordering::SeqCst);
    server.cli_json(&["runs", "approve", "acme", "--all", "--reason", "the test says so"]);
    let journal = runner.data().join("journal.ndjson");
    until_some("the repeated response to be detected", TIMEOUT, || {
        let journal = std::fs::read_to_string(&journal).unwrap_or_default();
        journal.contains("execution_known").then_some(())
    });
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
}
