//! Tests of interrupted backups.
use super::*;

/// Removes files in the reverse order of their creation. Only the last file completes a backup.
#[tokio::test]
async fn incomplete_backup_is_rejected_and_replaced() {
    let (started, dir) = start_server().await;
    let out = dir.path().join("backup");
    let partial = dir.path().join("backup.partial");
    create_backup(&started, &out).await;
    assert!(!partial.exists());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&out), 0o700);
    assert_eq!(mode(&out.join("database.dump")), 0o600);

    // State after kill -9 just before the end: all files exist, but may not be on the disk.
    fs::rename(&out, &partial).unwrap();
    let message = refused(&partial);
    assert!(message.contains("its creation did not finish"), "{message}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&partial, &link).unwrap();
    assert_eq!(refused(&link).replace("link", "backup.partial"), message);
    fs::remove_file(&link).unwrap();
    let half = dir.path().join("half");
    fs::rename(&partial, &half).unwrap();
    for last in ["manifest.sha256", "manifest.json", "database.dump"] {
        fs::remove_file(half.join(last)).unwrap();
        let message = refused(&half);
        assert!(message.contains("is not a complete backup"), "{last}: {message}");
    }
    fs::rename(&half, &partial).unwrap();
    create_backup(&started, &out).await;
    assert!(!partial.exists());
    opened(&out).unwrap();
    let access = Access::of_url(&started.database).unwrap();
    let now = started.app().now();
    let again =
        create(directories(started.data.path()), &access, &out, now, &quiet).await.unwrap_err();
    assert!(matches!(again, BackupError::Exists { .. }), "{again}");
    let named = create(directories(started.data.path()), &access, &partial, now, &quiet).await;
    let named = named.unwrap_err();
    assert!(matches!(named, BackupError::Reserved { .. }), "{named}");

    // A failed backup leaves no files, and above all no keys.
    let nowhere = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&nowhere.url).unwrap();
    let other = dir.path().join("other");
    let failed =
        create(directories(started.data.path()), &access, &other, now, &quiet).await.unwrap_err();
    assert!(failed.to_string().contains("no tables of Stead yet"), "{failed}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    started.server.stop().await;
}

/// Other users could read the dump, or a symbolic link could make the backup empty another
/// directory.
#[tokio::test]
async fn partial_directory_of_another_user_is_rejected_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (out, partial) = (dir.path().join("backup"), dir.path().join("backup.partial"));
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(elsewhere.join("kept"), "x").unwrap();
    // The call fails before it accesses the data directory or the database.
    let (data, now) = (dir.path().join("data"), crate::clock::system_clock()());
    let access = Access::of_url("postgres://nobody@127.0.0.1:1/none").unwrap();
    for kind in ["link", "file", "open"] {
        match kind {
            "link" => std::os::unix::fs::symlink(&elsewhere, &partial).unwrap(),
            "file" => fs::write(&partial, "x").unwrap(),
            _ => {
                fs::rename(&elsewhere, &partial).unwrap();
                fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let error = create(directories(&data), &access, &out, now, &quiet).await.unwrap_err();
        assert!(matches!(error, BackupError::NotPrivate { .. }), "{kind}: {error}");
        assert!(error.to_string().contains("backup.partial already exists"), "{kind}: {error}");
        if kind == "open" {
            assert!(partial.join("kept").exists());
        } else {
            assert!(elsewhere.join("kept").exists(), "{kind}");
            fs::remove_file(&partial).unwrap();
        }
    }
}
