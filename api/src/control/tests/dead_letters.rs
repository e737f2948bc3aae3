//! Dead letters of policies.

use domain::{install::Install, job::JobKind, run::StepState};
use schemas::control::jobs::JobsQuery;
use serde_json::Value;

use super::{
    bundle, new_install, owner,
    reactions::{complete_build, enroll, run_of, wait_for, wait_for_step},
    with_install,
};
use crate::{
    reactions::dead_letters,
    server::{
        Server,
        testing::{self, Started, options},
    },
};

#[tokio::test]
async fn event_with_an_unreadable_row_is_a_dead_letter_until_the_repair() {
    // Given two runs that wait for one build, and an invalid row of the first run in an inline
    // projection.
    let (started, owner, acme) = with_install().await;
    let beta = owner.create_install(&new_install("beta")).await.unwrap();
    let app = started.app();
    enroll(app, acme.id).await;
    let broken = run_of(app, acme.id).await;
    enroll(app, beta.id).await;
    let other = run_of(app, beta.id).await;
    let Started { server, data, http, database } = started;
    server.stop().await;
    let pool = event_log::connect(&database, 1).await.unwrap();
    // The run has no timers, so Stead does not write this row itself.
    let tamper =
        sqlx::query("insert into projection_timers (key, data) values ($1, '{\"timers\": 7}')");
    tamper.bind(broken.to_string()).execute(&pool).await.unwrap();
    let start = async |data: tempfile::TempDir| {
        let server = Server::start(options(data.path(), &database)).await.unwrap();
        Started { server, data, http: http.clone(), database: database.clone() }
    };
    // When the build completes.
    let started = start(data).await;
    let app = started.app();
    complete_build(&started).await;
    // Then the second run advances, and the event is listed as a dead letter because of the first
    // run.
    wait_for_step(app, other, StepState::job).await;
    wait_for(async || {
        let all = super::owner(&started).projections().await.unwrap().items;
        (all.iter().find_map(|one| one.dead_letters) == Some(1)).then_some(())
    })
    .await;
    // And later events are processed.
    super::owner(&started).sync("other", bundle("2"), false).await.unwrap();
    wait_for(async || {
        let jobs = super::owner(&started).jobs(&JobsQuery::default()).await.unwrap().items;
        (jobs.iter().filter(|job| job.kind == JobKind::Build.as_str()).count() == 4).then_some(())
    })
    .await;
    let Started { server, data, .. } = started;
    server.stop().await;
    // When the row is repaired.
    let repair = sqlx::query("delete from projection_timers where key = $1");
    repair.bind(broken.to_string()).execute(&pool).await.unwrap();
    // Then the first run advances, and there is no dead letter.
    let started = start(data).await;
    wait_for_step(started.app(), broken, StepState::job).await;
    wait_for(async || {
        let left = dead_letters::progress(&started.app().pool).await.unwrap().dead_letters;
        (left == 0).then_some(())
    })
    .await;
    started.server.stop().await;
}

#[tokio::test]
async fn unprocessable_event_is_a_dead_letter_and_others_continue() {
    let database = event_log::testing::fresh_database().await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let start = async |data: tempfile::TempDir| {
        let server = Server::start(options(data.path(), &database.url)).await.unwrap();
        Started { server, data, http: testing::client(), database: database.url.clone() }
    };
    let started = start(data).await;
    let synced = owner(&started).sync("shop", bundle("1"), false).await.unwrap();
    let acme = owner(&started).create_install(&new_install("acme")).await.unwrap();
    started.server.stop().await;
    let lost = synced.bundle.to_string();
    let bytes: Vec<u8> = sqlx::query_scalar("delete from blob where digest = $1 returning bytes")
        .bind(&lost)
        .fetch_one(&database.pool)
        .await
        .unwrap();

    let started = start(started.data).await;
    let app = started.app();
    enroll(app, acme.id).await;
    owner(&started).sync("other", bundle("2"), false).await.unwrap();
    // The builds of the other app still get their jobs.
    wait_for(async || {
        let jobs = owner(&started).jobs(&JobsQuery::default()).await.unwrap().items;
        (jobs.len() == 4).then_some(())
    })
    .await;
    // Reactions of other keys run concurrently, so the dead letter may come after the jobs.
    wait_for(async || {
        let stored = dead_letters::progress(&app.pool).await.unwrap().dead_letters;
        (stored == 1).then_some(())
    })
    .await;
    let all = owner(&started).projections().await.unwrap().items;
    let policies = all.iter().find(|one| one.name == "policies").unwrap();
    assert_eq!((policies.class.as_str(), policies.dead_letters), ("policy", Some(1)));
    let ready = started.http.get(started.control("/readyz")).send().await.unwrap();
    assert_eq!(ready.json::<Value>().await.unwrap()["policies_dead_letters"], 1);
    assert!(app.engine.load::<Install>(acme.id).await.unwrap().runs.is_empty());
    started.server.stop().await;

    // When the blob is restored, the dead letter is processed.
    sqlx::query("insert into blob (digest, bytes, created_at) values ($1, $2, now())")
        .bind(&lost)
        .bind(bytes)
        .execute(&database.pool)
        .await
        .unwrap();
    let started = start(started.data).await;
    run_of(started.app(), acme.id).await;
    wait_for(async || {
        let left = dead_letters::progress(&started.app().pool).await.unwrap().dead_letters;
        (left == 0).then_some(())
    })
    .await;
    started.server.stop().await;
}
