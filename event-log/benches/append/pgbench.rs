//! One row per transaction by pgbench on prepared statements: the anchor, and message-db, whose `write_message` is a
//! function of the database.
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use event_log::testing::{Cluster, Database};
use sqlx::PgPool;

use crate::{payload, report::Run};

/// The anchor's table.
pub async fn prepare(pool: &PgPool) {
    let table = "create table ev (position bigint generated always as identity primary key, \
         stream text not null, version bigint not null, event_id uuid not null, \
         recorded_at timestamptz not null, payload jsonb not null, unique (stream, version))";
    sqlx::raw_sql(table).execute(pool).await.unwrap();
}

/// One row a transaction.
pub async fn insert(
    cluster: &Cluster,
    database: &Database,
    callers: usize,
    period: Duration,
) -> Run {
    let script = format!(
        "insert into ev (stream, version, event_id, recorded_at, payload) values \
         ('job_' || gen_random_uuid(), 1, gen_random_uuid(), now(), '{}');\n",
        payload(1)
    );
    let before = count(&database.pool, "ev").await;
    let run = run(cluster, database, &script, callers, period).await;
    assert_eq!(count(&database.pool, "ev").await - before, run.events as i64);
    run
}

/// message-db as its own script installs it, in this round's database.
pub fn install_message_db(cluster: &Cluster, database: &Database, modules: &Path) {
    let script = modules.join("node_modules/@eventide/message-db/database/install.sh");
    let installed = Command::new("bash")
        .arg(script)
        .env("PGHOST", cluster.directory())
        .env("PGUSER", "stead")
        .env("DATABASE_NAME", name(database))
        .env("CREATE_DATABASE", "off")
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}

/// One message a transaction, each to a stream of its own that must not exist.
pub async fn message_db(
    cluster: &Cluster,
    database: &Database,
    callers: usize,
    period: Duration,
) -> Run {
    let script = format!(
        "select write_message(gen_random_uuid()::varchar, 'job-' || gen_random_uuid(), \
         'queued', '{}'::jsonb, '{{}}'::jsonb, -1);\n",
        payload(1)
    );
    let before = count(&database.pool, "message_store.messages").await;
    let run = run(cluster, database, &script, callers, period).await;
    let after = count(&database.pool, "message_store.messages").await;
    assert_eq!(after - before, run.events as i64);
    run
}

async fn run(
    cluster: &Cluster,
    database: &Database,
    script: &str,
    callers: usize,
    period: Duration,
) -> Run {
    let file = cluster.directory().join("pgbench.sql");
    fs::write(&file, script).unwrap();
    let log = cluster.directory().join("pgbench");
    let mut pgbench = cluster.binaries().command("pgbench");
    pgbench.args(["-n", "-M", "prepared", "-j", "2", "-l"]);
    pgbench.arg(format!("--log-prefix={}", log.display()));
    pgbench.args(["-c", &callers.to_string(), "-T", &period.as_secs().to_string()]);
    pgbench.arg("-f").arg(&file).arg("-h").arg(cluster.directory()).args(["-U", "stead"]);
    pgbench.arg(name(database));
    pgbench.env("PGOPTIONS", "-c search_path=stead,message_store,public").stderr(Stdio::null());
    let done = tokio::task::spawn_blocking(move || pgbench.output()).await.unwrap().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let tps = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse().ok());
    let tps: f64 = tps.unwrap_or_else(|| panic!("{output}"));
    let calls = latencies(cluster);
    // pgbench counts without the time it took to connect.
    let whole = Duration::from_secs_f64(calls.len() as f64 / tps);
    Run { events: calls.len(), whole, calls }
}

fn name(database: &Database) -> &str {
    database.url.rsplit_once('/').unwrap().1
}

/// The third column of pgbench's log: µs.
fn latencies(cluster: &Cluster) -> Vec<Duration> {
    let mut calls = Vec::new();
    for entry in fs::read_dir(cluster.directory()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("pgbench.") && !name.ends_with(".sql") {
            let text = fs::read_to_string(entry.path()).unwrap();
            let micros = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse().ok());
            calls.extend(micros.map(Duration::from_micros));
            fs::remove_file(entry.path()).unwrap();
        }
    }
    calls
}

async fn count(pool: &PgPool, table: &str) -> i64 {
    sqlx::query_scalar(&format!("select count(*) from {table}")).fetch_one(pool).await.unwrap()
}
