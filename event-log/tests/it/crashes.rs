//! A crash of Postgres between data and the event that references it. The append is repeated after
//! the restart, so the data must be durable before.
use domain::digest::Digest;
use event_log::{
    KeyRing, Options, WrappingKey, blob,
    encryption::data::{self, DataId, Read, Stored},
    testing::{Cluster, fresh_in, settings},
};

/// Postgres flushes an asynchronous commit only after this time.
const LATE_FLUSH: &str = "wal_writer_delay=10s";
const INSTALL: &str = "ins_1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_for_an_event_survives_a_crash_before_the_event() {
    let dir = tempfile::Builder::new().prefix("stead-crash-").tempdir().unwrap();
    let settings = settings(false, &["max_connections=40", "shared_buffers=16MB", LATE_FLUSH]);
    let cluster = Cluster::start(dir.path(), settings.clone()).await.unwrap();
    let database = fresh_in(&cluster).await.unwrap();
    let keys = KeyRing::of(WrappingKey::of([1; 32]), vec![]);
    let log = database.log_with(Options { keys, ..Options::default() }).await.unwrap();
    // given data that was stored, and a crash before the event
    let digest: Digest = [7; 32].into();
    let id = DataId { subject: INSTALL, digest: &digest };
    let stored = data::put(&database.pool, log.key_ring(), log.clock(), id, ("exe_1", b"details"));
    assert_eq!(stored.await.unwrap(), Stored::Stored);
    cluster.stop().unwrap();
    Cluster::start(dir.path(), settings.clone()).await.unwrap();
    let manifest = blob::put_for_event(&database.pool, b"manifest", Some(INSTALL)).await.unwrap();
    cluster.stop().unwrap();
    // when Postgres starts again
    Cluster::start(dir.path(), settings).await.unwrap();
    // then the data is there
    let read = blob::get(&database.pool, &manifest).await.unwrap();
    assert_eq!(read.as_deref(), Some(&b"manifest"[..]));
    let read = data::get(&database.pool, log.key_ring(), id).await.unwrap();
    assert_eq!(read, Read::Found(b"details".to_vec()));
    cluster.stop().unwrap();
}
