//! Archives: created, verified, read in place of rows, and rejected when they are corrupt.
use crate::support;

use std::{fs, path::Path};

use ed25519_dalek::SigningKey;
use event_log::{
    Archives, EventLog, LogError, Options, Source, StoredEvent, StreamId,
    archive::{
        ArchiveError, EVENTS, INDEX, MANIFEST, Manifest, Reader, Step, check, create, discard, list,
    },
    migrate::migrate,
    partitions::{self, Partition},
    testing::{Database, fresh_empty_database},
    verify::{VerifyError, verify},
};
use proof::key::TrustedKey;
use support::{commit, count, stream};

/// A log of 700 events in 8 streams, in partitions of 256, with a published checkpoint and a
/// directory for archives.
struct World {
    database: Database,
    archives: Archives,
    directory: tempfile::TempDir,
    key: SigningKey,
    /// Events as read from rows.
    events: Vec<StoredEvent>,
}

impl World {
    async fn new() -> World {
        let database = fresh_empty_database().await.unwrap();
        migrate(&database.pool).await.unwrap();
        partitions::create_missing(&database.pool, 256, 3).await.unwrap();
        let (directory, key) = (tempfile::tempdir().unwrap(), SigningKey::from_bytes(&[7; 32]));
        let archives = Archives::at(directory.path());
        let world = World { database, archives, directory, key, events: vec![] };
        let log = world.log().await;
        for n in 0..100 {
            let id = format!("s{}", n % 8);
            log.append(commit(&id, n / 8 * 7, 7)).await.unwrap();
        }
        log.publish_checkpoint(&world.key).await.unwrap().unwrap();
        let events = log.read(0, 1_000).await.unwrap();
        World { events, ..world }
    }

    async fn log(&self) -> EventLog {
        // The cache is off, so that every state is read again.
        let options = Options {
            archives: Archives::at(self.directory.path()),
            poll_interval: None,
            cached_states: 0,
            ..Options::default()
        };
        self.database.log_with(options).await.unwrap()
    }

    async fn partition(&self, first: u64) -> Partition {
        let mut connection = self.database.pool.acquire().await.unwrap();
        let all = partitions::list(&mut connection).await.unwrap();
        all.into_iter().find(|one| one.first == first).unwrap()
    }

    async fn create(&self, first: u64) -> Result<Manifest, ArchiveError> {
        let of = self.partition(first).await;
        create(&self.database.pool, &self.archives, &of, (&[], 64), &mut |_| {}).await
    }

    async fn discard(&self, last: u64) -> Result<Partition, ArchiveError> {
        discard(&self.database.pool, &self.archives, last, &[]).await
    }

    /// Archives the first two partitions and drops their rows.
    async fn archived() -> World {
        let world = World::new().await;
        for (first, last) in [(1, 256), (257, 512)] {
            world.create(first).await.unwrap();
            world.discard(last).await.unwrap();
        }
        assert_eq!(count(&world.database, "select min(position) from log_event").await, 513);
        world
    }

    fn source(&self) -> Source {
        Source {
            archives: Archives::at(self.directory.path()),
            ..Source::from(&self.database.pool)
        }
    }

    fn file(&self, archive: &str, name: &str) -> std::path::PathBuf {
        self.directory.path().join(archive).join(name)
    }
}

