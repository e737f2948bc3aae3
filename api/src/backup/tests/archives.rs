//! Tests of archives in a backup.
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_of_dropped_rows_are_backed_up_and_restored() {
    let (started, dir) = start_server().await;
    let app = started.app().clone();
    event_log::testing::in_partitions_of(&app.pool, 256).await.unwrap();
    while app.log().position() < 300 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await.unwrap();
    app.projections.wait_for(300, std::time::Duration::from_secs(30)).await.unwrap();
    while crate::reactions::dead_letters::progress(&app.pool).await.unwrap().position < 300 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let archives = app.log().archives().clone();
    crate::archives::create(&app.pool, &archives, None, &quiet).await.unwrap();
    crate::archives::discard(&app.pool, &archives, 256, &quiet).await.unwrap();
    let (data, access) = (started.data.path(), Access::of_url(&started.database).unwrap());
    let directory = data.join("archives");
    let out = dir.path().join("backup");
    let now = app.now();
    let manifest = create((data, &directory), &access, &out, now, &quiet).await.unwrap();
    let archived = |file: &&File| file.path.starts_with("archives/1-256/");
    assert_eq!(manifest.files.iter().filter(archived).count(), 3);

    let (_scratch, source) = opened(&out).unwrap();
    let target = fresh_empty_database().await.unwrap();
    let to = Access::of_url(&target.url).unwrap();
    let restored = restore_database(&source, &to, &[], &quiet).await.unwrap();
    assert!(restored.checkpoints > 0);
    let restored = dir.path().join("data");
    fs::create_dir(&restored).unwrap();
    restore_files(&source, &restored, &quiet).unwrap();
    let archives = event_log::Archives::at(restored.join("archives"));
    let whole = event_log::Source { archives, ..event_log::Source::from(&target.pool) };
    let verified = event_log::verify::verify(whole, 0, |_| {}).await.unwrap();
    assert_eq!(verified.size, manifest.position);

    // A damaged archive must not replace an intact archive. The running server also detects the
    // damage.
    let events = directory.join("1-256/events.ndjson.zst");
    let whole = fs::read(&events).unwrap();
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    fs::write(&events, damaged).unwrap();
    let other = dir.path().join("other");
    let refused = create((data, &directory), &access, &other, now, &quiet).await.unwrap_err();
    let why = "events.ndjson.zst does not match";
    assert!(refused.to_string().contains(why), "{refused}");
    assert!(!other.exists() && !dir.path().join("other.partial").exists());
    let result = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        loop {
            let source = event_log::Source::from(app.log());
            match event_log::verify::verify(source, 0, |_| {}).await {
                Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                Err(result) => break result,
            }
        }
    });
    let result = result.await.expect("what was read before is soon read again");
    assert!(result.to_string().contains("its digest does not match the manifest"), "{result}");
    fs::write(&events, whole).unwrap();

    // A backup must contain every archive whose events have no rows.
    fs::rename(directory.join("1-256"), directory.join("away")).unwrap();
    let refused = create((data, &directory), &access, &other, now, &quiet).await.unwrap_err();
    assert!(refused.to_string().contains("they are only in"), "{refused}");
    assert!(!other.exists());
    started.server.stop().await;
}
