//! Tests of the decisions of a user about the state, on hosts that differ from the server.

use std::fs;

use runner_agent::state::{Decision, StateMark};

use super::{
    state_hosts::{Host, diverged, mark, of_lineage, state, write},
    state_server::{Reads, StateServer, Uploads},
};

#[tokio::test]
async fn a_diverged_host_is_refused_until_each_choice_ends_it() {
    for choice in ["keep", "server", "restore", "older", "other lineage", "nothing"] {
        let (server, host) = diverged().await;
        for _ in 0..2 {
            let why = host.refusal(40).await;
            assert!(why.contains("neither continues the other"), "{why}");
            assert!(why.contains("--keep-current, --from-server"), "{why}");
        }
        let file = host.dir.path().join("chosen");
        let chosen = match choice {
            "restore" => state(9),
            "older" => state(1),
            _ => of_lineage("m", 1),
        };
        fs::write(&file, chosen).unwrap();
        let (decision, expected) = match choice {
            "keep" => (Decision::KeepCurrent, mark(3)),
            "server" => (Decision::FromServer, mark(3)),
            "restore" => (Decision::Restore(file), mark(10)),
            "older" => (Decision::Restore(file), mark(3)),
            "other lineage" => {
                let mark = StateMark { lineage: Some("m".into()), serial: 1 };
                (Decision::Restore(file), mark)
            }
            _ => (Decision::NothingExists, mark(3)),
        };
        let resolved = host.resolve(decision).await.unwrap();
        assert_eq!(resolved == expected, choice != "nothing", "{choice}: {resolved:?}");
        // The server has the decision at once, so the next job of any host begins with it.
        assert_eq!(host.pending(), None, "{choice}");
        assert_eq!(host.begins_with(50).await, expected, "{choice}");
        assert_eq!(Host::new(&server).begins_with(50).await, expected, "{choice}");
        // An apply can follow, and the replaced state of this host still exists.
        let session = host.open(60).await.unwrap();
        let lineage = expected.lineage.clone().unwrap();
        write(&session, &of_lineage(&lineage, expected.serial + 1)).await;
        assert_eq!(server.newest().unwrap().serial, expected.serial + 1, "{choice}");
        assert!(host.files("resolved-") >= 1, "{choice}");
    }
}

#[tokio::test]
async fn a_host_without_a_copy_decides_after_the_servers_version() {
    let server = StateServer::start(Uploads::Accept);
    Host::new(&server).apply(10, &[1, 2]).await;
    let host = Host::new(&server);
    let error = host.resolve(Decision::KeepCurrent).await.unwrap_err().to_string();
    assert!(error.contains("this host has none"), "{error}");
    host.resolve(Decision::NothingExists).await.unwrap();
    let newest = server.newest().unwrap();
    assert!(newest.is_empty && newest.serial == 3, "{newest:?}");
    assert_eq!(host.begins_with(20).await, mark(3));

    let server = StateServer::start(Uploads::Accept);
    Host::new(&server).apply(10, &[1, 2]).await;
    let host = Host::new(&server);
    let file = host.dir.path().join("chosen");
    fs::write(&file, state(1)).unwrap();
    assert_eq!(host.resolve(Decision::Restore(file)).await.unwrap(), mark(3));
    assert_eq!(host.begins_with(20).await, mark(3));
    // Without a version on the server, there is nothing to take.
    let host = Host::new(&StateServer::start(Uploads::Accept));
    let error = host.resolve(Decision::FromServer).await.unwrap_err().to_string();
    assert!(error.contains("the server has none"), "{error}");
}

#[tokio::test]
async fn a_decision_without_a_server_changes_nothing() {
    let (server, host) = diverged().await;
    server.set_reads(Reads::Respond(503, "busy"));
    let error = anyhow::Error::new(host.resolve(Decision::KeepCurrent).await.unwrap_err());
    assert!(format!("{error:#}").contains("the server did not respond"), "{error:#}");
    server.set_reads(Reads::Answer);
    // The server stores the decision, but the response is lost: the next job finds it.
    server.set_uploads(Uploads::StoreAndLose);
    host.resolve(Decision::KeepCurrent).await.unwrap_err();
    server.set_uploads(Uploads::Accept);
    assert_eq!(host.begins_with(40).await, mark(3));
    // Another host writes before the decision arrives.
    let (server, host) = diverged().await;
    server.set_uploads(Uploads::Reject);
    host.resolve(Decision::KeepCurrent).await.unwrap_err();
    server.set_uploads(Uploads::Accept);
    host.refusal(40).await;
    assert_eq!(host.resolve(Decision::KeepCurrent).await.unwrap(), mark(3));
}

#[tokio::test]
async fn a_kept_state_reaches_a_server_that_has_none() {
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[1]).await;
    server.restore(0);
    for _ in 0..2 {
        assert_eq!(host.resolve(Decision::KeepCurrent).await.unwrap(), mark(2));
        assert_eq!(server.versions(), [("l".to_owned(), 2)], "a repetition changes nothing");
    }
    assert_eq!(host.begins_with(20).await, mark(2));
}
