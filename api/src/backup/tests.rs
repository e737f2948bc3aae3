//! On a real Postgres, with its own tools.
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use domain::job::JobKind;
use event_log::testing::fresh_empty_database;
use proof::checkpoint::Checkpoint;
use serde_json::json;
use sqlx::{PgPool, Row as _};

use super::*;
use crate::{postgres::Access, server::testing::Started};

fn quiet(_: String) {}

/// A server with an artifact, and a place for backups of it.
async fn served() -> (Started, tempfile::TempDir) {
    let started = Started::new().await;
    let blobs = started.data.path().join("registry/shop/network/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let mut bytes = vec![7_u8; 300_000];
    bytes[5] = 1;
    fs::write(blobs.join(hex::encode(proof::sha256(&bytes))), &bytes).unwrap();
    fs::write(blobs.parent().unwrap().with_file_name("index.json"), "{}").unwrap();
    // On its way, and so no part of it.
    fs::write(started.data.path().join("registry/.uploads/draft"), "x").unwrap();
    (started, tempfile::tempdir().unwrap())
}

/// A data directory without archives beside it.
fn places(data: &Path) -> (&Path, &Path) {
    (data, Path::new("/nowhere"))
}

async fn backed_up(started: &Started, out: &Path) -> Manifest {
    let access = Access::of_url(&started.database).unwrap();
    create(places(started.data.path()), &access, out, started.app().now(), &quiet).await.unwrap()
}

/// A directory into which one file would be unpacked, and the backup.
fn opened(from: &Path) -> Result<(tempfile::TempDir, Source), BackupError> {
    let scratch = tempfile::tempdir().unwrap();
    let source = Source::open(from, scratch.path(), &quiet)?;
    Ok((scratch, source))
}

fn refused(from: &Path) -> String {
    opened(from).err().expect("it is refused").to_string()
}

async fn leaves(pool: &PgPool, to: u64) -> Vec<(i64, Vec<u8>)> {
    let sql = "select position, leaf from log_event where position <= $1 order by position";
    let rows = sqlx::query(sql).bind(to as i64).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_a_backup_began_comes_back_while_appends_go_on() {
    let (started, place) = served().await;
    let app = started.app().clone();
    for _ in 0..20 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().seal(app.keys.current().checkpoints()).await.unwrap();
    let out = place.path().join("backup");
    let acknowledged = app.log().position();
    // Appends go on until the backup is there.
    let (manifest, during) = {
        let making = backed_up(&started, &out);
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
    // What a runner kept: one from before, one from later, and one that nobody of ours signed.
    let key = app.keys.current();
    let notes = [
        ("before", Checkpoint { size: 5, root: app.log().root(5).await.unwrap(), ..end.clone() }),
        ("later", end.clone()),
        ("forged", Checkpoint { size: 5, root: [9; 32], ..end.clone() }),
    ];
    let kept: BTreeMap<_, _> = notes
        .iter()
        .map(|(name, checkpoint)| {
            let path = place.path().join(name);
            fs::write(&path, checkpoint.sign(key.checkpoints())).unwrap();
            (*name, Kept::read(&path, &source).unwrap())
        })
        .collect();
    let strange = place.path().join("strange");
    fs::write(&strange, end.sign(&ed25519_dalek::SigningKey::from_bytes(&[1; 32]))).unwrap();
    let unsigned = Kept::read(&strange, &source).unwrap_err().to_string();
    assert!(unsigned.contains("not signed by a known key"), "{unsigned}");

    let target = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&target.url).unwrap();
    let both = [kept["before"].clone(), kept["later"].clone()];
    let restored = fill_database(&source, &access, &both, &quiet).await.unwrap();
    assert_eq!(restored.witnessed[0].missing, None);
    assert_eq!(restored.witnessed[1].missing, Some((manifest.position + 1, end.size)));
    assert!(restored.seals > 0);
    assert_eq!(restored.next_epoch, 2);
    let there = leaves(&target.pool, u64::MAX >> 1).await;
    assert_eq!(there, leaves(&app.pool, manifest.position).await);
    assert_eq!(there.len() as u64, manifest.position);

    // Into the same database once more.
    let again = fill_database(&source, &access, &[], &quiet).await.unwrap_err().to_string();
    assert!(again.contains("the database is not empty"), "{again}");
    // One that was forged is named, whatever the log says of itself.
    let other = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&other.url).unwrap();
    let forked =
        fill_database(&source, &access, &[kept["forged"].clone()], &quiet).await.unwrap_err();
    assert!(matches!(forked, BackupError::Forked { position: 5, .. }), "{forked}");
    assert!(forked.is_bad_backup());

    let data = place.path().join("data");
    fs::create_dir(&data).unwrap();
    put_files(&source, &data, &quiet).unwrap();
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
    // Written anew by this test, as a copy would be: keys that others can read are not believed.
    assert!(refused(&out).contains("can be read by others"));
    for entry in fs::read_dir(out.join("keys")).unwrap() {
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(entry.unwrap().path(), private).unwrap();
    }
    opened(&out).unwrap();
    started.server.stop().await;
}

#[tokio::test]
async fn one_file_comes_back_like_a_directory_and_the_beginning_of_one_never() {
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
        let told = said.contains("is not a whole backup") || said.contains("damaged");
        assert!(told, "{cut} of {}: {said}", whole.len());
    }
    started.server.stop().await;
}

