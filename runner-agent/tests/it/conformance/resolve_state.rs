//! Tests of the decisions of a user about the state, on hosts that differ from the server.

use std::fs;

use runner_agent::state::{Decision, Online, StateMark};
use schemas::manifest::{Fence, StateVersion};

use super::{
    state_hosts::{Host, diverged, mark, of_lineage, other_state, state, version, write},
    state_server::{Reads, StateServer, Uploads},
};

/// Returns the decision of this name, and the version that follows the serial `known`.
fn decision(host: &Host, choice: &str, known: u64) -> (Decision, StateMark) {
    let file = host.dir.path().join("chosen");
    let chosen = match choice {
        "restore" => state(9),
        "older" => state(1),
        _ => of_lineage("m", 1),
    };
    fs::write(&file, chosen).unwrap();
    match choice {
        "keep" => (Decision::KeepCurrent, mark(known + 1)),
        "server" => (Decision::FromServer, mark(known + 1)),
        "restore" => (Decision::Restore(file), mark(known.max(9) + 1)),
        "older" => (Decision::Restore(file), mark(known + 1)),
        "other lineage" => {
            (Decision::Restore(file), StateMark { lineage: Some("m".into()), serial: 1 })
        }
        _ => (Decision::NothingExists, mark(known + 1)),
    }
}

