//! Tests the dashboard in Chromium. `.ci/run` installs the tools and sets `STEAD_TEST_BROWSER`.
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;
use tests::{Runner, Server, edge_api, program, stdout_of, terraform_or_skip, until};

use super::{TIMEOUT, code};

/// Maximum number of cases in a browser.
const MAX_CASES: usize = 60;

/// Writes a copy of the program with another style sheet and another script, as a later build has.
fn next_build(dir: &Path) -> PathBuf {
    let mut program = fs::read(program("stead")).unwrap();
    for (text, other) in [
        (&b"/* Design system of the dashboard"[..], &b"/* Other style of the dashboard 2"[..]),
        (b"// Keeps the page current: waits", b"// Keeps the page current, waits"),
    ] {
        assert_eq!(text.len(), other.len());
        let finder = program.windows(text.len());
        let at = finder.into_iter().position(|part| part == text).unwrap();
        program[at..at + text.len()].copy_from_slice(other);
    }
    let path = dir.join("stead-next");
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_user_approves_a_run_and_follows_its_log_in_chromium() {
    let Some(tools) = std::env::var_os("STEAD_TEST_BROWSER") else {
        return eprintln!("SKIPPED: no browser: set STEAD_TEST_BROWSER (docs/testing.md)");
    };
    if !terraform_or_skip() {
        return;
    }
    let mut server = Server::up();
    let app = edge_api(server.dir());
    // A long log, with colors and markup.
    let effect = "#!/bin/sh\nset -eu\nfor n in $(seq 2500); do echo \"row $n of the sandbox\"; done\n\
                  printf '\\033[31mred text\\033[0m\\n<b>markup</b> of a job\\n'\nsleep \"$2\"\n";
    fs::write(app.join("sandbox/effect.sh"), effect).unwrap();
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let hostile = "company=<img src=x onerror=alert(1)>";
    let create = ["installs", "create", "edge-api", "acme", "--input", hostile];
    let created = server.cli_json(&[&create[..], &["--input", "pace_seconds=1"]].concat());
    let _runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    until("the first plan", TIMEOUT, || {
        let run = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        String::from_utf8_lossy(&run.stdout).contains("waiting_for_approval")
    });
    let second = server.dir().join("v2/edge-api");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    stdout_of(Command::new("sh").arg(root.join("examples/edge-api/version-2")).arg(&second));
    fs::write(second.join("sandbox/effect.sh"), effect).unwrap();
    server.cli_json(&["apps", "sync", second.to_str().unwrap(), "--wait"]);
    let setup = json!({
        "base": server.control(), "code": code(&server), "token": server.owner_token(),
        "tools": Path::new(&tools), "screenshots": std::env::var("STEAD_DASHBOARD_SCREENSHOTS").ok(),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/check.mjs");
    let mut node = Command::new("node")
        .arg(script)
        .arg(setup.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut replies = node.stdin.take().unwrap();
    let mut text = String::new();
    for line in BufReader::new(node.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix("request: ") {
            Some("kill") => server.kill(),
            Some("restart") => server.restart(),
            Some("upgrade") => {
                let next = next_build(server.dir());
                server.upgrade_to(&next);
            }
            Some(other) => panic!("unknown request: {other}"),
            None => {
                text.push_str(&line);
                text.push('\n');
                continue;
            }
        }
        writeln!(replies, "done").unwrap();
    }
    assert!(node.wait().unwrap().success(), "{text}");
    let cases = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!((1..=MAX_CASES).contains(&cases), "{cases} cases, at most {MAX_CASES}");
    eprintln!("{text}");
}