/// The order in which files come, and what is there after each: only the last makes it a backup.
#[tokio::test]
async fn half_a_backup_is_no_backup_and_the_next_one_takes_its_place() {
    let (started, place) = served().await;
    let out = place.path().join("backup");
    let partial = place.path().join("backup.partial");
    backed_up(&started, &out).await;
    assert!(!partial.exists());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&out), 0o700);
    assert_eq!(mode(&out.join("database.dump")), 0o600);

    // As kill -9 leaves it, a moment before the end: all is there, and may not be on the disk.
    fs::rename(&out, &partial).unwrap();
    let said = refused(&partial);
    assert!(said.contains("without `.partial`"), "{said}");
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&partial, &link).unwrap();
    assert_eq!(refused(&link).replace("link", "backup.partial"), said);
    fs::remove_file(&link).unwrap();
    let half = place.path().join("half");
    fs::rename(&partial, &half).unwrap();
    for last in ["manifest.sha256", "manifest.json", "database.dump"] {
        fs::remove_file(half.join(last)).unwrap();
        let said = refused(&half);
        assert!(said.contains("is not a whole backup"), "{last}: {said}");
    }
    fs::rename(&half, &partial).unwrap();
    backed_up(&started, &out).await;
    assert!(!partial.exists());
    opened(&out).unwrap();
    let access = Access::of_url(&started.database).unwrap();
    let now = started.app().now();
    let again = create(places(started.data.path()), &access, &out, now, &quiet).await.unwrap_err();
    assert!(matches!(again, BackupError::Exists { .. }), "{again}");
    let named = create(places(started.data.path()), &access, &partial, now, &quiet).await;
    let named = named.unwrap_err();
    assert!(matches!(named, BackupError::Reserved { .. }), "{named}");

    // One that fails leaves nothing, above all no keys.
    let nowhere = fresh_empty_database().await.unwrap();
    let access = Access::of_url(&nowhere.url).unwrap();
    let other = place.path().join("other");
    let failed =
        create(places(started.data.path()), &access, &other, now, &quiet).await.unwrap_err();
    assert!(failed.to_string().contains("no log yet"), "{failed}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    started.server.stop().await;
}

/// Others could read the dump in it, or have another directory emptied.
#[tokio::test]
async fn a_beginning_that_is_not_ours_alone_is_refused_by_name_and_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let (out, partial) = (place.path().join("backup"), place.path().join("backup.partial"));
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(elsewhere.join("kept"), "x").unwrap();
    // Neither is asked for.
    let (data, now) = (place.path().join("data"), crate::state::system_clock()());
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
        let error = create(places(&data), &access, &out, now, &quiet).await.unwrap_err();
        assert!(matches!(error, BackupError::NotOurs { .. }), "{kind}: {error}");
        assert!(error.to_string().contains("backup.partial is there already"), "{kind}: {error}");
        if kind == "open" {
            assert!(partial.join("kept").exists());
        } else {
            assert!(elsewhere.join("kept").exists(), "{kind}");
            fs::remove_file(&partial).unwrap();
        }
    }
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
    let said = told(&mut |manifest| manifest.layout += 1);
    assert!(said.contains("restore it with that version"), "{said}");
    let said = told(&mut |manifest| {
        manifest.layout -= 1;
        manifest.position += 1;
    });
    assert!(said.contains("names another position"), "{said}");
    let said = told(&mut |manifest| {
        manifest.position -= 1;
        manifest.files[0].path = "../keys/tokens.key".into();
    });
    assert!(said.contains("has no such file"), "{said}");
    started.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_of_what_has_no_rows_any_more_come_along_and_come_back() {
    let (started, place) = served().await;
    let app = started.app().clone();
    event_log::testing::in_partitions_of(&app.pool, 256).await.unwrap();
    while app.log().position() < 300 {
        started.held(JobKind::Build, json!({}), vec![]).await;
    }
    app.log().seal(app.keys.current().checkpoints()).await.unwrap();
    app.views.wait_for(300, std::time::Duration::from_secs(30)).await.unwrap();
    while crate::background::parked::progress(&app.pool).await.unwrap().position < 300 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let archives = app.log().archives().clone();
    crate::archives::create(&app.pool, &archives, None, &quiet).await.unwrap();
    crate::archives::discard(&app.pool, &archives, 256, &quiet).await.unwrap();
    let (data, access) = (started.data.path(), Access::of_url(&started.database).unwrap());
    let directory = data.join("archives");
    let out = place.path().join("backup");
    let now = app.now();
    let manifest = create((data, &directory), &access, &out, now, &quiet).await.unwrap();
    let archived = |file: &&File| file.path.starts_with("archives/1-256/");
    assert_eq!(manifest.files.iter().filter(archived).count(), 3);

    let (_scratch, source) = opened(&out).unwrap();
    let target = fresh_empty_database().await.unwrap();
    let to = Access::of_url(&target.url).unwrap();
    let restored = fill_database(&source, &to, &[], &quiet).await.unwrap();
    assert!(restored.seals > 0);
    let restored = place.path().join("data");
    fs::create_dir(&restored).unwrap();
    put_files(&source, &restored, &quiet).unwrap();
    let archives = event_log::Archives::at(restored.join("archives"));
    let whole = event_log::Source { archives, ..event_log::Source::from(&target.pool) };
    let verified = event_log::verify::verify(whole, 0, |_| {}).await.unwrap();
    assert_eq!(verified.size, manifest.position);

    // One with a spoiled archive would take the place of one that is whole, and the running server hears of it as well.
    let events = directory.join("1-256/events.ndjson.zst");
    let whole = fs::read(&events).unwrap();
    let mut spoiled = whole.clone();
    spoiled[40] ^= 1;
    fs::write(&events, spoiled).unwrap();
    let other = place.path().join("other");
    let refused = create((data, &directory), &access, &other, now, &quiet).await.unwrap_err();
    let why = "events.ndjson.zst are not those that were written";
    assert!(refused.to_string().contains(why), "{refused}");
    assert!(!other.exists() && !place.path().join("other.partial").exists());
    let found = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        loop {
            let served = event_log::Source::from(app.log());
            match event_log::verify::verify(served, 0, |_| {}).await {
                Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                Err(found) => break found,
            }
        }
    });
    let found = found.await.expect("what was read before is soon read again");
    assert!(found.to_string().contains("are not those that were written"), "{found}");
    fs::write(&events, whole).unwrap();

    // A backup without one that is needed would be of half a log.
    fs::rename(directory.join("1-256"), directory.join("away")).unwrap();
    let refused = create((data, &directory), &access, &other, now, &quiet).await.unwrap_err();
    assert!(refused.to_string().contains("positions 1 to 256 are only in"), "{refused}");
    assert!(!other.exists());
    started.server.stop().await;
}

