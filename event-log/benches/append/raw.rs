//! The anchor: one row per transaction, two indexes, by pgbench on prepared statements.
use std::{fs, process::Stdio, time::Duration};

use event_log::testing::{Cluster, Database};
use sqlx::PgPool;

use crate::{payload, report::Figure};

pub async fn prepare(pool: &PgPool) {
    let table = "create table ev (position bigint generated always as identity primary key, \
         stream text not null, version bigint not null, event_id uuid not null, \
         recorded_at timestamptz not null, payload jsonb not null, unique (stream, version))";
    sqlx::raw_sql(table).execute(pool).await.unwrap();
}

pub async fn run(
    cluster: &Cluster,
    database: &Database,
    callers: usize,
    period: Duration,
) -> Figure {
    let script = cluster.directory().join("insert.sql");
    let insert = format!(
        "insert into ev (stream, version, event_id, recorded_at, payload) values \
         ('job_' || gen_random_uuid(), 1, gen_random_uuid(), now(), '{}');\n",
        payload(1)
    );
    fs::write(&script, insert).unwrap();
    let log = cluster.directory().join("pgbench");
    let before = count(&database.pool).await;
    let mut pgbench = cluster.binaries().command("pgbench");
    pgbench.args(["-n", "-M", "prepared", "-j", "2", "-l"]);
    pgbench.arg(format!("--log-prefix={}", log.display()));
    pgbench.args(["-c", &callers.to_string(), "-T", &period.as_secs().to_string()]);
    pgbench.arg("-f").arg(&script).args([
        "-h",
        &cluster.directory().to_string_lossy(),
        "-U",
        "stead",
    ]);
    let name = database.url.rsplit_once('/').unwrap().1;
    pgbench.arg(name).env("PGOPTIONS", "-c search_path=stead").stderr(Stdio::null());
    let done = tokio::task::spawn_blocking(move || pgbench.output()).await.unwrap().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let tps = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse().ok());
    let calls = latencies(cluster);
    assert_eq!(count(&database.pool).await - before, calls.len() as i64);
    Figure { per_second: tps.unwrap_or_else(|| panic!("{output}")), ..Figure::of(calls, period) }
}

/// The third column of pgbench's log: µs.
fn latencies(cluster: &Cluster) -> Vec<Duration> {
    let mut calls = Vec::new();
    for entry in fs::read_dir(cluster.directory()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("pgbench.") {
            let text = fs::read_to_string(entry.path()).unwrap();
            let micros = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse().ok());
            calls.extend(micros.map(Duration::from_micros));
            fs::remove_file(entry.path()).unwrap();
        }
    }
    calls
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from ev").fetch_one(pool).await.unwrap()
}
