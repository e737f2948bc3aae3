//! The customer's side as customers have it: another user on another network, where the only thing that can
//! be reached is the Runner listener, by TLS from a private CA, and where nothing listens.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::{collections::BTreeSet, fs, path::PathBuf, process::Command, time::Duration};

use tests::{
    Certificates, Customer, Namespace, Runner, Server, Sockets, edge_api, in_ci, program,
    stdout_of, succeeded, terraform_or_skip, until,
};

const SOON: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(120);

/// A customer inside the namespace: the directory and the program are where that user gets to.
fn inside(server: &Server, namespace: &Namespace, name: &str) -> Customer {
    let customer = Customer::new(server, name);
    let copy: PathBuf = customer.dir().join("stead-runner");
    fs::copy(program("stead-runner"), &copy).unwrap();
    let (user, group) = Namespace::user();
    let owner = format!("{user}:{group}");
    stdout_of(Command::new("chown").args(["-R", &owner]).arg(customer.dir()));
    customer.through(&namespace.words()).program(copy)
}

fn port(url: &str) -> &str {
    url.trim_end_matches('/').rsplit(':').next().unwrap()
}

/// By the kernel's word: nobody listens, and every connection goes to the Runner listener.
fn only_the_server(runner: &Runner, server: &Server, namespace: &Namespace) {
    let sockets = Sockets::of(runner.pid());
    assert_eq!(sockets.listening, BTreeSet::new(), "something listens at the customer's");
    let peer = Sockets::peer(&namespace.server_ip(), port(server.runner()));
    assert!(sockets.peers.iter().all(|other| *other == peer), "{:?}, not {peer}", sockets.peers);
}

#[test]
fn a_runner_reaches_the_runner_listener_only_and_nothing_reaches_it() {
    if !terraform_or_skip() {
        return;
    }
    let Some(namespace) = Namespace::new_or_skip() else { return };
    let certificates = Certificates::for_ip(&namespace.server_ip());
    let (chain, key) = (certificates.chain(), certificates.key());
    let tls = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let listen = format!("{}:0", namespace.server_ip());
    let server = Server::serve_with(&listen, &[&tls[..], &["--tls-for", "runner"]].concat());
    assert!(server.runner().starts_with("https://198.18."), "{}", server.runner());

    // From where the customer is, the one door is open and no other.
    let runner_port = port(server.runner());
    assert!(namespace.reaches(&namespace.server_ip(), runner_port), "the Runner listener");
    for ip in [namespace.server_ip().as_str(), "127.0.0.1"] {
        for (what, port) in [("the Control API", port(server.control())), ("Postgres", "5432")] {
            assert!(!namespace.reaches(ip, port), "{what} is reachable at {ip}:{port}");
        }
    }

    // The vendor's build runner comes by the same door.
    let ca = certificates.ca();
    let _builder = server.build_runner(&["--ca-file", ca.to_str().unwrap()]);
    let app = edge_api(server.dir());
    server.ask(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let words = ["--auto-approve", "--input", "company=Acme", "--input", "pace_seconds=1"];
    let created = server.ask(&[&["installs", "create", "edge-api", "acme"], &words[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();

    // Who does not pin the CA talks to nobody.
    let trusting = inside(&server, &namespace, "trusting").start(&server, token);
    until("the refusal of the certificate", SOON, || {
        trusting.log().to_lowercase().contains("certificate")
    });
    drop(trusting);

    let pinned = fs::read(&ca).unwrap();
    let customer = inside(&server, &namespace, "customer");
    let (own_ca, ledger) = (customer.dir().join("ca.pem"), customer.dir().join("ledger"));
    fs::write(&own_ca, pinned).unwrap();
    let runner = customer.with(&["--ca-file", own_ca.to_str().unwrap()]).start(&server, token);
    until("the runner inside", SOON, || {
        let program = fs::read_link(format!("/proc/{}/exe", runner.pid()));
        program.is_ok_and(|program| program.ends_with("stead-runner"))
    });
    until("an effect", LATER, || {
        only_the_server(&runner, &server, &namespace);
        ledger.exists()
    });
    until("the end of the run", LATER, || {
        only_the_server(&runner, &server, &namespace);
        server.ask(&["runs", "show", "acme"])["state"] != "running"
    });
    succeeded(&server, "acme");
    assert_eq!(runner.ledger().len(), 6, "{:?}", runner.ledger());
    let status = fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
    let user = format!("Uid:\t{0}\t{0}\t{0}\t{0}", Namespace::user().0);
    assert!(status.contains(&user), "the runner is not the customer's user: {status}");
    let install = server.ask(&["installs", "show", "acme"]);
    assert_eq!(install["stack"]["region"], "eu-1", "{install:#}");

    // The token has let one in; with another key it lets nobody in, pinned by fingerprint or not.
    let fingerprint = certificates.ca_fingerprint();
    let impostor = inside(&server, &namespace, "impostor");
    let impostor = impostor.with(&["--ca-fingerprint", &fingerprint]).start(&server, token);
    until("the refusal of the token", SOON, || impostor.log().contains("enrolment_used"));
}

/// What `stead up` starts beside itself is for its own users only.
#[test]
fn nobody_else_on_the_host_gets_to_the_private_postgres() {
    let server = Server::up();
    let socket = server.data().join("run/.s.PGSQL.5432");
    assert!(socket.exists(), "Postgres has its socket at {}", socket.display());
    let (user, group) = Namespace::user();
    let mut look = Command::new("setpriv");
    look.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()]);
    let seen = look.args(["test", "-e"]).arg(&socket).output().unwrap();
    let said = String::from_utf8_lossy(&seen.stderr);
    // Without root nobody can be somebody else; in CI the rest of this file needs root, too.
    if said.contains("setpriv") && !in_ci() {
        return eprintln!("SKIPPED: to be another user needs root: {said}");
    }
    assert_eq!((seen.status.code(), &*said), (Some(1), ""), "another user gets to the socket");
}
