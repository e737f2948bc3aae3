//! Tests a rolling upgrade: two servers behind one address are replaced by the next version while
//! callers continue.
use std::{
    process::{Command, Stdio},
    time::Duration,
};

use event_log::migrate::FORMAT;
use tests::{Balancer, Callers, HttpResponse, Server, call, oracle, program, stdout_of, until};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Environment variable that makes a process act as the next version.
const NEXT: (&str, &str) = ("STEAD_NEXT_FORMAT", "1");

/// Waits until the callers have completed 30 more writes.
fn wait_for_writes(callers: &Callers) {
    let before = callers.responses().len();
    until("responses to calls", TIMEOUT, || callers.responses().len() > before + 30);
}

fn get(server: &Server, path: &str) -> HttpResponse {
    let token = format!("Bearer {}", server_token(server));
    call("GET", &format!("{}{path}", server.control()), &[("authorization", &token)], b"")
}

fn server_token(server: &Server) -> String {
    std::fs::read_to_string(server.dir().join("token")).unwrap()
}

#[test]
fn servers_are_upgraded_while_callers_continue() {
    // given two servers behind one address, and callers
    let mut one = Server::serve_with("127.0.0.1:0", &[]);
    let (application, token) = (one.database_url().to_string(), one.owner_token());
    let owner = application.replacen("//stead_app@", "//stead@", 1);
    let mut two = Server::beside(Some(&one), &application, &[], &[]);
    let balancer = Balancer::new();
    for server in [&one, &two] {
        balancer.add(server);
        std::fs::write(server.dir().join("token"), &token).unwrap();
    }
    let callers = Callers::start(4, 1, vec![balancer.control()], &token);
    wait_for_writes(&callers);

    // when the next version runs its migration
    let mut migrate = Command::new(program("stead"));
    migrate.arg("migrate").env("DATABASE_OWNER_URL", &owner);
    let output = stdout_of(migrate.env(NEXT.0, NEXT.1));
    assert!(output.contains("Applied 9999_next.sql"), "{output}");
    // then the old servers still read, reject writes and state why
    for server in [&one, &two] {
        let authorization = format!("Bearer {token}");
        let url = format!("{}/v1/tokens", server.control());
        let json = [("authorization", &*authorization), ("content-type", "application/json")];
        let rejection = call("POST", &url, &json, br#"{"role":"viewer"}"#);
        assert_eq!((rejection.status, &*rejection.code()), (503, "unavailable"), "{rejection:?}");
        assert!(rejection.headers.to_lowercase().contains("retry-after"), "{rejection:?}");
        let (known, found) = (FORMAT, FORMAT + 1);
        let why = &*format!(
            "cannot open the log: a newer version migrated it (format {found}, this program reads {known}); start that version"
        );
        for rejection in [rejection, get(server, "/readyz")] {
            assert_eq!((rejection.status, rejection.json()["detail"].as_str()), (503, Some(why)));
        }
        assert_eq!(get(server, "/v1/whoami").status, 200);
    }

    // and callers continue with a server of the next version, first with the old servers and then
    // without them
    let next = Server::beside(Some(&one), &application, &[], &[NEXT]);
    balancer.add(&next);
    wait_for_writes(&callers);
    assert_eq!(balancer.ready(), 1);
    // The new server runs the policies while the old servers still run.
    until("the new server to run the policies", TIMEOUT, || {
        call("GET", &format!("{}/readyz", next.control()), &[], b"").json()["policies_lag"] == 0
    });
    one.stop();
    two.stop();
    wait_for_writes(&callers);

    // and a downgrade is rejected
    let mut migrate = Command::new(program("stead"));
    let downgrade = migrate.arg("migrate").env("DATABASE_OWNER_URL", &owner).output().unwrap();
    let message = String::from_utf8_lossy(&downgrade.stderr).into_owned();
    assert!(message.contains("a newer Stead ran migration"), "{message}");
    let mut serve = Command::new(program("stead"));
    serve.args([
        "serve",
        "--control-listen",
        "127.0.0.1:0",
        "--runner-listen",
        "127.0.0.1:0",
        "--data",
    ]);
    serve.arg(one.data()).env("DATABASE_URL", &application).stdin(Stdio::null());
    let downgrade = serve.output().unwrap();
    let message = String::from_utf8_lossy(&downgrade.stderr).into_owned();
    let known = format!("this program reads {FORMAT}");
    assert!(!downgrade.status.success() && message.contains(&known), "{message}");

    // then every response to a caller agrees with the log
    let _paused = callers.pause(TIMEOUT).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wrong = runtime.block_on(async {
        let pool = event_log::connect(&owner, 2).await.unwrap();
        oracle::check_all(&pool, &callers.responses()).await
    });
    assert_eq!(wrong, [] as [String; 0]);
}
