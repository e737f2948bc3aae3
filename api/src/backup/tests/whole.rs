//! Tests of a backup of a running server, and of its restore.
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_events_are_restored_despite_concurrent_appends() {
    let (started, dir) = start_server().await;
    let app = started.app().clone();
    for _ in 0..20 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().publish_checkpoint(app.keys.current().checkpoints()).await.unwrap();
    let out = dir.path().join("backup");
    let acknowledged = app.log().position();
    // Appends continue until the backup is complete.
    let (manifest, during) = {
        let making = create_backup(&started, &out);
        tokio::pin!(making);
        let mut during = 0;
        loop {
            tokio::select! {
                biased;
                manifest = &mut making => break (manifest, during),
                _ = started.held(JobKind::Build, json!({}), vec![]) => during += 1,
            }
        }
    };
    started.held(JobKind::Build, json!({}), vec![]).await;
    assert!(during > 0, "nothing was appended meanwhile");
    assert!(manifest.position >= acknowledged, "{} < {acknowledged}", manifest.position);
    let end = app.log().head();
    assert!(end.size > manifest.position);

    let (_scratch, source) = opened(&out).unwrap();
    // Checkpoints of witnesses: an earlier checkpoint, a later checkpoint, and a checkpoint with
    // another root.
    let key = app.keys.current();
    let notes = [
        ("before", Checkpoint { size: 5, root: app.log().root(5).await.unwrap(), ..end.clone() }),
        ("later", end.clone()),
        ("forged", Checkpoint { size: 5, root: [9; 32], ..end.clone() }),
    ];
    let stored: BTreeMap<_, _> = notes
        .iter()
        .map(|(name, checkpoint)| {
            let path = dir.path().join(name);
            fs::write(&path, checkpoint.sign(key.checkpoints())).unwrap();
            (*name, WitnessCheckpoint::read(&path, &source).unwrap())
        })
        .collect();
    let strange = dir.path().join("strange");
    fs::write(&strange, end.sign(&ed25519_dalek::SigningKey::from_bytes(&[1; 32]))).unwrap();
    let unsigned = WitnessCheckpoint::read(&strange, &source).unwrap_err().to_string();
    assert!(unsigned.contains("not signed by a known key"), "{unsigned}");

    let target = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&target.url).unwrap();
    let both = [stored["before"].clone(), stored["later"].clone()];
    let restored = restore_database(&source, &access, &both, &quiet).await.unwrap();
    assert_eq!(restored.witnessed[0].missing, None);
    assert_eq!(restored.witnessed[1].missing, Some((manifest.position + 1, end.size)));
    assert!(restored.checkpoints > 0);
    assert_eq!(restored.next_epoch, 2);
    let there = leaves(&target.pool, u64::MAX >> 1).await;
    assert_eq!(there, leaves(&app.pool, manifest.position).await);
    assert_eq!(there.len() as u64, manifest.position);

    // Restores into the same database again.
    let again = restore_database(&source, &access, &[], &quiet).await.unwrap_err().to_string();
    assert!(again.contains("the database is not empty"), "{again}");
    // A forged checkpoint is reported, although the log is consistent in itself.
    let other = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&other.url).unwrap();
    let forked =
        restore_database(&source, &access, &[stored["forged"].clone()], &quiet).await.unwrap_err();
    assert!(matches!(forked, BackupError::Forked { position: 5, .. }), "{forked}");
    assert!(forked.is_bad_backup());

    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    restore_files(&source, &data, &quiet).unwrap();
    let same = |name: &str| {
        assert_eq!(
            fs::read(data.join(name)).unwrap(),
            fs::read(started.data.path().join(name)).unwrap(),
            "{name}"
        );
        fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777
    };
    for private in ["keys/manifests.key", "keys/tokens.key", "keys/checkpoints.key", "owner.token"]
    {
        assert_eq!(same(private), 0o600, "{private}");
    }
    let blob = source.manifest.files.iter().find(|file| file.path.contains("/blobs/")).unwrap();
    same(&blob.path);
    same("registry/shop/network/index.json");
    assert!(source.manifest.files.iter().all(|file| !file.path.contains("upload")));
    started.server.stop().await;
}