#[tokio::test]
async fn archived_and_dropped_events_read_as_before() {
    let world = World::new().await;
    let before = world.log().await;
    let root = before.root(700).await.unwrap();
    let old = before.consistency(100, 700).await.unwrap();
    let inclusion = before.inclusion(77, 700).await.unwrap();
    let time = world.events[299].recorded_at;
    let at = before.position_at(time).await.unwrap();
    drop(before);
    for (first, last) in [(1, 256), (257, 512)] {
        let manifest = world.create(first).await.unwrap();
        assert_eq!((manifest.events, manifest.frames.len()), (256, 4));
        world.discard(last).await.unwrap();
    }
    let log = world.log().await;
    // Reads pages from any position, across the end of the archives.
    for (from, limit) in [(0, 1_000), (0, 10), (250, 20), (500, 100), (511, 1), (512, 5), (699, 9)]
    {
        let (from, limit) = (from as usize, limit as usize);
        let expected = &world.events[from..(from + limit).min(700)];
        let read = log.read(from as u64, limit as u32).await.unwrap();
        assert_eq!(read, expected, "{limit} from {from}");
    }
    // Reads streams completely, from a sequence, in pages, and up to a position.
    for n in 0..8 {
        let of = stream(&format!("s{n}"));
        let all: Vec<_> = world.events.iter().filter(|event| event.stream == of).cloned().collect();
        assert_eq!(log.read_stream(&of, 0).await.unwrap(), all);
        assert_eq!(log.read_stream(&of, 30).await.unwrap(), all[30..]);
        for to in [0, 5, 77, 256, 257, 300, 512, 513, 600] {
            let until: Vec<_> = all.iter().filter(|event| event.position <= to).cloned().collect();
            let read = log.read_page(&of, (0, to), 1_000).await.unwrap();
            assert_eq!(read, until, "{of} to {to}");
            let page = log.read_page(&of, (3, to), 20).await.unwrap();
            let expected: Vec<_> = until.iter().skip(3).take(20).cloned().collect();
            assert_eq!(page, expected, "20 of {of} after 3 to {to}");
        }
    }
    assert_eq!(log.read_stream(&StreamId::new("job", "none"), 0).await.unwrap(), []);
    assert_eq!(log.event(300).await.unwrap().as_ref(), Some(&world.events[299]));
    assert_eq!(log.position_at(time).await.unwrap(), at);
    // Computes roots and proofs with leaves that have no row.
    assert_eq!(log.root(700).await.unwrap(), root);
    assert_eq!(log.consistency(100, 700).await.unwrap(), old);
    assert_eq!(log.inclusion(77, 700).await.unwrap(), inclusion);
    assert_eq!(log.verify_checkpoints(&[world.key.verifying_key().into()]).await.unwrap(), 1);
    // Appends further events, then verifies the log from its start and from the middle of an
    // archive.
    log.append(commit("s0", 13 * 7, 3)).await.unwrap();
    for from in [0, 100, 256, 300, 512, 600] {
        let verified = verify(&log, from, |_| {}).await.unwrap();
        assert_eq!((verified.size, verified.checked), (703, 703 - from));
    }
    assert_eq!(log.read_stream(&stream("s0"), 0).await.unwrap().len(), 13 * 7 + 3);
}