mod pentest {
    use schemas::control::Because;

    use super::*;
    use crate::client::{Client, Target};

    /// A subject whose key is in the database: the owner, who gave a reason.
    async fn with_a_subject(started: &Started) {
        let server = started.server.ready.control.clone();
        let target = Target { server, token: Some(started.owner_token()), ca: None };
        let owner = Client::new(&target).unwrap();
        let issued = owner.build_enrol_token().await.unwrap().enrolment.unwrap();
        let why = Because { reason: Some("a test".into()) };
        owner.revoke_enrol_token(issued.id, &why).await.unwrap();
        let wrapped = "select count(*) from subject_key where wrapped is not null";
        let wrapped: i64 =
            sqlx::query_scalar(wrapped).fetch_one(&started.app().pool).await.unwrap();
        assert!(wrapped > 0, "the owner has a key");
    }

    #[tokio::test]
    async fn a_backup_without_the_key_that_wraps_its_subjects_is_refused() {
        let (started, place) = served().await;
        with_a_subject(&started).await;
        let key = started.data.path().join("keys/subjects.key");
        let other = Started::new().await;
        let access = Access::of_url(&started.database).unwrap();
        let out = place.path().join("backup");
        let now = started.app().now();
        for wrong in [Some(other.data.path().join("keys/subjects.key")), None] {
            fs::remove_file(&key).unwrap_or_default();
            if let Some(wrong) = wrong {
                fs::copy(wrong, &key).unwrap();
            }
            let made = create(places(started.data.path()), &access, &out, now, &quiet).await;
            let Err(refused) = made else { panic!("it is accepted") };
            let refused = refused.to_string();
            assert!(refused.contains("subjects.key"), "{refused}");
            assert!(!out.exists());
        }
    }

    /// given a key that is replaced while a backup waits for the database, then the backup has the keys of its snapshot.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_keys_of_a_backup_are_those_of_its_snapshot() {
        let (started, place) = served().await;
        with_a_subject(&started).await;
        let (pool, data) = (started.app().pool.clone(), started.data.path().to_path_buf());
        // Whoever changes a table keeps the backup waiting before its snapshot.
        let mut changing = pool.begin().await.unwrap();
        sqlx::query("lock table log_seal in access exclusive mode")
            .execute(&mut *changing)
            .await
            .unwrap();
        let out = place.path().join("backup");
        let making = backed_up(&started, &out);
        let replacing = async {
            let waits = "select exists (select from pg_locks where not granted and relation = 'log_seal'::regclass)";
            while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&pool).await.unwrap() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            let keys = data.join("keys");
            fs::create_dir_all(keys.join("former")).unwrap();
            fs::rename(keys.join("subjects.key"), keys.join("former/subjects-1.key")).unwrap();
            let ring = crate::keys::wrapping::ring(&keys, started.app().now()).unwrap();
            assert!(ring.rewrap(&pool).await.unwrap() > 0);
            changing.rollback().await.unwrap();
        };
        let (_, ()) = tokio::join!(making, replacing);
        let ring = crate::keys::wrapping::kept(&out.join("keys")).unwrap();
        ring.opens_all(&pool).await.unwrap();
    }
}
