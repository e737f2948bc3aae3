//! A full disk: rejected events were not written, acknowledged ones remain, and appends continue
//! when there is space again. Mounting a small file system needs root.
use crate::support;

use std::{fs, path::Path, process::Command, time::Duration};

use event_log::{
    EventLog, Options,
    testing::{Cluster, Database, Disk, TestingError, fresh_in, settings},
};
use support::{Responses, check_responses, commit, event, pause, run};

/// Mounts a small disk. Without the privilege to mount, prints a message and returns `None`; in CI,
/// fails.
fn disk(megabytes: u32) -> Option<Disk> {
    let dir = tempfile::Builder::new().prefix("stead-disk-").tempdir().unwrap();
    let disk = Disk::mount(&dir.keep(), megabytes);
    if disk.is_none() {
        let ci = std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1");
        assert!(!ci, "CI must be root and able to mount a tmpfs");
        eprintln!("SKIPPED: only root can mount a small disk to fill");
    }
    disk
}

async fn open_log(database: &Database) -> EventLog {
    let timeout = Duration::from_secs(5);
    let options = Options { query_timeout: timeout, ..Options::default() };
    database.log_with(options).await.unwrap()
}

/// Appends events of many incompressible kilobytes, each to its own stream.
async fn append(log: &EventLog, numbers: std::ops::Range<u64>) -> Responses {
    let each = numbers.map(|number| async move {
        let mut one = commit(&number.to_string(), 0, 1);
        one.writes[0].events[0] = event(number);
        let noise: Vec<u8> = (0..12_000).map(|_| rand::random()).collect();
        let noise = hex::encode(noise);
        one.writes[0].events[0].payload = format!(r#"{{"n":{number},"noise":"{noise}"}}"#);
        (number, log.append(one).await)
    });
    futures::future::join_all(each).await.into_iter().collect()
}

async fn cluster(at: &Path) -> Result<Cluster, TestingError> {
    let more = ["max_connections=40", "shared_buffers=16MB", "max_wal_size=1GB"];
    Cluster::start(at, settings(false, &more)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_tablespace_rejects_events_until_it_has_free_space() {
    let Some(disk) = disk(12) else { return };
    let dir = tempfile::Builder::new().prefix("stead-full-").tempdir().unwrap();
    let cluster = cluster(dir.path()).await.unwrap();
    let database = fresh_in(&cluster).await.unwrap();
    let directory = disk.path().join("tables");
    let postgres = dir.path().join("postgres");
    fs::create_dir(&directory).unwrap();
    copy_owner(&directory, &postgres);
    run(&database, &format!("create tablespace small location '{}'", directory.display())).await;
    run(&database, "alter table log_event_default set tablespace small").await;
    let log = open_log(&database).await;
    let (mut responses, mut next) = (Responses::new(), 0);
    while responses.values().all(Result::is_ok) {
        responses.extend(append(&log, next..next + 40).await);
        next += 40;
        assert!(next < 4_000, "the disk did not fill up");
    }
    // The disk stays full, and every caller gets a response.
    responses.extend(append(&log, next..next + 40).await);
    next += 40;
    let (written, rejected) = check_responses(&database, &responses).await;
    assert!(written > 100 && rejected > 0, "{written} written, {rejected} refused");
    assert!(disk.resize(64));
    let after = append(&log, next..next + 40).await;
    assert!(after.values().all(Result::is_ok), "{after:?}");
    responses.extend(after);
    check_responses(&database, &responses).await;
    drop(log);
    cluster.stop().unwrap();
}

/// Without space for the write-ahead log, Postgres stops, and recovers when there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_that_stopped_on_a_full_disk_keeps_acknowledged_events() {
    let Some(disk) = disk(48) else { return };
    let dir = tempfile::Builder::new().prefix("stead-full-").tempdir().unwrap();
    let running = cluster(dir.path()).await.unwrap();
    let database = fresh_in(&running).await.unwrap();
    database.pool.close().await;
    running.stop().unwrap();
    let wal = dir.path().join("postgres/pg_wal");
    let moved = Command::new("mv").arg(&wal).arg(disk.path().join("wal")).status().unwrap();
    assert!(moved.success());
    std::os::unix::fs::symlink(disk.path().join("wal"), &wal).unwrap();
    cluster(dir.path()).await.unwrap();
    let pool = event_log::connect(&database.url, 8).await.unwrap();
    let database = Database { pool, ..database };
    let log = open_log(&database).await;
    let log_text = || fs::read_to_string(dir.path().join("postgres.log")).unwrap();
    // Callers wait or are rejected until there is space again.
    let rescue = async {
        wait_until(|| log_text().contains("PANIC")).await;
        pause(500).await;
        assert!(disk.resize(512));
        for _ in 0..50 {
            match cluster(dir.path()).await {
                Ok(running) => return running,
                // The stopped process may still exist.
                Err(_) => pause(200).await,
            }
        }
        panic!("Postgres does not restart: {}", log_text());
    };
    let load = async {
        let (mut responses, mut next) = (Responses::new(), 0);
        while !log_text().contains("PANIC") {
            responses.extend(append(&log, next..next + 40).await);
            next += 40;
            assert!(next < 8_000, "the disk did not fill up");
        }
        (responses, next)
    };
    let (running, (mut responses, next)) = tokio::join!(rescue, load);
    assert!(log_text().contains("No space left on device"), "{}", log_text());
    let after = append(&log, next..next + 40).await;
    assert!(after.values().all(Result::is_ok), "{after:?}");
    responses.extend(after);
    let (written, rejected) = check_responses(&database, &responses).await;
    assert!(written > 100, "{written} written, {rejected} refused");
    drop(log);
    running.stop().unwrap();
}

async fn wait_until(is: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is() {
            return;
        }
        pause(10).await;
    }
    panic!("the condition never held");
}

/// Gives a path the same owner as another path, which is the user of Postgres.
fn copy_owner(path: &Path, other: &Path) {
    let mut chown = Command::new("chown");
    let done = chown.arg(format!("--reference={}", other.display())).arg(path).status().unwrap();
    assert!(done.success());
}
