//! Tests the customer's side as customers run it: another user on another network with no
//! listeners. Only the Runner listener is reachable, with TLS from a private CA.
mod cluster;

use std::{
    collections::BTreeSet,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tests::{
    Builder, Certificates, Customer, Moto, Namespace, Postgres, Runner, Server, Sockets, edge_api,
    ended, for_customers, in_ci, program, provider_config_for_customers_or_skip, run_with_logs,
    stdout_of, succeeded, terraform_or_skip, until,
};

const SHORT_TIMEOUT: Duration = Duration::from_secs(30);
const LONG_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for the AWS provider, which is a large program.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(240);

/// Server whose Runner listener is at the end of the customer's network link.
struct Vendor {
    _builder: Builder,
    server: Server,
    postgres: Postgres,
    certificates: Certificates,
}

impl Vendor {
    fn at(namespace: &Namespace) -> Vendor {
        Vendor::with_builder(namespace, &[], &[])
    }

    /// Starts the vendor with further options and environment variables of its build runner.
    fn with_builder(
        namespace: &Namespace,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Vendor {
        let certificates = Certificates::for_ip(&namespace.server_ip());
        let (chain, key) = (certificates.chain(), certificates.key());
        let tls = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        let listen = format!("{}:0", namespace.server_ip());
        let postgres = Postgres::on_loopback();
        let more = [&tls[..], &["--tls-for", "runner"]].concat();
        let server = Server::serve_on(&postgres, &listen, &more);
        assert!(server.runner().starts_with("https://198.18."), "{}", server.runner());
        // The vendor's build runner uses the same listener.
        let ca = certificates.ca();
        let options = [&["--ca-file", ca.to_str().unwrap()], options].concat();
        let builder = server.build_runner_in(&options, environment);
        Vendor { _builder: builder, server, postgres, certificates }
    }

    /// Checks that the customer's network reaches the Runner listener, and none of the other
    /// listeners that exist.
    fn assert_reaches_only_the_runner_listener(&self, namespace: &Namespace) {
        let (server, ip) = (&self.server, namespace.server_ip());
        let runner_port = port(server.runner());
        assert!(namespace.reaches(&ip, runner_port), "the Runner listener");
        let (control, postgres) = (port(server.control()), self.postgres.port());
        for (what, port) in [("the Control API", control), ("Postgres", &postgres)] {
            let connection = TcpStream::connect(format!("127.0.0.1:{port}"));
            assert!(connection.is_ok(), "{what} does not listen: {connection:?}");
            for ip in [ip.as_str(), "127.0.0.1"] {
                assert!(!namespace.reaches(ip, port), "{what} is reachable at {ip}:{port}");
            }
        }
        // Addresses outside the link: a name server, the web, a cloud's metadata service, and the
        // other addresses of the host.
        let host_addresses = stdout_of(Command::new("hostname").arg("-I"));
        let host_addresses =
            host_addresses.split_whitespace().filter(|other| !other.contains(':') && *other != ip);
        let internet = [("8.8.8.8", "53"), ("1.1.1.1", "443"), ("169.254.169.254", "80")];
        for (ip, port) in
            internet.into_iter().chain(host_addresses.map(|address| (address, runner_port)))
        {
            assert!(!namespace.reaches(ip, port), "{ip}:{port} is reachable");
        }
    }
}

/// Prepares a customer in the namespace, with a directory and programs that its user can read.
fn customer_in(server: &Server, namespace: &Namespace, name: &str) -> Customer {
    let customer = Customer::new(server, name);
    let copy: PathBuf = customer.dir().join("stead-runner");
    fs::copy(program("stead-runner"), &copy).unwrap();
    let find = "command -v terraform || command -v tofu";
    let terraform = stdout_of(Command::new("sh").args(["-c", find]));
    let terraform = for_customers(Path::new(terraform.trim()), customer.dir());
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", terraform.parent().unwrap().display());
    chown_to_customer(&customer);
    customer.through(&namespace.command()).program(copy).env("PATH", &path)
}

/// Gives the customer's directory and its content to the user of the namespace.
fn chown_to_customer(customer: &Customer) {
    let (user, group) = Namespace::user();
    let owner = format!("{user}:{group}");
    stdout_of(Command::new("chown").args(["-R", &owner]).arg(customer.dir()));
}

fn port(url: &str) -> &str {
    url.trim_end_matches('/').rsplit(':').next().unwrap()
}

/// Checks the kernel's socket tables: only the customer's own programs listen, except on the
/// loopback interface, and every other connection goes to the Runner listener.
fn assert_connects_only_to_server(
    runner: &Runner,
    server: &Server,
    namespace: &Namespace,
    customer_ports: Option<u16>,
) {
    let sockets = Sockets::of(runner.pid());
    let customer_ports: BTreeSet<_> = customer_ports.into_iter().collect();
    let is_own = sockets.exposed.is_subset(&customer_ports);
    assert!(is_own, "a program in the customer's namespace listens: {sockets:?}");
    let peer = Sockets::peer(&namespace.server_ip(), port(server.runner()));
    assert!(sockets.peers.iter().all(|other| *other == peer), "{sockets:?}, not {peer}");
}

fn assert_runs_as_customer(runner: &Runner) {
    let status = fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
    let user = format!("Uid:\t{0}\t{0}\t{0}\t{0}", Namespace::user().0);
    assert!(status.contains(&user), "the runner is not the customer's user: {status}");
}

fn wait_until_inside(runner: &Runner) {
    until("the runner inside", SHORT_TIMEOUT, || {
        let program = fs::read_link(format!("/proc/{}/exe", runner.pid()));
        program.is_ok_and(|program| program.ends_with("stead-runner"))
    });
}

#[test]
fn a_runner_reaches_only_the_runner_listener_and_listens_on_loopback_only() {
    if !terraform_or_skip() {
        return;
    }
    let Some(namespace) = Namespace::new_or_skip() else { return };
    let vendor = Vendor::at(&namespace);
    vendor.assert_reaches_only_the_runner_listener(&namespace);
    let (server, certificates) = (&vendor.server, &vendor.certificates);
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["--auto-approve", "--input", "company=Acme", "--input", "pace_seconds=1"];
    let created =
        server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();

    // A runner that does not pin the CA sends nothing.
    let trusting = customer_in(server, &namespace, "trusting").start(server, token);
    until("the refusal of the certificate", SHORT_TIMEOUT, || {
        trusting.log().to_lowercase().contains("certificate")
    });
    drop(trusting);

    let pinned = fs::read(certificates.ca()).unwrap();
    let customer = customer_in(server, &namespace, "customer");
    let (own_ca, ledger) = (customer.dir().join("ca.pem"), customer.dir().join("ledger"));
    fs::write(&own_ca, pinned).unwrap();
    let runner = customer.with(&["--ca-file", own_ca.to_str().unwrap()]).start(server, token);
    wait_until_inside(&runner);
    until("an effect", LONG_TIMEOUT, || {
        assert_connects_only_to_server(&runner, server, &namespace, None);
        ledger.exists()
    });
    until("the end of the run", LONG_TIMEOUT, || {
        assert_connects_only_to_server(&runner, server, &namespace, None);
        server.cli_json(&["runs", "show", "acme"])["state"] != "running"
    });
    succeeded(server, "acme");
    assert_eq!(runner.ledger().len(), 6, "{:?}", runner.ledger());
    assert_runs_as_customer(&runner);
    let install = server.cli_json(&["installs", "show", "acme"]);
    assert_eq!(install["stack_outputs"]["region"], "eu-1", "{install:#}");

    // The token was used. It enrols no runner with another key, even if that runner pins the CA.
    let fingerprint = certificates.ca_fingerprint();
    let impostor = customer_in(server, &namespace, "impostor");
    let impostor = impostor.with(&["--ca-fingerprint", &fingerprint]).start(server, token);
    until("the refusal of the token", SHORT_TIMEOUT, || {
        impostor.log().contains("enrolment_redeemed")
    });
}

/// Returns the newest run after it has finished, and checks the kernel's socket tables meanwhile.
fn wait_for_run(server: &Server, namespace: &Namespace, runner: &Runner, moto: &Moto) -> Value {
    until("the end of the run", PROVIDER_TIMEOUT, || {
        assert_connects_only_to_server(runner, server, namespace, Some(moto.port()));
        server.cli_json(&["runs", "show", "notes"])["state"] != "running"
    });
    let run = ended(server, "notes");
    assert_eq!(run["state"], "succeeded", "{}", run_with_logs(server, &run));
    run
}

#[test]
fn aws_resources_are_managed_without_other_network_access() {
    if !terraform_or_skip() {
        return;
    }
    let Some(namespace) = Namespace::new_or_skip() else { return };
    let Some(moto) = Moto::inside_or_skip(&namespace) else { return };
    let vendor = Vendor::at(&namespace);
    let server = &vendor.server;
    let customer = customer_in(server, &namespace, "customer");
    let Some(terraform) = provider_config_for_customers_or_skip(customer.dir()) else { return };
    let own_ca = customer.dir().join("ca.pem");
    fs::copy(vendor.certificates.ca(), &own_ca).unwrap();
    chown_to_customer(&customer);
    vendor.assert_reaches_only_the_runner_listener(&namespace);
    assert!(
        namespace.reaches("127.0.0.1", &moto.port().to_string()),
        "the AWS emulator is not reachable"
    );
    let connection = TcpStream::connect(("127.0.0.1", moto.port()));
    assert!(connection.is_err(), "the AWS emulator is reachable outside the namespace");

    let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/aws-bucket");
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let endpoint = format!("aws_endpoint={}", moto.url());
    let args = ["--auto-approve", "--input", &endpoint];
    let created =
        server.cli_json(&[&["installs", "create", "aws-bucket", "notes"], &args[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = customer
        .with(&["--ca-file", own_ca.to_str().unwrap()])
        .output("region=us-east-1")
        .pass("TF_CLI_CONFIG_FILE", terraform.to_str().unwrap())
        .pass("AWS_ACCESS_KEY_ID", "AKIACUSTOMERSOWN")
        .pass("AWS_SECRET_ACCESS_KEY", "nobody-else-has-this-key")
        .start(server, token);
    wait_until_inside(&runner);
    assert_runs_as_customer(&runner);
    until("the provision run", SHORT_TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "notes"]).as_array().unwrap().is_empty()
    });
    wait_for_run(server, &namespace, &runner, &moto);
    let install = server.cli_json(&["installs", "show", "notes"]);
    let bucket = install["components"][0]["outputs"]["bucket"].as_str();
    let bucket = bucket.unwrap_or_else(|| panic!("{install:#}"));
    let tags = moto.tags(bucket).unwrap_or_else(|| panic!("no {bucket}: {}", moto.buckets()));
    assert!(tags.contains("<Value>30</Value>") && moto.has_role(&format!("{bucket}-reader")));

    server.cli_json(&["installs", "deprovision", "notes", "--reason", "the end"]);
    wait_for_run(server, &namespace, &runner, &moto);
    assert!(moto.tags(bucket).is_none(), "{}", moto.buckets());
}

/// Another user can enter the data directory, but not the directory of the Postgres socket.
#[test]
fn other_users_of_the_host_cannot_reach_the_private_postgres() {
    let server = Server::up();
    let socket = server.data().join("run/.s.PGSQL.5432");
    assert!(socket.exists(), "Postgres has its socket at {}", socket.display());
    let test_as_customer = |question: &str, path: &Path| {
        let mut args = Namespace::as_the_customer();
        args.extend(["test", question].map(String::from));
        let result = Command::new(&args[0]).args(&args[1..]).arg(path).output().unwrap();
        (result.status.code(), String::from_utf8_lossy(&result.stderr).into_owned())
    };
    let (as_far, output) = test_as_customer("-x", &server.data());
    // Only root can switch to another user. In CI the other tests of this file require root, too.
    if output.contains("setpriv") && !in_ci() {
        return eprintln!("SKIPPED: root is required to switch the user: {output}");
    }
    assert_eq!(as_far, Some(0), "another user cannot enter the data directory: {output}");
    assert_eq!(
        test_as_customer("-e", &socket),
        (Some(1), String::new()),
        "another user can reach the socket"
    );
    let socket_dir = socket.parent().unwrap();
    assert_eq!(
        test_as_customer("-x", socket_dir),
        (Some(1), String::new()),
        "another user can enter the directory of the socket"
    );
}
