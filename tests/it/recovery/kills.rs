//! Kill of `stead-runner recover` at each step of a recovery: the same call then completes it.
use std::{os::unix::process::ExitStatusExt as _, process::Stdio};

use super::*;

/// System calls that end a step: a durable file, a file with its final name, and a response of the
/// server.
const STEPS: [&str; 3] = ["fsync", "rename", "recvfrom"];
const SIGKILL: i32 = 9;

/// Returns whether strace is installed. Without it, the test prints a note and passes; in CI it
/// fails.
fn strace_or_skip() -> bool {
    let is_installed = Command::new("strace").arg("-V").output().is_ok();
    assert!(is_installed || !in_ci(), "CI must have strace on PATH");
    if !is_installed {
        eprintln!("SKIPPED: strace is not on PATH");
    }
    is_installed
}

impl NewHost<'_> {
    /// Runs the recovery, and kills it when it makes this system call for the nth time.
    fn recover_until(&self, call: &str, number: u32) -> Output {
        let kill = format!("inject={call}:signal=KILL:when={number}");
        let trace = format!("trace={call}");
        let log = self.file("strace").display().to_string();
        self.through(&["strace", "-f", "-qq", "-o", &log, "-e", &trace, "-e", &kill])
    }

    /// Checks that an ordinary start does not enrol an interrupted recovery.
    fn check_start(&self) {
        let data = self.data();
        if !data.join("recovery.json").exists() || data.join("runner.json").exists() {
            return;
        }
        let mut start = Command::new(program("stead-runner"));
        start.arg("--data").arg(&data).args([
            "--mode",
            "install",
            "--server",
            self.server.runner(),
        ]);
        start.args(["--server-key", self.server.fingerprint(), "--token-file"]);
        let output = start.arg(self.file("recovery.token")).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("was interrupted"), "{error}");
    }
}

#[test]
fn a_recovery_that_is_killed_at_any_step_is_repeated() {
    if !terraform_or_skip() || !strace_or_skip() {
        return;
    }
    let server = Server::up();
    let mut lost = install(&server, 0);
    until_some("the provision run", TIMEOUT, || {
        server.cli_json(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    succeeded(&server, "acme");
    let mut host = NewHost {
        token: String::new(),
        server: &server,
        name: "listed".into(),
        key: PrivateKey::File(SECRET),
        fingerprint: fingerprint(&lost),
        heads: vec![],
    };
    lost.kill();
    host.token = new_token(&server);
    host.heads = host.listed();
    assert_eq!(host.heads.len(), 6, "{:?}", host.heads);

    let (mut recoveries, mut kills) = (0, 0);
    for call in STEPS {
        for number in 1.. {
            host.name = format!("{call}-{number}");
            let mut output = host.recover_until(call, number);
            let is_killed = output.status.signal() == Some(SIGKILL);
            if is_killed {
                host.check_start();
                output = host.recover();
                kills += 1;
            }
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{call} {number}: {error}");
            recoveries += 1;
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            host.fingerprint = printed.lines().nth(1).unwrap().to_owned();
            // A server that commits the enrolment of a killed call commits no second one.
            assert_eq!(events(&server, "install.recovered").len(), recoveries, "{call} {number}");
            if !is_killed {
                break;
            }
            host.token = new_token(&server);
        }
        if call != STEPS[STEPS.len() - 1] {
            host.token = new_token(&server);
        }
    }
    assert!(kills > 15, "only {kills} kills");

    // The last host continues from the states, and the first one is rejected.
    let last = Runner::start(&server, &host.name, &host.token);
    stdout_of(&mut last.local(&["enable"]));
    server.cli_json(&["installs", "deploy", "acme"]);
    succeeded(&server, "acme");
    assert_eq!(last.ledger(), [], "something was created again");
    lost.restart();
    until("the lost host to be rejected", TIMEOUT, || lost.log().contains("was revoked"));
}
