//! Measures Postgres with one statement per transaction, by pgbench on prepared statements. The
//! insert of one row with two indexes is the baseline of other figures.
use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use event_log::testing::Cluster;
use sqlx::PgPool;

use crate::{Run, payload};

/// Reason why pgbench cannot run, or `None`. Some distributions have it in a separate package.
pub fn missing(cluster: &Cluster) -> Option<String> {
    let found = Command::new(cluster.binaries.program("pgbench")).arg("--version").output();
    let why = found.err()?;
    Some(format!("cannot start pgbench: {why}; install PostgreSQL's contrib programs"))
}

/// Creates the table of the baseline.
pub async fn prepare(pool: &PgPool) {
    let table = "create table public.ev (position bigint generated always as identity primary key, \
         stream text not null, version bigint not null, event_id uuid not null, \
         recorded_at timestamptz not null, payload jsonb not null, unique (stream, version))";
    sqlx::raw_sql(table).execute(pool).await.unwrap();
}

/// Inserts one row per transaction with this many connections.
pub async fn insert(cluster: &Cluster, pool: &PgPool, callers: usize, period: Duration) -> Run {
    let script = format!(
        "insert into public.ev (stream, version, event_id, recorded_at, payload) values \
         ('job_' || gen_random_uuid(), 1, gen_random_uuid(), now(), '{}');\n",
        payload(1)
    );
    let before = count(pool, "public.ev").await;
    let run = run(cluster, pool, &script, callers, period).await;
    assert_eq!(count(pool, "public.ev").await - before, run.events as i64);
    run
}

/// Runs a script for a period.
pub async fn run(
    cluster: &Cluster,
    pool: &PgPool,
    script: &str,
    callers: usize,
    period: Duration,
) -> Run {
    let file = cluster.data.join("pgbench.sql");
    fs::write(&file, script).unwrap();
    let log = cluster.data.join("pgbench");
    let mut pgbench = Command::new(cluster.binaries.program("pgbench"));
    pgbench.args(["-n", "-M", "prepared", "-j", "2", "-l"]);
    pgbench.arg(format!("--log-prefix={}", log.display()));
    pgbench.args(["-c", &callers.to_string(), "-T", &period.as_secs().to_string()]);
    pgbench.arg("-f").arg(&file).arg("-h").arg(&cluster.sockets).args(["-U", "stead"]);
    pgbench.arg(pool.connect_options().get_database().unwrap());
    pgbench.env("PGOPTIONS", "-c search_path=stead,message_store,public").stderr(Stdio::null());
    let done = tokio::task::spawn_blocking(move || pgbench.output()).await.unwrap().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let tps = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse().ok());
    let tps: f64 = tps.unwrap_or_else(|| panic!("{output}"));
    let calls = latencies(cluster);
    // pgbench excludes the time to connect.
    let whole = Duration::from_secs_f64(calls.len() as f64 / tps);
    Run { events: calls.len(), whole, calls }
}

pub async fn count(pool: &PgPool, table: &str) -> i64 {
    sqlx::query_scalar(&format!("select count(*) from {table}")).fetch_one(pool).await.unwrap()
}

/// Third column of pgbench's log, in µs.
fn latencies(cluster: &Cluster) -> Vec<Duration> {
    let mut calls = Vec::new();
    for entry in fs::read_dir(&cluster.data).unwrap().flatten() {
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
