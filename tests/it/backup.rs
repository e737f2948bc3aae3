//! Tests `stead backup` as an operator uses it: create while the server runs, kill, drill, restore,
//! and serve the result.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{Server, program};

fn backup(server: &Server, args: &[&str]) -> Value {
    server.cli_json(&[&["backup"], args].concat())
}

/// Writes the current signed checkpoint to a file, as a runner stores it.
fn checkpoint(server: &Server, name: &str) -> String {
    let path = server.dir().join(name);
    let note = server.cli_json(&["audit", "checkpoint"])["note"].as_str().unwrap().to_owned();
    fs::write(&path, note).unwrap();
    path.display().to_string()
}

fn event(server: &Server, name: &str) {
    server.cli_json(&["tokens", "create", "--name", name, "--role", "viewer"]);
}

/// Kills `backup create` at each tenth of its duration. Each time, either the backup is complete
/// under its name, or a restore rejects the partial directory.
fn assert_killed_creates_are_not_restorable(server: &Server, data: &str, duration: Duration) {
    let (mut partial_backups, into) = (0, server.dir().join("never"));
    for attempt in 0..27 {
        if attempt >= 9 && partial_backups > 0 {
            break;
        }
        let out = server.dir().join(format!("killed-{attempt}"));
        let mut create = Command::new(program("stead"));
        create.args(["backup", "create", "--data", data, "--out"]).arg(&out);
        let mut create = create.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(duration * (1 + attempt % 9) / 10);
        create.kill().unwrap();
        create.wait().unwrap();
        if out.exists() {
            assert!(out.join("manifest.sha256").is_file());
            continue;
        }
        let partial = server.dir().join(format!("killed-{attempt}.partial"));
        partial_backups += u32::from(partial.exists());
        for source in [&out, &partial] {
            let mut restore = Command::new(program("stead"));
            restore.args(["backup", "restore", "--from"]).arg(source).arg("--data").arg(&into);
            let refused = restore.output().unwrap();
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            // A rejected restore leaves its target directory empty.
            assert!(fs::read_dir(&into).is_ok_and(|mut entries| entries.next().is_none()));
        }
    }
    assert!(partial_backups > 0, "no create was killed in the middle");
}

#[test]
fn a_restored_server_serves_its_backup_and_reports_missing_events() {
    let mut server = Server::up();
    event(&server, "before");
    let before = checkpoint(&server, "before.checkpoint");
    let data = server.data().display().to_string();
    let out = server.dir().join("backup").display().to_string();
    let started = Instant::now();
    let made = backup(&server, &["create", "--data", &data, "--out", &out]);
    let duration = started.elapsed();
    let position = made["position"].as_u64().unwrap();
    for (path, mode) in [("", 0o700), ("database.dump", 0o600), ("keys/manifests.key", 0o600)] {
        let found = fs::metadata(Path::new(&out).join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
    event(&server, "after");
    let later = checkpoint(&server, "later.checkpoint");

    let drill = ["drill", "--from", &out, "--against", &before, "--against", &later];
    let drilled = backup(&server, &drill);
    assert_eq!(drilled["position"], position);
    assert_eq!(drilled["witnessed"][0]["missing"], Value::Null);
    let end = drilled["witnessed"][1]["position"].as_u64().unwrap();
    assert_eq!(drilled["witnessed"][1]["missing"], serde_json::json!([position + 1, end]));
    assert_killed_creates_are_not_restorable(&server, &data, duration);

    // A restore into the server's own directory, and a drill of a backup with a changed byte, are
    // rejected.
    let (code, message) = server.refused(&["backup", "restore", "--from", &out, "--data", &data]);
    assert!(code == 2 && message.contains("is not empty"), "{code}: {message}");
    let key = Path::new(&out).join("keys/tokens.key");
    let original = fs::read(&key).unwrap();
    let mut flipped = original.clone();
    flipped[3] ^= 1;
    fs::write(&key, flipped).unwrap();
    let (code, message) = server.refused(&["backup", "drill", "--from", &out]);
    assert!(code == 1 && message.contains("keys/tokens.key"), "{code}: {message}");
    fs::write(&key, original).unwrap();

    // `backup create` starts the private Postgres of a stopped server. Then the host is lost.
    let fingerprint = server.fingerprint().to_owned();
    server.stop();
    let cold = server.dir().join("cold.tar").display().to_string();
    let cold = backup(&server, &["create", "--data", &data, "--out", &cold]);
    assert!(cold["position"].as_u64().unwrap() >= end);
    fs::rename(&data, server.dir().join("lost")).unwrap();
    let mut restore = server.stead_for_people();
    restore.args(["backup", "restore", "--from", &out, "--data", &data, "--against", &later]);
    let output = tests::stdout_of(&mut restore);
    let missing = format!("Missing         positions {} to {end}", position + 1);
    for line in [&missing, "stead migrate --raise-epoch 2", "stead-runner witness accept --epoch 2"]
    {
        assert!(output.contains(line), "{line}: {output}");
    }
    server.restart();
    assert_eq!(server.fingerprint(), fingerprint);
    let now = server.cli_json(&["audit", "verify", "--against", &before]);
    assert!(now["verified"].as_u64().unwrap() >= position);
    let (code, message) = server.refused(&["audit", "verify", "--against", &later]);
    assert_eq!(code, 1, "{message}");
    // Runs the command that the restore printed, while the server runs.
    let raise = output.lines().find(|line| line.contains("--raise-epoch")).unwrap().trim();
    let raise = raise.replace("stead migrate", &format!("{} migrate", program("stead").display()));
    tests::stdout_of(Command::new("sh").args(["-c", &raise]));
}
