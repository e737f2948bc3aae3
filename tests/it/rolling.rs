//! Tests a rolling upgrade: two servers behind one address are replaced by the next version while
//! callers continue.
use std::{
    process::{Command, Stdio},
    time::Duration,
};

use event_log::migrate::FORMAT;
use tests::{Balancer, Callers, HttpResponse, Server, call, oracle, program, stdout_of, until};

const SOON: Duration = Duration::from_secs(30);
/// Environment variable that makes a process act as the next version.
const NEXT: (&str, &str) = ("STEAD_NEXT_FORMAT", "1");

/// Waits until the callers have completed 30 more writes.
fn goes_on(callers: &Callers) {
    let before = callers.heard().len();
    until("calls to be answered", SOON, || callers.heard().len() > before + 30);
}

fn get(server: &Server, path: &str) -> HttpResponse {
    let token = format!("Bearer {}", server_token(server));
    call("GET", &format!("{}{path}", server.control()), &[("authorization", &token)], b"")
}

fn server_token(server: &Server) -> String {
    std::fs::read_to_string(server.dir().join("token")).unwrap()
}

#[test]
fn servers_roll_to_the_next_version_and_callers_go_on() {
    // given two servers behind one address, and callers
    let mut one = Server::serve_with("127.0.0.1:0", &[]);
    let (application, token) = (one.database_url().to_string(), one.owner_token());
    let owner = application.replacen("//stead_app@", "//stead@", 1);
    let mut two = Server::beside(Some(&one), &application, &[], &[]);
    let balancer = Balancer::new();
    for server in [&one, &two] {
        balancer.put_before(server);
        std::fs::write(server.dir().join("token"), &token).unwrap();
    }
    let callers = Callers::start(4, 1, vec![balancer.control()], &token);
    goes_on(&callers);

    // when the next version runs its migration
    let mut migrate = Command::new(program("stead"));
    migrate.arg("migrate").env("DATABASE_OWNER_URL", &owner);
    let ran = stdout_of(migrate.env(NEXT.0, NEXT.1));
    assert!(ran.contains("Applied 9999_next.sql"), "{ran}");
    // then the old servers still read, reject writes and state why
    for server in [&one, &two] {
        let authorization = format!("Bearer {token}");
        let url = format!("{}/v1/tokens", server.control());
        let json = [("authorization", &*authorization), ("content-type", "application/json")];
        let refused = call("POST", &url, &json, br#"{"role":"viewer"}"#);
        assert_eq!((refused.status, &*refused.code()), (503, "unavailable"), "{refused:?}");
        assert!(refused.headers.to_lowercase().contains("retry-after"), "{refused:?}");
        let (known, found) = (FORMAT, FORMAT + 1);
        let why = &*format!(
            "cannot open the log: a newer version migrated it (format {found}, this program reads {known}); start that version"
        );
        for refused in [refused, get(server, "/readyz")] {
            assert_eq!((refused.status, refused.json()["detail"].as_str()), (503, Some(why)));
        }
        assert_eq!(get(server, "/v1/whoami").status, 200);
    }

    // and callers continue with a server of the next version, with the old servers and without them
    let next = Server::beside(Some(&one), &application, &[], &[NEXT]);
    balancer.put_before(&next);
    goes_on(&callers);
    assert_eq!(balancer.ready(), 1);
    // The new server runs the policies while the old servers still run.
    until("the policies to move", SOON, || {
        call("GET", &format!("{}/readyz", next.control()), &[], b"").json()["policies_lag"] == 0
    });
    one.stop();
    two.stop();
    goes_on(&callers);

    // and a downgrade is rejected
    let mut migrate = Command::new(program("stead"));
    let back = migrate.arg("migrate").env("DATABASE_OWNER_URL", &owner).output().unwrap();
    let said = String::from_utf8_lossy(&back.stderr).into_owned();
    assert!(said.contains("a newer Stead ran migration"), "{said}");
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
    let back = serve.output().unwrap();
    let said = String::from_utf8_lossy(&back.stderr).into_owned();
    let known = format!("this program reads {FORMAT}");
    assert!(!back.status.success() && said.contains(&known), "{said}");

    // then every response to a caller agrees with the log
    let _quiet = callers.quiet(SOON).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wrong = runtime.block_on(async {
        let pool = event_log::connect(&owner, 2).await.unwrap();
        oracle::everything(&pool, &callers.heard()).await
    });
    assert_eq!(wrong, [] as [String; 0]);
}
