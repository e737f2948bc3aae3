//! Tests of damaged backups, incomplete backups, and backups of another program version.
use super::*;

#[tokio::test]
async fn changed_byte_is_reported_with_its_file() {
    let (started, dir) = start_server().await;
    let out = dir.path().join("backup");
    let manifest = create_backup(&started, &out).await;
    let mut names: Vec<_> = manifest.files.iter().map(|file| file.path.clone()).collect();
    assert!(names.len() >= 7, "{names:?}");
    names.push("manifest.json".into());
    for name in names {
        let path = out.join(&name);
        let original = fs::read(&path).unwrap();
        let mut flipped = original.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let message = refused(&out);
        assert!(message.contains("is corrupt") && message.contains(&name), "{name}: {message}");
        fs::write(&path, &original[..original.len() - 1]).unwrap();
        assert!(refused(&out).contains(&name), "{name} cut");
        fs::remove_file(&path).unwrap();
        assert!(refused(&out).contains(&name), "{name} missing");
        fs::write(&path, &original).unwrap();
    }
    // The test wrote these files with the default mode. Keys that other users can read are
    // rejected.
    assert!(refused(&out).contains("other users can read it"));
    for entry in fs::read_dir(out.join("keys")).unwrap() {
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(entry.unwrap().path(), private).unwrap();
    }
    opened(&out).unwrap();
    started.server.stop().await;
}

#[tokio::test]
async fn tar_backup_is_restored_and_a_truncated_one_rejected() {
    let (started, dir) = start_server().await;
    let out = dir.path().join("backup.tar");
    let manifest = create_backup(&started, &out).await;
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    let (_scratch, source) = opened(&out).unwrap();
    assert_eq!(source.manifest, manifest);
    let target = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&target.url).unwrap();
    restore_database(&source, &access, &[], &quiet).await.unwrap();

    let original = fs::read(&out).unwrap();
    let end = original.iter().rposition(|byte| *byte != 0).unwrap();
    for cut in [0, 1, 511, 512, 1024, original.len() / 2, end - 1000, end] {
        let path = dir.path().join(format!("cut-{cut}.tar"));
        fs::write(&path, &original[..cut]).unwrap();
        let message = refused(&path);
        let is_reported =
            message.contains("is not a complete backup") || message.contains("is corrupt");
        assert!(is_reported, "{cut} of {}: {message}", original.len());
    }
    started.server.stop().await;
}

#[tokio::test]
async fn backup_of_a_newer_program_is_rejected_before_the_restore() {
    let (started, dir) = start_server().await;
    let out = dir.path().join("backup");
    let mut manifest = create_backup(&started, &out).await;
    let mut refused_message = |change: &mut dyn FnMut(&mut Manifest)| {
        change(&mut manifest);
        for name in ["manifest.json", "manifest.sha256"] {
            fs::remove_file(out.join(name)).unwrap();
        }
        manifest.write(&out).unwrap();
        refused(&out)
    };
    let message = refused_message(&mut |manifest| manifest.log_format += 1);
    assert!(message.contains("but this is stead"), "{message}");
    let message = refused_message(&mut |manifest| {
        manifest.log_format -= 1;
        manifest.position += 1;
    });
    assert!(message.contains("its log, position or epoch differs"), "{message}");
    let message = refused_message(&mut |manifest| {
        manifest.position -= 1;
        manifest.files[0].path = "../keys/tokens.key".into();
    });
    assert!(message.contains("leaves the directory of the backup"), "{message}");
    // A pre-release version wrote format 1, with other fields.
    let manifest = br#"{"format":1,"program":"0.1.0","postgres":15,"layout":2}"#;
    fs::write(out.join("manifest.json"), manifest).unwrap();
    let sum = format!("{}  manifest.json\n", hex::encode(proof::sha256(manifest)));
    fs::write(out.join("manifest.sha256"), sum).unwrap();
    assert_eq!(
        refused(&out),
        "cannot restore the backup: it was written by a pre-release version (format 1, this program reads 2); restore \
         it with that version"
    );
    started.server.stop().await;
}
