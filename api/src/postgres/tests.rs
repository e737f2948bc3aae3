//! Tests with a real Postgres, whose processes the tests kill.
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{Connection as _, PgConnection, Row as _};

use super::*;

async fn owner(running: &Embedded) -> PgConnection {
    PgConnection::connect_with(&running.owner()).await.unwrap()
}

/// Creates a data directory that the postgres user can enter. `tempdir` creates a private one.
fn data() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))
        .unwrap();
    dir
}

#[tokio::test]
async fn committed_data_survives_stop_and_kill() {
    let dir = data();
    let data = dir.path().join("data");
    let _held = DataLock::take(&data).unwrap();

    let running = Embedded::start(&data).await.unwrap();
    let mut db = owner(&running).await;
    sqlx::query("create table public.kept (n int)").execute(&mut db).await.unwrap();
    sqlx::query("insert into public.kept values (1)").execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    let first = running.pid();
    running.stop().await.unwrap();
    assert!(!data.join("postgres/postmaster.pid").exists(), "a clean stop leaves no pid");

    // The next start uses the same cluster.
    let running = Embedded::start(&data).await.unwrap();
    assert_ne!(running.pid(), first);
    let mut db = owner(&running).await;
    sqlx::query("insert into public.kept values (2)").execute(&mut db).await.unwrap();
    drop(db);

    // Kills Postgres: its pid file is stale, and its shared memory remains.
    let killed = running.pid();
    let mut running = running;
    kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    running.ended().await;
    assert!(data.join("postgres/postmaster.pid").exists());
    // Restarts Postgres like `stead up`. Existing connections are lost.
    running.restart().await.unwrap();
    assert_ne!(running.pid(), killed);
    let mut db = owner(&running).await;
    let count = sqlx::query("select count(*) from public.kept").fetch_one(&mut db).await.unwrap();
    assert_eq!(count.get::<i64, _>(0), 2);
    db.close().await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_postgres_that_a_killed_server_left_behind_is_adopted_and_stopped() {
    let dir = data();
    let data = dir.path().join("data");
    let _held = DataLock::take(&data).unwrap();
    let left = Embedded::start(&data).await.unwrap();
    let pid = left.pid();
    // State after kill -9 of the server: Postgres continues to run, and nothing waits for it.
    std::mem::forget(left);
    let adopted = Embedded::start(&data).await.unwrap();
    assert_eq!(adopted.pid(), pid);
    owner(&adopted).await.close().await.unwrap();
    adopted.stop().await.unwrap();
    assert!(!data.join("postgres/postmaster.pid").exists());
}

#[tokio::test]
async fn a_cluster_of_another_version_is_refused_by_name() {
    let dir = data();
    let data = dir.path().join("data");
    let _held = DataLock::take(&data).unwrap();
    Embedded::start(&data).await.unwrap().stop().await.unwrap();
    std::fs::write(data.join("postgres/PG_VERSION"), "9\n").unwrap();
    let refusal = Embedded::start(&data).await.err().unwrap().to_string();
    assert!(
        refusal.contains("Postgres 9 created") && refusal.contains(postgres_supervisor::BIN_ENV),
        "{refusal}"
    );
}

/// Root restores and backs up the data of a service user, who must be able to access the result.
#[tokio::test]
async fn files_that_root_creates_belong_to_the_directory_owner() {
    use std::os::unix::fs::MetadataExt as _;
    let nobody = nix::unistd::User::from_name("nobody").ok().flatten();
    let Some(user) = nobody.filter(|_| nix::unistd::geteuid().is_root()) else {
        eprintln!("SKIPPED: only root starts it for another user");
        return;
    };
    let dir = data();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    nix::unistd::chown(&data, Some(user.uid), Some(user.gid)).unwrap();
    let _held = DataLock::take(&data).unwrap();
    Embedded::start_for_owner(&data).await.unwrap().stop().await.unwrap();
    for name in ["lock", "postgres", "postgres.log", "run"] {
        let found = std::fs::metadata(data.join(name)).unwrap();
        assert_eq!(found.uid(), user.uid.as_raw(), "{name}");
    }
    // A server that runs as root would create files of root, so it is rejected with the reason.
    if nix::unistd::User::from_name("postgres").ok().flatten().is_some() {
        let refusal = Embedded::start(&data).await.err().unwrap().to_string();
        assert!(refusal.contains("run stead as the owner of the data directory"), "{refusal}");
    }
    // A running Postgres is found, regardless of its user.
    let running = Embedded::start_for_owner(&data).await.unwrap();
    let options = Embedded::running(&data).await.unwrap();
    PgConnection::connect_with(&options).await.unwrap().close().await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_may_read_and_add_events_and_never_change_them_also_after_a_rebuild() {
    let dir = data();
    let data = dir.path().join("data");
    let _held = DataLock::take(&data).unwrap();
    let running = Embedded::start(&data).await.unwrap();
    let owner = sqlx::PgPool::connect_with(running.owner()).await.unwrap();
    crate::server::prepare(&owner).await.unwrap();
    assert_eq!(crate::server::prepare(&owner).await.unwrap(), [""; 0], "nothing is left to do");
    projections::rebuild(&owner, "runners", |_| {}).await.unwrap();
    let mut app = PgConnection::connect_with(&running.app()).await.unwrap();
    sqlx::query("select 1 from projection_runners").fetch_all(&mut app).await.unwrap();
    // Only the owner may create and drop partitions of job logs. The server's role writes to them.
    let (day, next) = ("2026-11-21".parse().unwrap(), "2026-11-22".parse().unwrap());
    assert_eq!(crate::logs::days::create_missing(&owner, day, 0).await.unwrap(), [day]);
    let serving = sqlx::PgPool::connect_with(running.app()).await.unwrap();
    assert_eq!(crate::logs::days::create_missing(&serving, day, 0).await.unwrap(), []);
    crate::logs::days::create_missing(&serving, next, 0).await.unwrap_err();
    let execution = "exe_01M7YB1BR00000000000000000".parse().unwrap();
    let store = crate::logs::LogStore::new(serving.clone());
    store.append(execution, 0, bytes::Bytes::from_static(b"line")).await.unwrap();
    assert_eq!(store.read(execution, 0..9).await.unwrap(), "line");
    let there = "select count(*) from job_log_20261121";
    assert_eq!(sqlx::query_scalar::<_, i64>(there).fetch_one(&owner).await.unwrap(), 1);
    serving.close().await;
    for change in [
        "delete from log_event",
        "update log_event set salt = ''",
        "drop table blob",
        "drop table job_log_20261121",
    ] {
        let refused = sqlx::query(change).execute(&mut app).await.unwrap_err();
        let code = refused.as_database_error().and_then(|said| said.code().map(String::from));
        assert_eq!(code.as_deref(), Some("42501"), "{change}");
    }
    app.close().await.unwrap();
    owner.close().await;
    running.stop().await.unwrap();
}

/// The cluster was synced and used, but the rename of its directory was lost.
#[tokio::test]
async fn cluster_with_a_lost_rename_is_recovered() {
    let dir = data();
    let data = dir.path().join("data");
    let _held = DataLock::take(&data).unwrap();
    let mut running = Embedded::start(&data).await.unwrap();
    running.durable().await.unwrap();
    let mut db = owner(&running).await;
    sqlx::query("create table public.kept (n int)").execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    running.stop().await.unwrap();
    std::fs::rename(data.join("postgres"), data.join("postgres.new")).unwrap();

    let running = Embedded::start(&data).await.unwrap();
    let mut db = owner(&running).await;
    sqlx::query("select n from public.kept").fetch_all(&mut db).await.unwrap();
    db.close().await.unwrap();
    running.stop().await.unwrap();
}
