//! Erasure of data in archives: events are archived and dropped before their subject is shredded.
use event_log::{archive::FLOOR, testing::in_partitions_of};

use super::*;
use crate::archives;

fn no_progress(_: String) {}

/// Moves the first 256 events into an archive.
async fn archive_first_events(started: &Started) {
    let app = started.app();
    while app.log().position() < 300 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await.unwrap();
    app.projections.wait_for(300, Duration::from_secs(30)).await.unwrap();
    while crate::reactions::dead_letters::progress(&app.pool).await.unwrap().position < 300 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    archives::create(&app.pool, app.log().archives(), None, &no_progress).await.unwrap();
    archives::discard(&app.pool, app.log().archives(), 256, &no_progress).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_archive_does_not_block_erasure_of_later_subjects() {
    let (started, owner) = started().await;
    let app = started.app().clone();
    in_partitions_of(&app.pool, 256).await.unwrap();
    let old = owner.create_install(&new_install("globex")).await.unwrap().id;
    archive_first_events(&started).await;
    let (install, job) = install_with_personal_data(&app, &owner).await;
    let execution = pentest::execution_of(&app, job).await.to_string();
    deprovision(&app, &owner, install).await;
    let done = call();
    let done = app.engine.transact(&done, move |unit| {
        Box::pin(async move { unit.handle::<Install>(old, InstallCommand::Deprovision).await })
    });
    done.await.unwrap();
    // Given an archive that cannot be read.
    let archives = app.log().archives().directory().unwrap().to_owned();
    let away = archives.with_extension("away");
    std::fs::rename(&archives, &away).unwrap();
    // Waits until the cached frames have expired.
    tokio::time::sleep(Duration::from_secs(6)).await;
    // When one subject with events in the archive and one with only later events are shredded.
    let (old, young) = (SubjectId::Install(old), SubjectId::Install(install));
    owner.shred(old, &why()).await.unwrap();
    owner.shred(young, &why()).await.unwrap();
    // Then the subject with only later events is erased completely.
    wait_until_erased(&owner, young).await;
    assert_eq!(app.logs.not_erased(&[execution]).await.unwrap(), 0);
    assert_eq!(texts_in(&dump(&started.database).await, &ALL), Vec::<&str>::new());
    assert_eq!(owner.job(job).await.unwrap().detail.as_deref(), Some("[erased]"));
    // And the other subject waits for the archive, which the message names.
    assert_eq!(owner.subject(old).await.unwrap().state, "shredded");
    let left = crate::erasure::erase(&app, &[old]).await.unwrap().incomplete.unwrap();
    assert!(left.contains("1-256") && left.contains("--archives"), "{left}");
    assert!(
        left.ends_with(&format!("events in unreadable archives may reference copies of {old}")),
        "{left}"
    );
    // And when the archive is restored, the other subject is erased, and every row matches the log.
    std::fs::rename(&away, &archives).unwrap();
    wait_until_erased(&owner, old).await;
    let mut connection = app.pool.acquire().await.unwrap();
    let views = projections::list(&mut connection).await.unwrap();
    drop(connection);
    for view in views {
        app.projections.wait_for(app.log().position(), Duration::from_secs(10)).await.unwrap();
        let verified = projections::verify(app.log(), view.name, |_| {}).await.unwrap();
        assert_eq!(verified.differences, [], "{}", view.name);
    }
    started.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_events_are_encrypted_and_read_erased_after_shredding() {
    let (started, owner) = started().await;
    let app = started.app().clone();
    in_partitions_of(&app.pool, 256).await.unwrap();
    let (install, job) = install_with_personal_data(&app, &owner).await;
    deprovision(&app, &owner, install).await;
    let all = app.log().position();
    assert!(all < 256, "Ada's events must be in the archive");
    while app.log().position() < 300 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await.unwrap();
    app.projections.wait_for(300, Duration::from_secs(30)).await.unwrap();
    while crate::reactions::dead_letters::progress(&app.pool).await.unwrap().position < 300 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let parked = "insert into log_dead_letter (position, reason, attempts, created_at) \
         select position, $2, 9, now() from log_event where aggregate_id = $1 order by position limit 1";
    let parked = sqlx::query(parked).bind(install.to_string()).bind(DETAIL);
    parked.execute(&app.pool).await.unwrap();
    let earlier = owner.checkpoint().await.unwrap();
    archives::create(&app.pool, app.log().archives(), None, &no_progress).await.unwrap();
    archives::discard(&app.pool, app.log().archives(), 256, &no_progress).await.unwrap();
    let floor: i64 =
        sqlx::query_scalar(&format!("select {FLOOR}")).fetch_one(&app.pool).await.unwrap();
    assert_eq!(floor, 256);
    // The stored payloads are encrypted, and reads decrypt them.
    let mut connection = app.pool.acquire().await.unwrap();
    let archived = app.log().archives().events(&mut connection, (0, 256), 256).await.unwrap();
    drop(connection);
    let payloads: String = archived.iter().map(|event| &*event.payload).collect();
    assert_eq!(texts_in(&payloads, &ALL), Vec::<&str>::new());
    let then =
        AsOfQuery { stream: "install/acme".into(), position: Some(all), ..Default::default() };
    assert_eq!(owner.as_of(&then).await.unwrap().state["inputs"]["size"], INPUT);
    let read = app.log().read(0, 256).await.unwrap();
    let texts: String = read.iter().map(|event| event.readable().unwrap()).collect();
    assert!(texts.contains(INPUT) && texts.contains(OUTPUT) && texts.contains(DETAIL));

    let subject = SubjectId::Install(install);
    owner.shred(subject, &why()).await.unwrap();
    assert_eq!(owner.as_of(&then).await.unwrap().state["inputs"]["size"], "[erased]");
    wait_until_erased(&owner, subject).await;

    // Copies that only archived events refer to are erased, too: logs, plans, manifests, reasons.
    assert_eq!(texts_in(&dump(&started.database).await, &ALL), Vec::<&str>::new());
    assert_eq!(owner.job(job).await.unwrap().detail.as_deref(), Some("[erased]"));
    let state = app.log().reload::<Install>(&install.to_string()).await.unwrap().state;
    assert_eq!(state.inputs["size"], "[erased]");
    let read = app.log().read(0, 256).await.unwrap();
    let texts: String = read.iter().map(|event| event.readable().unwrap()).collect();
    assert_eq!(texts_in(&texts, &ALL), Vec::<&str>::new());
    assert!(read.iter().zip(&archived).all(|(now, then)| now.payload == then.payload));
    // Removes the test's own dead letter before the check.
    sqlx::query("delete from log_dead_letter").execute(&app.pool).await.unwrap();
    check_projections(&owner).await;
    let mut connection = app.pool.acquire().await.unwrap();
    let views = projections::list(&mut connection).await.unwrap();
    drop(connection);
    let views: Vec<_> = views.iter().map(|view| view.name).collect();
    projections::rebuild_all(app.owner_source(), &views, 2, |_| {}).await.unwrap();
    for view in views {
        let verified = projections::verify(app.log(), view, |_| {}).await.unwrap();
        assert_eq!(verified.differences, [], "{view}");
    }
    assert_eq!(texts_in(&dump(&started.database).await, &ALL), Vec::<&str>::new());
    assert_eq!(verify::verify(app.log(), 0, |_| {}).await.unwrap().size, app.log().position());
    let which = BundleQuery {
        stream: Some("install/acme".into()),
        prior_checkpoint: Some(earlier.note.clone()),
        ..Default::default()
    };
    let keys = vec![earlier.verifier_key.parse().unwrap()];
    let proof = owner.bundle(&which).await.unwrap().bytes().await.unwrap();
    Bundle::read(&proof).unwrap().check(&keys, Some(&earlier.note)).unwrap();
    started.server.stop().await;
}
