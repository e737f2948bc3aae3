//! message-db, whose `write_message` is a database function.
use std::{path::Path, process::Command, time::Duration};

use event_log::testing::{Cluster, Database};
use measure::{Run, payload, pgbench};

/// Installs message-db in this round's database with its own script.
pub fn install(cluster: &Cluster, database: &Database, modules: &Path) {
    let script = modules.join("node_modules/@eventide/message-db/database/install.sh");
    let installed = Command::new("bash")
        .arg(script)
        .env("PGHOST", &cluster.sockets)
        .env("PGUSER", "stead")
        .env("DATABASE_NAME", database.url.rsplit_once('/').unwrap().1)
        .env("CREATE_DATABASE", "off")
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}

/// Writes one message per transaction, each to a new stream.
pub async fn run(cluster: &Cluster, database: &Database, callers: usize, period: Duration) -> Run {
    const TABLE: &str = "message_store.messages";
    let script = format!(
        "select write_message(gen_random_uuid()::varchar, 'job-' || gen_random_uuid(), \
         'queued', '{}'::jsonb, '{{}}'::jsonb, -1);\n",
        payload(1)
    );
    let before = pgbench::count(&database.pool, TABLE).await;
    let run = pgbench::run(cluster, &database.pool, &script, callers, period).await;
    let after = pgbench::count(&database.pool, TABLE).await;
    assert_eq!(after - before, run.events as i64);
    run
}
