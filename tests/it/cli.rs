//! Tests the command line that scripts rely on: exit codes, formats and stored files.
use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use tests::{Server, program, stdout_of, until};

/// Returns `stead` for a user with this home directory and an empty environment.
fn at_home(home: &Path) -> Command {
    let mut command = Command::new(program("stead"));
    command.env_clear().env("HOME", home);
    command
}

fn failure(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn each_kind_of_failure_has_its_exit_code_and_a_hint() {
    let server = Server::up();
    let viewer = server.dir().join("viewer.token");
    let viewer = viewer.to_str().unwrap();
    server.cli_json(&["tokens", "create", "--role", "viewer", "--to-file", viewer]);

    let (code, text) = server.refused(&["installs", "show", "nobody"]);
    assert_eq!(code, 3, "{text}");
    let (code, text) = server.refused(&["apps", "sync", "/nonexistent"]);
    assert_eq!(code, 2, "{text}");
    let (code, text) = server.refused(&["runs", "list", "--limit", "0"]);
    assert_eq!(code, 2, "{text}");
    let (code, text) = server.refused(&["--token-file", viewer, "tokens", "list"]);
    assert_eq!(code, 2, "an option that is given twice: {text}");

    let mut command = Command::new(program("stead"));
    let command = command.args(["--server", server.control(), "--token-file", viewer]);
    let (code, text) = failure(&command.args(["tokens", "list"]).output().unwrap());
    assert!(code == 4 && text.contains("try: "), "{code} {text}");

    let home = tempfile::tempdir().unwrap();
    let (code, text) = failure(&at_home(home.path()).args(["apps", "list"]).output().unwrap());
    assert!(code == 2 && text.contains("stead login"), "{code} {text}");
    let dead = ["--server", "http://127.0.0.1:1", "apps", "list"];
    let (code, text) = failure(&at_home(home.path()).args(dead).output().unwrap());
    assert!(code == 5 && text.contains("stead up"), "{code} {text}");
    let none = ["--server", server.control(), "apps", "list"];
    let (code, text) = failure(&at_home(home.path()).args(none).output().unwrap());
    assert!(code == 4 && text.contains("token_missing"), "{code} {text}");
}

#[test]
fn a_login_is_stored_for_one_user_and_one_server() {
    let server = Server::up();
    let home = tempfile::tempdir().unwrap();
    let token = server.dir().join("data/owner.token");
    let login = ["login", "--server", server.control(), "--token-file", token.to_str().unwrap()];
    let text = stdout_of(at_home(home.path()).args(login));
    assert!(text.contains("Logged in") && !text.contains(&server.owner_token()), "{text}");
    let stored = home.path().join(".config/stead/cli.toml");
    let mode = std::fs::metadata(&stored).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(stdout_of(at_home(home.path()).arg("whoami")).contains("owner"));

    // Another address is another server, so it does not get the token.
    let other = server.control().replace("127.0.0.1", "localhost");
    let args = ["--server", &other, "whoami"];
    let (code, text) = failure(&at_home(home.path()).args(args).output().unwrap());
    assert!(code == 4 && text.contains("token_missing"), "{code} {text}");
    // An unknown token is not stored.
    let wrong = ["login", "--server", server.control()];
    let mut wrong_login = at_home(home.path());
    let (code, _) =
        failure(&wrong_login.env("STEAD_TOKEN", "stead_x").args(wrong).output().unwrap());
    assert_eq!(code, 4);
    assert!(stdout_of(at_home(home.path()).arg("whoami")).contains("owner"));
    stdout_of(at_home(home.path()).arg("logout"));
    assert!(!stored.exists());
}

#[test]
fn output_is_a_table_or_json() {
    let server = Server::up();
    let tokens = server.cli_json(&["tokens", "list"]);
    assert_eq!(tokens.as_array().unwrap().len(), 1);
    let lines = stdout_of(server.stead_for_people().args(["-o", "ndjson", "audit", "events"]));
    // The log has at least the events of the first owner. More events follow when the build runner
    // gets its token and enrols.
    assert!(lines.lines().count() >= 4, "{lines}");
    for line in lines.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    let table = stdout_of(server.stead_for_people().args(["tokens", "list"]));
    assert!(table.starts_with("NAME ") && table.contains("owner"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours without a terminal: {table:?}");
    assert_eq!(stdout_of(server.stead_for_people().args(["runs", "list"])), "No runs.\n");
    assert_eq!(server.cli_json(&["runs", "list"]), serde_json::json!([]));
}

#[test]
fn an_export_verifies_offline_and_a_changed_one_does_not() {
    let server = Server::up();
    let at = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let (log, note, wrong) = (at("log.ndjson"), at("note"), at("wrong.ndjson"));
    let checkpoint = server.cli_json(&["audit", "checkpoint"]);
    std::fs::write(&note, checkpoint["note"].as_str().unwrap()).unwrap();
    server.cli_json(&["tokens", "create", "--role", "viewer"]);
    stdout_of(server.stead_for_people().args(["audit", "export", "--out", &log]));
    let text = stdout_of(server.stead_for_people().args(["audit", "verify", "--against", &note]));
    assert!(text.contains("unchanged since the stored checkpoint"), "{text}");

    let home = tempfile::tempdir().unwrap();
    let key = checkpoint["verifier_key"].as_str().unwrap();
    let verify = |file: &str| {
        let args = ["audit", "verify", "--export", file, "--against", &note, "--key", key];
        at_home(home.path()).args(args).output().unwrap()
    };
    let good = verify(&log);
    assert!(good.status.success(), "{}", failure(&good).1);
    let events = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&wrong, events.replacen("owner", "admin", 1)).unwrap();
    assert_eq!(failure(&verify(&wrong)).0, 1);
    let all_but_one =
        [events.lines().take(1).collect(), events.lines().skip(2).collect::<Vec<_>>()];
    std::fs::write(&wrong, all_but_one.concat().join("\n")).unwrap();
    assert_eq!(failure(&verify(&wrong)).0, 1);
}

#[test]
fn proofs_and_exports_are_checked_offline_and_state_what_is_not_proven() {
    // given a stored checkpoint, a bundle based on it, and an export of a part of the log
    let server = Server::up();
    let at = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let (note, bundle, part, wrong) = (at("note"), at("bundle"), at("part"), at("wrong"));
    let alone = at("alone");
    let stored = server.cli_json(&["audit", "checkpoint"]);
    std::fs::write(&note, stored["note"].as_str().unwrap()).unwrap();
    server.cli_json(&["tokens", "create", "--role", "viewer"]);
    let events = server.cli_json(&["audit", "events", "--limit", "1"]);
    let stream = events[0]["stream"].as_str().unwrap();
    let make = |args: &[&str]| stdout_of(server.stead_for_people().args(args));
    make(&["audit", "prove", stream, "--since", &note, "--out", &bundle]);
    make(&["audit", "prove", stream, "--other-entries", "none", "--out", &alone]);
    make(&["audit", "export", "--from", "2", "--to", "3", "--out", &part]);

    // when a verifier has only these files, and a key in each of its forms
    let home = tempfile::tempdir().unwrap();
    let check = |file: &str, key: &str, more: &[&str]| {
        let args = [&["audit", "check", file, "--key", key], more].concat();
        at_home(home.path()).args(args).output().unwrap()
    };
    let data = server.data();
    let checkpoint_key = server.cli_json(&["keys", "list", "--data", data.to_str().unwrap()]);
    let signs_checkpoints = |key: &&serde_json::Value| key["use"] == "checkpoints";
    let checkpoint_key =
        checkpoint_key.as_array().unwrap().iter().find(signs_checkpoints).unwrap().clone();
    assert_eq!(checkpoint_key["verifier_key"], stored["verifier_key"]);
    for form in ["verifier_key", "fingerprint", "key"] {
        let key = checkpoint_key[form].as_str().unwrap();
        let good = check(&bundle, key, &["--checkpoint", &note]);
        // then verification succeeds and states what is not proven
        assert!(good.status.success(), "{}", failure(&good).1);
        let text = String::from_utf8_lossy(&good.stdout).into_owned();
        for text_part in [
            "no event of ",
            "only grew since",
            "the stored checkpoint",
            "Not proven:",
            "--other-entries",
            "all",
            "has no date",
        ] {
            assert!(text.contains(text_part), "{text_part}: {text}");
        }
        let part = check(&part, key, &[]);
        assert!(part.status.success(), "{}", failure(&part).1);
        let verified = make(&["audit", "verify", "--against", &note, "--key", key]);
        assert!(verified.contains("unchanged since the stored checkpoint"), "{verified}");
    }
    // and a program that requires completeness learns whether the bundle is complete
    let key = checkpoint_key["verifier_key"].as_str().unwrap();
    for (file, code) in [(&bundle, 0), (&part, 0), (&alone, 1)] {
        let complete = check(file, key, &["--require-complete"]);
        assert_eq!(complete.status.code(), Some(code), "{file}: {}", failure(&complete).1);
    }
    // and a changed bundle, a file that is not a bundle, and another signer have distinct errors
    let text = std::fs::read_to_string(&bundle).unwrap();
    std::fs::write(&wrong, text.replacen("\"sequence\":1,", "\"sequence\":2,", 1)).unwrap();
    let (code, text) = failure(&check(&wrong, key, &[]));
    assert!(code == 1 && text.contains("position "), "{text}");
    assert_eq!(failure(&check(&note, key, &[])).0, 2);
    let other_key = format!("sha256:{}", "0".repeat(64));
    assert_eq!(failure(&check(&bundle, &other_key, &[])).0, 1);
    assert_eq!(failure(&check(&bundle, "no key", &[])).0, 2);
}

#[test]
fn completions_exist_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout_of(Command::new(program("stead")).args(["completions", shell]));
        assert!(text.contains("installs"), "{shell}");
    }
}

