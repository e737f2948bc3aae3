//! Tests `stead archive` next to a running server: create, list, read, drop and lose an archive.
use std::{fs, time::Duration};

use serde_json::Value;
use tests::{Server, call, position, stdout_of, until_some};

fn archive(server: &Server, args: &[&str]) -> Value {
    let data = server.data().display().to_string();
    server.cli_json(&[&["archive"], args, &["--data", &data]].concat())
}

/// Appends enough events for a published checkpoint.
fn events(server: &Server) {
    let token = format!("Bearer {}", server.owner_token());
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    let tokens = format!("{}/v1/tokens", server.control());
    while position(server) < 1_010 {
        for _ in 0..100 {
            let made = call("POST", &tokens, &headers, br#"{"role":"viewer"}"#);
            assert!((200..300).contains(&made.status), "{}", made.body);
        }
    }
}

#[test]
fn archived_ranges_are_dropped_and_stay_readable() {
    let mut server = Server::up_with("127.0.0.1:0", &["--partition-events", "256"]);
    events(&server);
    let args = ["audit", "events", "--limit", "200"];
    let before = server.cli_json(&args);
    // Checkpoints are published within two seconds, and the first one may cover only some of the
    // events.
    until_some("a checkpoint", Duration::from_secs(60), || {
        archive(&server, &["create", "--through", "512"]);
        (archive(&server, &["list"]).as_array()?.len() == 2).then_some(())
    });
    let listed = archive(&server, &["list"]);
    assert!(listed.as_array().unwrap().iter().all(|one| one["has_rows"] == true), "{listed}");
    assert_eq!(archive(&server, &["verify"]).as_array().unwrap().len(), 2);
    let directory = server.data().join("archives/257-512").display().to_string();
    let key =
        server.cli_json(&["audit", "checkpoint"])["verifier_key"].as_str().unwrap().to_owned();
    let offline = server.cli_json(&["archive", "verify", &directory, "--key", &key]);
    assert_eq!((&offline[0]["first"], &offline[0]["last"]), (&257.into(), &512.into()));
    // Archived rows leave the database and stay readable, even after a kill and restart of the
    // server.
    assert_eq!(
        archive(&server, &["drop", "--through", "600"]),
        serde_json::json!([[1, 256], [257, 512]])
    );
    server.kill();
    server.restart();
    assert_eq!(server.cli_json(&args), before);
    for check in
        [&["audit", "verify"][..], &["projections", "verify", "--all"], &["audit", "doctor"]]
    {
        stdout_of(server.stead_for_people().args(check));
    }
    // A missing archive is named in the error, with the required action.
    let moved = server.data().join("away");
    fs::rename(&directory, &moved).unwrap();
    let data = server.data().display().to_string();
    let (_, message) = server.refused(&["archive", "verify", "--data", &data]);
    assert!(message.contains("archives/257-512"), "{message}");
    fs::rename(&moved, &directory).unwrap();
    assert_eq!(archive(&server, &["verify"]).as_array().unwrap().len(), 2);
}
