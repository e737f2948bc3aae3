//! Tests with a real Postgres and its tools.
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use domain::job::JobKind;
use event_log::testing::fresh_empty_database;
use proof::checkpoint::Checkpoint;
use serde_json::json;
use sqlx::{PgPool, Row as _};

use super::*;
use crate::{postgres::Access, server::testing::Started};

mod archives;
mod damaged;
mod pentest;
mod unfinished;
mod whole;

fn quiet(_: String) {}

/// Starts a server with an artifact. Returns the server and a directory for backups.
async fn served() -> (Started, tempfile::TempDir) {
    let started = Started::new().await;
    let blobs = started.data.path().join("registry/shop/network/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let mut bytes = vec![7_u8; 300_000];
    bytes[5] = 1;
    fs::write(blobs.join(hex::encode(proof::sha256(&bytes))), &bytes).unwrap();
    fs::write(blobs.parent().unwrap().with_file_name("index.json"), "{}").unwrap();
    // An incomplete upload is not part of a backup.
    fs::write(started.data.path().join("registry/.uploads/draft"), "x").unwrap();
    (started, tempfile::tempdir().unwrap())
}

/// Data directory, and a missing directory of archives.
fn places(data: &Path) -> (&Path, &Path) {
    (data, Path::new("/nowhere"))
}

async fn backed_up(started: &Started, out: &Path) -> Manifest {
    let access = Access::of_url(&started.database).unwrap();
    create(places(started.data.path()), &access, out, started.app().now(), &quiet).await.unwrap()
}

/// Opens a backup. Returns the directory for unpacking as well.
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
