//! Tests of damaged backups, incomplete backups, and backups of another program version.
use super::*;

#[tokio::test]
async fn a_flipped_byte_in_any_file_is_refused_by_name() {
    let (started, place) = served().await;
    let out = place.path().join("backup");
    let manifest = backed_up(&started, &out).await;
    let mut names: Vec<_> = manifest.files.iter().map(|file| file.path.clone()).collect();
    assert!(names.len() >= 7, "{names:?}");
    names.push("manifest.json".into());
    for name in names {
        let path = out.join(&name);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let said = refused(&out);
        assert!(said.contains("the backup is damaged") && said.contains(&name), "{name}: {said}");
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(refused(&out).contains(&name), "{name} cut");
        fs::remove_file(&path).unwrap();
        assert!(refused(&out).contains(&name), "{name} missing");
        fs::write(&path, &whole).unwrap();
    }
    // The test wrote these files with the default mode. Keys that others can read are rejected.
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
    let (started, place) = served().await;
    let out = place.path().join("backup.tar");
    let manifest = backed_up(&started, &out).await;
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");
    let (_scratch, source) = opened(&out).unwrap();
    assert_eq!(source.manifest, manifest);
    let target = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&target.url).unwrap();
    fill_database(&source, &access, &[], &quiet).await.unwrap();

    let whole = fs::read(&out).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for cut in [0, 1, 511, 512, 1024, whole.len() / 2, end - 1000, end] {
        let path = place.path().join(format!("cut-{cut}.tar"));
        fs::write(&path, &whole[..cut]).unwrap();
        let said = refused(&path);
        let told = said.contains("is not a complete backup") || said.contains("damaged");
        assert!(told, "{cut} of {}: {said}", whole.len());
    }
    started.server.stop().await;
}

#[tokio::test]
async fn a_backup_of_a_newer_program_is_refused_before_anything_is_restored() {
    let (started, place) = served().await;
    let out = place.path().join("backup");
    let mut manifest = backed_up(&started, &out).await;
    let mut told = |change: &mut dyn FnMut(&mut Manifest)| {
        change(&mut manifest);
        for name in ["manifest.json", "manifest.sha256"] {
            fs::remove_file(out.join(name)).unwrap();
        }
        manifest.write(&out).unwrap();
        refused(&out)
    };
    let said = told(&mut |manifest| manifest.log_format += 1);
    assert!(said.contains("restore it with that version"), "{said}");
    let said = told(&mut |manifest| {
        manifest.log_format -= 1;
        manifest.position += 1;
    });
    assert!(said.contains("names another log, position or epoch"), "{said}");
    let said = told(&mut |manifest| {
        manifest.position -= 1;
        manifest.files[0].path = "../keys/tokens.key".into();
    });
    assert!(said.contains("leaves the directory of the backup"), "{said}");
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