#[tokio::test]
async fn archive_can_be_verified_by_its_files_alone() {
    let world = World::new().await;
    world.create(257).await.unwrap();
    let path = world.directory.path().join("257-512");
    let key = TrustedKey::Bare(world.key.verifying_key());
    let (manifest, proven) = check(&path, std::slice::from_ref(&key), &mut |_| {}).unwrap();
    assert_eq!((proven.from, proven.to, proven.checkpoint.size), (257, 512, 700));
    assert_eq!(manifest.last_recorded_at, world.events[511].recorded_at);
    let other = SigningKey::from_bytes(&[8; 32]).verifying_key();
    assert!(check(&path, &[TrustedKey::Bare(other)], &mut |_| {}).is_err());
    // An archive of a pre-release version has another format.
    let manifest = path.join(MANIFEST);
    let older = fs::read_to_string(&manifest).unwrap().replace("archive/v2", "archive/v1");
    fs::write(&manifest, older).unwrap();
    let error = check(&path, &[key], &mut |_| {}).unwrap_err().to_string();
    let expected = "its format is stead/archive/v1, but this program reads stead/archive/v2; read it with the version \
                    that wrote it";
    assert!(error.ends_with(expected), "{error}");
    // Any zstd program can read the file line by line.
    let lines = zstd::stream::decode_all(fs::File::open(path.join(EVENTS)).unwrap()).unwrap();
    let first: serde_json::Value =
        serde_json::from_slice(lines.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(first["position"], 257);
    assert_eq!(first["payload"]["type"], "queued");
}

#[tokio::test]
async fn range_that_a_reader_needs_is_not_closed() {
    let world = World::new().await;
    let of = world.partition(1).await;
    let behind = [Reader { name: "projection_jobs".into(), position: 255 }];
    let mut unheard = |_| {};
    let readers = (&behind[..], 64);
    let making = create(&world.database.pool, &world.archives, &of, readers, &mut unheard);
    let error = making.await.unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot archive or drop positions 1 to 256: they are not closed: projection_jobs is at 255; let the server run until projection_jobs has passed 256"
    );
    // A partition is not closed if it is the current one, or if no published checkpoint covers it.
    assert!(matches!(world.create(513).await, Err(ArchiveError::NotClosed { .. })));
    support::run(&world.database, "delete from log_checkpoint").await;
    assert!(matches!(world.create(1).await, Err(ArchiveError::NotClosed { .. })));
    assert_eq!(fs::read_dir(world.directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn rows_are_dropped_in_order_and_only_if_rows_and_files_match_the_checkpoint() {
    let world = World::new().await;
    world.create(1).await.unwrap();
    world.create(257).await.unwrap();
    assert!(matches!(world.discard(512).await, Err(ArchiveError::Order { first: 257 })));
    assert!(matches!(world.discard(300).await, Err(ArchiveError::Unknown(300))));
    // Changes a row after the archive was created.
    let spoil = "update log_event set payload = replace(payload::text, 'queued', 'queuer')::json where position = 9";
    support::run(&world.database, spoil).await;
    assert!(matches!(
        world.discard(256).await,
        Err(ArchiveError::Rows { first: 1, last: 256, .. })
    ));
    let mend = "update log_event set payload = replace(payload::text, 'queuer', 'queued')::json where position = 9";
    support::run(&world.database, mend).await;
    // Changes a file after the archive was created.
    let path = world.file("1-256", EVENTS);
    let original = fs::read(&path).unwrap();
    let mut spoiled = original.clone();
    spoiled[100] ^= 1;
    fs::write(&path, spoiled).unwrap();
    assert!(matches!(world.discard(256).await, Err(ArchiveError::Corrupt { .. })));
    fs::write(&path, original).unwrap();
    world.discard(256).await.unwrap();
    // Repeating the drop changes nothing, and the partition is never created again.
    world.discard(256).await.unwrap();
    assert_eq!(partitions::create_missing(&world.database.pool, 256, 1).await.unwrap(), []);
}

#[tokio::test]
async fn changed_row_is_never_archived() {
    let world = World::new().await;
    let spoil = "update log_event set payload = replace(payload::text, 'queued', 'queuer')::json where position = 9";
    support::run(&world.database, spoil).await;
    let error = world.create(1).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Rows { first: 1, last: 256, .. }), "{error}");
    assert!(!world.directory.path().join("1-256").exists());
}

#[tokio::test]
async fn killed_archive_creation_can_be_repeated_and_keeps_the_rows() {
    let world = World::new().await;
    let steps = [Step::Written(64), Step::Written(256), Step::Checked(128), Step::Whole];
    for at in steps {
        let (pool, of) = (world.database.pool.clone(), world.partition(1).await);
        let archives = Archives::at(world.directory.path());
        let killed = tokio::spawn(async move {
            let mut stop = |step: Step| assert_ne!(step, at, "killed here");
            create(&pool, &archives, &of, (&[], 64), &mut stop).await.map(drop)
        });
        assert!(killed.await.unwrap_err().is_panic(), "{at:?}");
        let mut connection = world.database.pool.acquire().await.unwrap();
        assert_eq!(list(&mut connection).await.unwrap(), [], "{at:?}");
        assert_eq!(count(&world.database, "select count(*) from log_event").await, 700);
        assert!(matches!(world.discard(256).await, Err(ArchiveError::Unknown(256))));
    }
    // The archive that was complete at the crash is verified again and recorded.
    world.create(1).await.unwrap();
    world.discard(256).await.unwrap();
    assert_eq!(world.log().await.read(0, 1_000).await.unwrap(), world.events);
    let left: Vec<_> = fs::read_dir(world.directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
}

/// Returns the reason why an archive is corrupt, after it checks that every read reports the error.
async fn archive_error(world: &World) -> String {
    let log = world.log().await;
    let VerifyError::Log(error) = verify(&world.source(), 0, |_| {}).await.unwrap_err() else {
        panic!("the archive is at fault, not the log")
    };
    let LogError::Archived { first: 1, last: 256, why, .. } = &error else { panic!("{error}") };
    // No read returns a shorter or changed history.
    let read = log.read(0, 700).await;
    assert!(matches!(read, Err(LogError::Archived { .. })), "{why}");
    for n in 0..8 {
        let read = log.read_stream(&stream(&format!("s{n}")), 0).await;
        assert!(matches!(read, Err(LogError::Archived { .. })), "{why}");
    }
    assert!(error.to_string().contains("restore the archive from a backup"), "{error}");
    why.clone()
}

#[tokio::test]
async fn error_of_a_corrupt_archive_has_its_path_and_the_remedy() {
    let world = World::archived().await;
    let (events, index) = (world.file("1-256", EVENTS), world.file("1-256", INDEX));
    let manifest = world.file("1-256", MANIFEST);
    let files = [&events, &index, &manifest].map(|path| fs::read(path).unwrap());
    let put_back = || {
        for (path, bytes) in [&events, &index, &manifest].into_iter().zip(&files) {
            fs::write(path, bytes).unwrap();
        }
    };
    // Flips a bit in the events file.
    let mut bytes = files[0].clone();
    bytes[40] ^= 0x20;
    fs::write(&events, bytes).unwrap();
    assert!(archive_error(&world).await.contains("its digest does not match the manifest"));
    put_back();
    // Swaps two lines, and compresses them again with a matching manifest.
    swap_lines(&world, &files);
    assert!(
        archive_error(&world)
            .await
            .contains("its digest differs from the one that the database records")
    );
    put_back();
    // Removes a file, then moves the whole archive away.
    fs::remove_file(&events).unwrap();
    assert!(archive_error(&world).await.contains("No such file"));
    put_back();
    let (archive, away) =
        (world.directory.path().join("1-256"), world.directory.path().join("away"));
    fs::rename(&archive, &away).unwrap();
    assert!(archive_error(&world).await.contains("No such file"));
    fs::rename(&away, &archive).unwrap();
    verify(&world.source(), 0, |_| {}).await.unwrap();
    // No directory of archives is set.
    let unsaid = verify(&world.database.pool, 0, |_| {}).await.unwrap_err().to_string();
    assert!(unsaid.contains("no archive directory is set"), "{unsaid}");
}

fn swap_lines(world: &World, [events, _, manifest]: &[Vec<u8>; 3]) {
    let mut manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    let length = usize::try_from(manifest["frames"][0]["bytes"].as_u64().unwrap()).unwrap();
    let lines = zstd::bulk::decompress(&events[..length], 1 << 20).unwrap();
    let mut lines: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
    lines.swap(3, 4);
    let packed = zstd::bulk::compress(&lines.concat(), 6).unwrap();
    let rest = &events[length..];
    fs::write(world.file("1-256", EVENTS), [&packed[..], rest].concat()).unwrap();
    manifest["frames"][0]["bytes"] = packed.len().into();
    manifest["frames"][0]["sha256"] = hex::encode(proof::sha256(&packed)).into();
    fs::write(world.file("1-256", MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[tokio::test]
async fn index_with_missing_entries_is_detected_by_the_stream_sequences() {
    let world = World::archived().await;
    let index = world.file("1-256", INDEX);
    let bytes = fs::read(&index).unwrap();
    let all = bytes.len() / 28;
    let log = world.log().await;
    for hidden in 0..all {
        // A copy of a neighboring entry replaces the entry, so the file keeps its size and its sort
        // order.
        let mut spoiled = bytes.clone();
        let other = if hidden == 0 { 1 } else { hidden - 1 };
        spoiled.copy_within(other * 28..other * 28 + 28, hidden * 28);
        fs::write(&index, spoiled).unwrap();
        let mut rejected = 0;
        for n in 0..8 {
            let of = stream(&format!("s{n}"));
            for to in [100, 256, 700] {
                let expected: Vec<_> = world
                    .events
                    .iter()
                    .filter(|event| event.stream == of && event.position <= to)
                    .cloned()
                    .collect();
                match log.read_page(&of, (0, to), 1_000).await {
                    Ok(read) => assert_eq!(read, expected, "{of} to {to} without entry {hidden}"),
                    Err(LogError::Archived { .. }) => rejected += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(rejected > 0, "no read detected the missing entry {hidden}");
    }
}

#[tokio::test]
async fn readers_miss_no_events_while_rows_are_dropped() {
    let world = World::new().await;
    for first in [1, 257] {
        world.create(first).await.unwrap();
    }
    let reading = |of: u64| {
        let (source, events) = (world.source(), world.events.clone());
        let directory = world.directory.path().to_path_buf();
        let database = world.database.clone();
        tokio::spawn(async move {
            let options = Options { archives: Archives::at(&directory), ..Options::default() };
            let log = database.log_with(options).await.unwrap();
            for _ in 0..40 {
                let from = usize::try_from(of * 90).unwrap();
                assert_eq!(log.read(of * 90, 200).await.unwrap(), events[from..from + 200]);
                let stream = stream(&format!("s{of}"));
                let all = events.iter().filter(|event| event.stream == stream).count();
                assert_eq!(log.read_stream(&stream, 0).await.unwrap().len(), all);
                verify(&source, 0, |_| {}).await.unwrap();
            }
        })
    };
    let readers: Vec<_> = (0..4).map(reading).collect();
    world.discard(256).await.unwrap();
    support::pause(200).await;
    world.discard(512).await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(Path::new(&world.file("257-512", MANIFEST)).exists());
}
