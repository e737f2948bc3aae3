//! Queries to a log whose older partitions exist only as archives: responses must not change.
use std::fs;

use cli::client::{server_events, take_exported_line};
use domain::{
    ids::{InstallId, RunnerId},
    job::JobKind,
    name::{Name, NameEvent},
    runner::{Runner, RunnerEvent},
};
use event_log::{Commit, NewEvent, StreamId, Write, testing::in_partitions_of, verify::verify};
use futures::StreamExt as _;
use proof::{
    key::TrustedKey,
    range::{Head, Range},
};
use schemas::control::{audit::DoctorProgress, bundles::RangeQuery};
use serde_json::json;

use super::{
    reactions::{enroll, run_of, wait_for},
    with_install,
};
use crate::{
    archives,
    auth::PrincipalCache,
    reactions::dead_letters,
    server::{
        Server,
        testing::{Started, options},
    },
    state::App,
};

fn no_progress(_: String) {}

fn queries_of(install: InstallId) -> Vec<String> {
    let at = |path: &str| format!("/v1/{path}");
    vec![
        at("audit/events?limit=200"),
        at("audit/events?limit=200&after=150"),
        at("audit/events?limit=7&after=253"),
        at("audit/events?limit=200&stream=install/acme"),
        at("audit/events?limit=200&stream=job&after=230"),
        at("audit/events?limit=30&type=job.claimed"),
        at("audit/events?limit=30&type=job.&after=500"),
        at("audit/events?limit=30&actor=system&after=240"),
        at("audit/state?stream=install/acme&position=20"),
        at(&format!("audit/state?stream=install/{install}&position=300")),
        at("audit/diff?stream=install/acme&from_position=0&to_position=400"),
        at("projections/jobs/rows?position=100"),
        at("projections/jobs/rows?position=300"),
        at("projections/installs/rows?position=520"),
        at(&format!("projections/installs/rows?position=300&key={install}")),
    ]
}

