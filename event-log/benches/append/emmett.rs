//! emmett-postgresql, in a separate Node process.
use std::{path::PathBuf, process::Command, time::Duration};

use event_log::testing::Database;
use measure::{PAYLOAD_BYTES, Run};
use serde::Deserialize;

/// Output of the script, in µs.
#[derive(Deserialize)]
struct EmmettResult {
    whole: f64,
    calls: Vec<u64>,
}

pub async fn run(database: &Database, modules: PathBuf, callers: usize, period: Duration) -> Run {
    let mut node = Command::new("node");
    node.arg(modules.join("emmett.mjs")).arg(&database.url);
    node.args([callers as u64, period.as_secs(), PAYLOAD_BYTES as u64].map(|n| n.to_string()));
    let done = tokio::task::spawn_blocking(move || node.output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let measured: EmmettResult = serde_json::from_slice(&done.stdout).unwrap();
    let rows: i64 = sqlx::query_scalar("select count(*) from emt_messages")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!(rows as usize, measured.calls.len());
    Run {
        events: measured.calls.len(),
        whole: Duration::from_secs_f64(measured.whole / 1e6),
        calls: measured.calls.into_iter().map(Duration::from_micros).collect(),
    }
}
