//! Tests that a program that cannot start states why and changes nothing, and that a server reports
//! an unavailable database and recovers.
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use event_log::testing::fresh_database;
use serde_json::json;
use tests::{HttpResponse, Server, call, position, program, settled_position, stdout_of, until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a `stead up` that must fail to start.
fn up(data: &Path, control: &str) -> Output {
    let child = Command::new("timeout")
        .arg("60")
        .arg(program("stead"))
        .args(["up", "--no-build-runner", "--control-listen", control])
        .args(["--runner-listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .output();
    child.unwrap()
}

/// Returns the number of events without those of runners. A stop and a start of the server add
/// events to the stream of its build runner.
fn count_events_without_runners(server: &Server) -> usize {
    settled_position(server);
    let events = server.cli_json(&["audit", "events", "--limit", "200"]);
    let of_runner =
        |event: &&serde_json::Value| event["type"].as_str().unwrap().starts_with("runner.");
    events.as_array().unwrap().iter().filter(|event| !of_runner(event)).count()
}

#[track_caller]
fn assert_refused(output: &Output, texts: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    let last = message.lines().rfind(|line| line.starts_with("error: "));
    let last = last.unwrap_or_else(|| panic!("no error: {message}"));
    assert!(texts.iter().all(|text| last.contains(text)), "{texts:?}: {last}");
}

#[test]
fn a_port_or_a_data_directory_in_use_or_of_another_version_stops_a_start() {
    let mut server = Server::up();
    let (before, recorded) = (settled_position(&server), count_events_without_runners(&server));
    let address = server.control().strip_prefix("http://").unwrap().to_string();
    let elsewhere = server.dir().join("other");
    let output = up(&elsewhere, &address);
    assert_refused(
        &output,
        &["cannot listen on", &address, "choose another address with --control-listen"],
    );
    let pid = server.pid().to_string();
    assert_refused(&up(&server.data(), "127.0.0.1:0"), &[server.data().to_str().unwrap(), &pid]);
    assert_refused(&up(&server.dir().join("third"), "0.0.0.0:0"), &["plain HTTP", "--tls-cert"]);
    assert_eq!(position(&server), before, "something was written");

    // A failed start leaves no process: its Postgres has ended, too.
    let pid_file = elsewhere.join("postgres/postmaster.pid");
    assert!(!pid_file.exists(), "{} is there", pid_file.display());

    // Stead rejects the data of a newer Postgres. With the version restored, the server starts.
    server.stop();
    let version = server.data().join("postgres/PG_VERSION");
    let original = fs::read_to_string(&version).unwrap();
    fs::write(&version, "99\n").unwrap();
    assert_refused(&up(&server.data(), "127.0.0.1:0"), &["Postgres 99 created", original.trim()]);
    fs::write(&version, original).unwrap();
    server.restart();
    assert_eq!(count_events_without_runners(&server), recorded);
}

#[tokio::test]
async fn server_and_migration_refuse_a_log_of_a_pre_release_version() {
    let database = fresh_database().await.unwrap();
    let old = "alter table log_head rename column format to layout; update log_head set layout = 2";
    sqlx::raw_sql(old).execute(&database.pool).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let listen = ["--control-listen", "127.0.0.1:0", "--runner-listen", "127.0.0.1:0"];
    let mut serve = Command::new(program("stead"));
    serve.arg("serve").args(listen).arg("--data").arg(dir.path());
    let mut migrate = Command::new(program("stead"));
    migrate.arg("migrate");
    for mut command in [serve, migrate] {
        command.env("DATABASE_URL", &database.url).env("DATABASE_OWNER_URL", &database.url);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{message}");
        let expected = "written by a pre-release version (format 2, this program reads 3); create a new database";
        assert!(message.contains(expected), "{message}");
    }
}

/// Returns the postmaster of a data directory and its children.
fn postgres(data: &Path) -> Vec<String> {
    let file = fs::read_to_string(data.join("postgres/postmaster.pid")).unwrap();
    let parent = file.lines().next().unwrap().trim().to_string();
    let children = Command::new("pgrep").args(["-P", &parent]).output().unwrap();
    let children = String::from_utf8_lossy(&children.stdout).into_owned();
    let mut all = vec![parent];
    all.extend(children.split_whitespace().map(String::from));
    all
}

/// Sends a signal to all of these processes and ignores those that no longer exist.
fn signal(name: &str, pids: &[String]) {
    let _may_fail = Command::new("kill").arg(name).args(pids).output();
}

/// Guard that resumes processes at the end of the test, because a stopped process cannot be ended.
struct Stopped(Vec<String>);

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn get(server: &str, path: &str, token: &str) -> HttpResponse {
    let authorization = format!("Bearer {token}");
    call("GET", &format!("{server}{path}"), &[("Authorization", &authorization)], b"")
}

#[track_caller]
fn assert_unavailable(response: &HttpResponse) {
    assert_eq!((response.status, response.code().as_str()), (503, "unavailable"), "{response:?}");
    assert!(response.headers.to_lowercase().contains("retry-after"), "{response:?}");
}

#[test]
fn an_unresponsive_database_is_a_503_and_recovers() {
    let server = Server::up();
    let before = settled_position(&server);
    let (control, token) = (server.control().to_string(), server.owner_token());
    let stopped = Stopped(postgres(&server.data()));
    signal("-STOP", &stopped.0);
    let begun = Instant::now();
    assert_unavailable(&get(&control, "/readyz", &token));
    assert_eq!(get(&control, "/healthz", &token).status, 200);
    assert_unavailable(&get(&control, "/v1/apps", &token));
    assert!(begun.elapsed() < Duration::from_secs(25), "took {:?}", begun.elapsed());
    drop(stopped);
    until("the server to be ready", TIMEOUT, || get(&control, "/readyz", &token).status == 200);
    assert_eq!(get(&control, "/v1/apps", &token).status, 200);
    assert_eq!(settled_position(&server), before, "something was written");
}

#[test]
fn two_servers_append_to_one_log() {
    let first = Server::up();
    let second = first.second();
    let controls = [first.control().to_owned(), second.control().to_owned()];
    let authorization = format!("Bearer {}", first.owner_token());
    until("the token to be known", TIMEOUT, || {
        get(&controls[1], "/v1/apps", &first.owner_token()).status == 200
    });
    let before = position(&first);
    let create_token = |control: &str, key: String| {
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", key.as_str()),
        ];
        let created =
            call("POST", &format!("{control}/v1/tokens"), &headers, br#"{"role":"viewer"}"#);
        assert_eq!(created.status, 200, "{created:?}");
        created.json()["id"].as_str().unwrap().to_owned()
    };
    // Each server creates fifty tokens with its own keys. Both create ten tokens with the same
    // keys.
    let created: Vec<String> = std::thread::scope(|scope| {
        let spawn_caller = |server: usize| {
            let (control, create_token) = (&controls[server], &create_token);
            scope.spawn(move || -> Vec<_> {
                let own = (0..50).map(|n| create_token(control, format!("own-{server}-{n}")));
                own.chain((0..10).map(|n| create_token(control, format!("both-{n}")))).collect()
            })
        };
        let callers = [spawn_caller(0), spawn_caller(1)];
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    let distinct: std::collections::BTreeSet<_> = created.iter().collect();
    assert_eq!(
        (created.len(), distinct.len()),
        (120, 110),
        "a key made two tokens, or a token is lost"
    );
    // A server learns of the other server's appends a moment later.
    until("all of them in the log", TIMEOUT, || {
        let listed = first.cli_json(&["audit", "events", "--type", "access.token_issued"]);
        let issued = listed.as_array().unwrap().iter();
        issued.filter(|event| event["position"].as_u64().unwrap() > before).count() == 110
    });
    let _verified = stdout_of(first.stead_for_people().args(["audit", "verify"]));
}

#[test]
fn a_stopped_database_is_a_503_and_nothing_is_lost_or_repeated() {
    let mut first = Server::up();
    let second = first.second();
    let control = second.control();
    let token = first.owner_token();
    until("the token to be known", TIMEOUT, || get(control, "/v1/apps", &token).status == 200);
    let before = count_events_without_runners(&first);
    let authorization = format!("Bearer {token}");
    let create_token = || {
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "once"),
        ];
        let body = json!({"role": "viewer"}).to_string();
        call("POST", &format!("{control}/v1/tokens"), &headers, body.as_bytes())
    };

    // A stop of the first server stops the database of the second.
    first.stop();
    until("the server to report the missing database", TIMEOUT, || {
        get(control, "/readyz", &token).status == 503
    });
    assert_unavailable(&get(control, "/v1/apps", &token));
    assert_unavailable(&create_token());
    assert_eq!(get(control, "/healthz", &token).status, 200);

    first.restart();
    until("the second server to recover", TIMEOUT, || {
        get(control, "/readyz", &token).status == 200
    });
    assert_eq!(
        count_events_without_runners(&first),
        before,
        "something was written while the database was down"
    );
    let (created, repeated) = (create_token(), create_token());
    assert_eq!((created.status, repeated.status), (200, 200), "{created:?} {repeated:?}");
    assert_eq!(created.json()["id"], repeated.json()["id"], "the same call made two tokens");
    assert!(count_events_without_runners(&first) > before);
    let _verified = stdout_of(first.stead_for_people().args(["audit", "verify"]));
}