async fn responses(started: &Started, questions: &[String]) -> Vec<String> {
    let mut all = vec![];
    for question in questions {
        let request =
            started.http.get(started.control(question)).bearer_auth(started.owner_token());
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{question}: {text}");
        all.push(text);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_are_identical_when_events_exist_only_in_archives() {
    let (started, owner, acme) = with_install().await;
    let app = started.app().clone();
    in_partitions_of(&app.pool, 256).await.unwrap();
    // A revoked runner whose stream has no rows after archiving.
    let archived_runner = RunnerId(ulid::Ulid::new());
    let revoked =
        RunnerEvent::Revoked { by: domain::actor::Actor::System, reason: "stolen".into() };
    let stream = StreamId::of::<Runner>(archived_runner);
    let events = vec![NewEvent::of(&revoked).unwrap()];
    let meta = event_log::Meta::new(domain::actor::Actor::System, "cmd");
    let write = Write { stream, expected: 0, events };
    app.log().append(Commit::of(meta, vec![write])).await.unwrap();
    while app.log().position() < 600 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await.unwrap();
    app.projections.wait_for(600, std::time::Duration::from_secs(30)).await.unwrap();
    while crate::reactions::dead_letters::progress(&app.pool).await.unwrap().position < 600 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let queries = queries_of(acme.id);
    let before = responses(&started, &queries).await;
    let directory = app.log().archives().directory().unwrap().to_path_buf();
    // When the first two partitions are archived and dropped while the server runs.
    let created =
        archives::create(&app.pool, app.log().archives(), None, &no_progress).await.unwrap();
    let ranges: Vec<_> = created.archives.iter().map(|one| (one.first, one.last)).collect();
    assert_eq!(ranges, [(1, 256), (257, 512)]);
    assert!(created.next.unwrap().contains("positions 513 to 768: they are not closed"));
    let dropped =
        archives::discard(&app.pool, app.log().archives(), 512, &no_progress).await.unwrap();
    assert_eq!(dropped, ranges);
    let after = responses(&started, &queries).await;
    for ((query, before), after) in queries.iter().zip(&before).zip(&after) {
        assert_eq!(before, after, "{query}");
    }
    // A range across archives and rows verifies.
    let keys: Vec<TrustedKey> =
        vec![owner.checkpoint().await.unwrap().verifier_key.parse().unwrap()];
    let which = RangeQuery { from: Some(200), to: Some(550), ..RangeQuery::default() };
    let text = owner.range(&which).await.unwrap().text().await.unwrap();
    let mut lines = text.lines();
    let head = Head::read(lines.next().unwrap().as_bytes()).unwrap();
    let mut range = Range::begin(head, &keys, None).unwrap();
    lines.try_for_each(|line| take_exported_line(&mut range, line.as_bytes())).unwrap();
    range.end().unwrap();
    for name in ["install/acme".to_owned(), format!("runner/{archived_runner}")] {
        let which = schemas::control::bundles::BundleQuery {
            stream: Some(name),
            other_entries: Some(schemas::control::bundles::OtherEntries::None),
            ..Default::default()
        };
        let bytes = owner.bundle(&which).await.unwrap().bytes().await.unwrap();
        proof::bundle::Bundle::read(&bytes).unwrap().check(&keys, None).unwrap();
    }
    // A server that starts now loads the revocation.
    let principals = PrincipalCache::default();
    principals.load(app.log(), &app.pool).await.unwrap();
    assert!(principals.is_revoked(archived_runner));
    // Rebuilt projections equal the live ones, and the log verifies.
    let views: Vec<_> = projections::list(&mut app.pool.acquire().await.unwrap())
        .await
        .unwrap()
        .iter()
        .map(|view| view.name)
        .collect();
    projections::rebuild_all(app.owner_source(), &views, 2, |_| {}).await.unwrap();
    for view in views {
        let verified = projections::verify(app.log(), view, |_| {}).await.unwrap();
        assert_eq!(verified.differences, [], "{view}");
    }
    verify(app.log(), 0, |_| {}).await.unwrap();
    let progress = server_events(owner.examine().await.unwrap());
    let last = progress.collect::<Vec<_>>().await.pop().unwrap().unwrap();
    let examined: DoctorProgress = serde_json::from_str(&last.data).unwrap();
    assert_eq!((&*examined.state, examined.findings), ("done", vec![]));
    // A server whose open jobs are in a missing archive does not start, and reports the fix.
    let (archive, away) = (directory.join("257-512"), directory.join("away"));
    fs::rename(&archive, &away).unwrap();
    let message = Started::try_beside(&started).await.err().unwrap().to_string();
    assert!(
        message.contains("cannot read positions 257 to 512: they are only in the archive"),
        "{message}"
    );
    assert!(message.contains("restore the archive from a backup"), "{message}");
    fs::rename(&away, &archive).unwrap();
    let again = Started::beside(&started).await;
    let request = |path: &str| {
        let request = again.http.get(again.control(path)).bearer_auth(started.owner_token());
        async move { request.send().await.unwrap() }
    };
    assert!(request("/v1/audit/events?limit=200&after=512").await.status().is_success());
    assert!(request("/v1/audit/events?limit=200&after=300").await.status().is_success());
    again.server.stop().await;
    started.server.stop().await;
}

/// Appends events of streams that no query reads.
async fn fill(started: &Started, until: u64) {
    let app = started.app();
    while app.log().position() < until {
        let stream = StreamId::of::<Name>(format!("test/{}", ulid::Ulid::new()));
        let events = vec![NewEvent::of(&NameEvent::Taken { owner: "o".into() }).unwrap()];
        let meta = event_log::Meta::new(domain::actor::Actor::System, "cmd");
        let write = Write { stream, expected: 0, events };
        app.log().append(Commit::of(meta, vec![write])).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_archive_causes_dead_letters_and_other_policies_continue() {
    // Given an install whose first events exist only in an archive, and one without archived
    // events.
    let (started, owner, _) = with_install().await;
    in_partitions_of(&started.app().pool, 256).await.unwrap();
    fill(&started, 300).await;
    let beta = owner.create_install(&super::new_install("beta")).await.unwrap().id;
    fill(&started, 600).await;
    let app = started.app().clone();
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await.unwrap();
    app.projections.wait_for(600, std::time::Duration::from_secs(30)).await.unwrap();
    while dead_letters::progress(&app.pool).await.unwrap().position < 600 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let gamma = owner.create_install(&super::new_install("gamma")).await.unwrap().id;
    archives::create(&app.pool, app.log().archives(), None, &no_progress).await.unwrap();
    archives::discard(&app.pool, app.log().archives(), 512, &no_progress).await.unwrap();
    // And a dead letter in the archive.
    let dead = "insert into log_dead_letter (position, reason, attempts, created_at) values (400, 'x', 1, now())";
    sqlx::query(dead).execute(&app.pool).await.unwrap();
    let directory = app.log().archives().directory().unwrap().to_path_buf();
    let (archive, away) = (directory.join("257-512"), directory.join("away"));
    let Started { server, data, http, database } = started;
    server.stop().await;
    // When the archive is missing and both installs can be provisioned.
    fs::rename(&archive, &away).unwrap();
    let server = Server::start(options(data.path(), &database)).await.unwrap();
    let started = Started { server, data, http, database };
    let app = started.app().clone();
    enroll(&app, beta).await;
    enroll(&app, gamma).await;
    // Then the install that needs no archive has its run. The event of the other install is a
    // second dead letter.
    run_of(&app, gamma).await;
    let dead_letters =
        async |app: &App| dead_letters::progress(&app.pool).await.unwrap().dead_letters;
    wait_for(async || (dead_letters(&app).await == 2).then_some(())).await;
    let reasons = "select string_agg(reason, ' ') from log_dead_letter";
    let reasons: String = sqlx::query_scalar(reasons).fetch_one(&app.pool).await.unwrap();
    assert_eq!(reasons.matches("are only in the archive").count(), 2, "{reasons}");
    // And when the archive is restored, the other install has its run, too.
    let Started { server, data, http, database } = started;
    server.stop().await;
    fs::rename(&away, &archive).unwrap();
    let server = Server::start(options(data.path(), &database)).await.unwrap();
    let started = Started { server, data, http, database };
    let app = started.app().clone();
    run_of(&app, beta).await;
    wait_for(async || (dead_letters(&app).await == 0).then_some(())).await;
    started.server.stop().await;
}