#[test]
fn json_output_is_one_document_and_an_error_is_one_line() {
    let server = Server::up();
    for args in [
        &["whoami"][..],
        &["apps", "list"],
        &["builds", "list"],
        &["installs", "list"],
        &["runs", "list"],
        &["jobs", "list"],
        &["runners", "list"],
        &["tokens", "list"],
        &["audit", "events"],
        &["audit", "verify"],
        &["audit", "prove", "1"],
        &["projections", "list"],
        &["projections", "verify", "all"],
    ] {
        server.cli_json(args);
    }
    let refusal = |args: &[&str]| -> serde_json::Value {
        let output = server.stead().args(args).output().unwrap();
        let (code, text) = failure(&output);
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["exit_code"], code, "{text}");
        read
    };
    assert_eq!(refusal(&["installs", "show", "nobody"])["code"], "not_found");
    assert_eq!(refusal(&["apps", "sync", "/nonexistent"])["code"], "usage");
    let misspelt = refusal(&["runs", "list", "acme"]);
    assert!(
        misspelt["detail"].as_str().unwrap().contains("unexpected argument 'acme'"),
        "{misspelt}"
    );
    let reserved_name = ["tokens", "create", "--role", "viewer", "--name", "policy:x"];
    assert_eq!(refusal(&reserved_name)["errors"][0]["field"], "name");
}