#[tokio::test]
async fn a_diverged_host_is_refused_until_each_choice_ends_it() {
    // The log can name a version that neither the host nor the server has.
    for (log, known) in [(None, 2), (version(12), 12)] {
        for choice in ["keep", "server", "restore", "older", "other lineage", "nothing"] {
            let (server, mut host) = diverged().await;
            server.record(log.clone());
            host.log = log.clone();
            for _ in 0..2 {
                let why = host.refusal(40).await;
                assert!(why.contains("neither continues the other"), "{why}");
                assert!(why.contains("--keep-current, --from-server"), "{why}");
            }
            let (decision, expected) = decision(&host, choice, known);
            let resolved = host.resolve(decision).await.unwrap();
            assert_eq!(resolved == expected, choice != "nothing", "{choice}: {resolved:?}");
            if choice == "other lineage" && log.is_some() {
                // A user of the vendor accepts it.
                let why = host.refusal(50).await;
                assert!(why.contains("accept-state INSTALL web --lineage m --serial 1"), "{why}");
                let (lineage, digest) = ("m".into(), None);
                host.log = Some(StateVersion { lineage, serial: 1, digest });
            }
            // The server has the decision at once, so the next job of any host begins with it.
            assert_eq!(host.pending(), None, "{choice}");
            assert_eq!(host.begins_with(50).await, expected, "{choice}");
            let other = Host { log: host.log.clone(), ..Host::new(&server) };
            assert_eq!(other.begins_with(50).await, expected, "{choice}");
            // An apply can follow.
            let session = host.open(60).await.unwrap();
            let lineage = expected.lineage.clone().unwrap();
            write(&session, &of_lineage(&lineage, expected.serial + 1)).await;
            assert_eq!(server.newest().unwrap().serial, expected.serial + 1, "{choice}");
            // The replaced states of this host and of the server still exist.
            let kept = host.kept().await;
            for state in [state(2), other_state(2)] {
                assert!(kept.contains(&state), "{choice}: {kept:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_lost_host_leaves_no_version_that_blocks_the_others() {
    // Given a log that names a version of a host that is lost with it.
    for choice in ["keep", "server", "restore", "nothing"] {
        let server = StateServer::start(Uploads::Accept);
        Host::new(&server).apply(10, &[9]).await;
        server.record(version(12));
        let host = Host { log: version(12), ..Host::new(&server) };
        let why = host.refusal(20).await;
        assert!(why.contains("newest known state is serial 12"), "{why}");
        let (decision, expected) = decision(&host, choice, 12);
        host.resolve(decision).await.unwrap();
        assert_eq!(host.begins_with(30).await, expected, "{choice}");
    }
    // Even without any version on the server.
    let server = StateServer::start(Uploads::Accept);
    server.record(version(12));
    let host = Host { log: version(12), ..Host::new(&server) };
    host.resolve(Decision::NothingExists).await.unwrap();
    let other = Host { log: version(12), ..Host::new(&server) };
    for host in [host, other] {
        assert_eq!(host.begins_with(30).await, mark(13));
    }
}

#[tokio::test]
async fn an_older_state_needs_the_consent_of_the_user() {
    let refused = async |host: &Host, decision: Decision, known: &str| {
        let error = host.resolve_with(decision, false).await.unwrap_err().to_string();
        assert!(error.contains(known) && error.contains("--older"), "{error}");
    };
    // Given a copy of this host before later applies of another host.
    let server = StateServer::start(Uploads::Accept);
    let host = Host::new(&server);
    host.apply(10, &[6]).await;
    Host::new(&server).apply(20, &[7, 8, 9]).await;
    let file = host.dir.path().join("chosen");
    fs::write(&file, state(6)).unwrap();
    refused(&host, Decision::Restore(file.clone()), "serial 9 is known").await;
    refused(&host, Decision::KeepCurrent, "serial 9 is known").await;
    assert_eq!(server.newest().unwrap().serial, 9);
    // The newest one, with other content, needs none.
    fs::write(&file, other_state(9)).unwrap();
    let restored = host.resolve_with(Decision::Restore(file), false).await.unwrap();
    assert_eq!(restored, mark(10));
    // Given an authentic version of the server that is older than the one in the journal.
    host.journal.seen(&mark(15), None);
    refused(&host, Decision::FromServer, "serial 15 is known").await;
    assert_eq!(host.resolve(Decision::FromServer).await.unwrap(), mark(16));
}

#[tokio::test]
async fn a_hostile_server_chooses_neither_serial_nor_fence_of_a_decision() {
    let highest = u64::try_from(i64::MAX).unwrap() - 1;
    let decide = async |host: &Host, server: &StateServer| {
        let online = Online::new(host.remote(), "web");
        let basis = online.basis(&host.journal.entries()).await.unwrap();
        assert!(server.newest().is_some());
        host.store().decide(Decision::KeepCurrent, &basis).map(|chosen| chosen.mark().clone())
    };
    let (server, host) = diverged().await;
    // Given a serial after which no state is valid, in a version that no host has signed.
    server.change_newest(|head, _| head.serial = highest);
    host.refusal(40).await;
    assert_eq!(decide(&host, &server).await.unwrap(), mark(3));
    server.record(version(highest));
    assert_eq!(decide(&host, &server).await.unwrap(), mark(3));
    // Given a fence beyond each job.
    server.change_newest(|head, _| head.fence = Fence { epoch: highest, position: highest });
    let error = decide(&host, &server).await.unwrap_err().to_string();
    assert!(error.contains("did not sign the newest version of the server"), "{error}");
}

#[tokio::test]
async fn a_running_job_on_another_host_rejects_a_decision() {
    let (server, host) = diverged().await;
    server.hold(Some("job_01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    let error = host.resolve(Decision::KeepCurrent).await.unwrap_err().to_string();
    assert!(error.contains("job_01ARZ3NDEKTSV4RRFFQ69G5FAV is running"), "{error}");
    // Nothing of the decision stays.
    assert_eq!((host.files("resolved-"), host.files("state.encrypted.next")), (0, 0));
    assert!(host.refusal(40).await.contains("neither continues the other"));
    server.hold(None);
    assert_eq!(host.resolve(Decision::KeepCurrent).await.unwrap(), mark(3));
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
    host.resolve_with(Decision::Restore(file.clone()), false).await.unwrap_err();
    assert_eq!(host.resolve(Decision::Restore(file)).await.unwrap(), mark(3));
    assert_eq!(host.begins_with(20).await, mark(3));
    // Without a version on the server, there is nothing to take.
    let host = Host::new(&StateServer::start(Uploads::Accept));
    let error = host.resolve(Decision::FromServer).await.unwrap_err().to_string();
    assert!(error.contains("the server has none"), "{error}");
}

#[tokio::test]
async fn a_decision_without_a_response_loses_no_state() {
    let (server, host) = diverged().await;
    server.set_reads(Reads::Respond(503, "busy"));
    let error = anyhow::Error::new(host.resolve(Decision::KeepCurrent).await.unwrap_err());
    assert!(format!("{error:#}").contains("the server did not respond"), "{error:#}");
    assert_eq!(host.files("resolved-"), 0);
    // The server stores the decision, but the response is lost: the next job finds it.
    for choice in ["keep", "server", "older", "nothing"] {
        let (server, host) = diverged().await;
        server.set_uploads(Uploads::StoreAndLose);
        let (decision, expected) = decision(&host, choice, 2);
        host.resolve(decision).await.unwrap_err();
        server.set_uploads(Uploads::Accept);
        assert_eq!(host.begins_with(40).await, expected, "{choice}");
        let kept = host.kept().await;
        for state in [state(2), other_state(2)] {
            assert!(kept.contains(&state), "{choice}: {kept:?}");
        }
    }
    // A job begins before the decision is repeated: the rejection does not tell that it is stored.
    let (server, host) = diverged().await;
    server.set_uploads(Uploads::StoreAndHold);
    let error = anyhow::Error::new(host.resolve(Decision::KeepCurrent).await.unwrap_err());
    assert!(format!("{error:#}").contains("an earlier attempt may have stored"), "{error:#}");
    server.set_uploads(Uploads::Accept);
    server.hold(None);
    assert_eq!(host.begins_with(40).await, mark(3));
    let kept = host.kept().await;
    assert!(kept.contains(&state(2)) && kept.contains(&other_state(2)), "{kept:?}");
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