#[test]
fn the_printed_enrol_command_works_and_contains_no_token() {
    use std::{io::Write as _, process::Stdio};
    let server = Server::up();
    let created = server.cli_json(&["runners", "create-enrolment-token"]);
    let (command, token) = (&created["enrolment"]["command"], &created["enrolment"]["token"]);
    let (command, token) = (command.as_str().unwrap(), token.as_str().unwrap());
    assert!(!command.contains(token), "{command}");
    let home = server.dir().join("runner").display().to_string();
    let command = command.replace("/var/lib/stead-build-runner", &home);
    let runner_program = program("stead-runner");
    let mut runner = Command::new("/bin/sh")
        .args(["-c", &format!("exec {command}")])
        .env("PATH", runner_program.parent().unwrap())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Standard input stays open, as in a terminal.
    let mut stdin = runner.stdin.take().unwrap();
    writeln!(stdin, "{token}").unwrap();
    tests::until("the runner", std::time::Duration::from_secs(30), || {
        let all = server.cli_json(&["runners", "list"]);
        all.as_array().unwrap().iter().any(|one| one["mode"] == "build")
            && Path::new(&home).join("runner.json").exists()
    });
    runner.kill().unwrap();
    runner.wait().unwrap();
}

#[test]
fn log_lines_of_the_server_and_its_build_runner_are_json_on_request() {
    // given a server and its build runner that log JSON
    let server = Server::up_with("127.0.0.1:0", &["--log-format", "json"]);
    let lines = |text: &str| -> Vec<serde_json::Value> {
        let complete = text.lines().filter(|line| line.starts_with('{'));
        complete.filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let log = server.data().join("build-runner.log");
    until("a log line of the build runner", Duration::from_secs(30), || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        lines(&text).iter().any(|line| line["level"] == "INFO")
    });
    // then each line has a time, a level, a message and fields, and no line is plain text
    let text = server.log();
    let found = lines(&text);
    let ready =
        found.iter().find(|line| line["fields"]["message"] == "Accepting connections").unwrap();
    assert!(ready["timestamp"].is_string() && ready["fields"]["control"].is_string(), "{ready}");
    assert!(!text.contains(" INFO "), "{text}");
    // and an unknown format is rejected
    let wrong = server.stead().args(["up", "--log-format", "xml"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
