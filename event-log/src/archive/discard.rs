//! Drops the rows of an archived range. Dropping rows cannot be undone, so rows and files are
//! verified again first.
use std::{path::Path, time::Duration};

use proof::key::TrustedKey;
use sqlx::{Executor as _, PgConnection, PgPool};

use super::{
    ArchiveError, Archives,
    catalog::{ArchiveRecord, floor},
    check,
    closed_range::{Reader, range_proof},
    create::prove_rows,
    list,
    manifest::Manifest,
};
use crate::{
    Clock,
    checkpoints::note_keys,
    partitions::{self, Partition},
    stored::bigint,
};

/// Timeout in milliseconds of each lock. Readers and writers queue behind a lock request for at
/// most this time.
const LOCK_MS: u32 = 40;
/// Timeout in milliseconds after which the database ends an idle transaction, for example after a
/// lost connection.
const IDLE_TIMEOUT_MS: u32 = 5_000;
/// Number of attempts before the range is reported as busy.
const TRIES: u32 = 200;

/// Drops the rows of the archive that ends at a position, if rows and files match the
/// published checkpoint. Returns the range.
///
/// # Errors
/// [`ArchiveError`]; the rows are unchanged.
pub async fn discard(
    pool: &PgPool,
    archives: &Archives,
    last: u64,
    readers: &[Reader],
) -> Result<Partition, ArchiveError> {
    let mut connection = pool.acquire().await?;
    let listed = find_record(&mut connection, last).await?;
    let of = Partition { table: String::new(), first: listed.first, last };
    if listed.dropped_at.is_some() {
        return Ok(of);
    }
    let existing = partitions::list(&mut connection).await?;
    let of = existing.into_iter().find(|one| (one.first, one.last) == (of.first, of.last));
    let of = of.ok_or(ArchiveError::Unknown(last))?;
    if floor(&mut connection).await? + 1 != of.first {
        return Err(ArchiveError::Order { first: of.first });
    }
    drop(connection);
    let proof = range_proof(pool, archives, &of, readers).await?;
    verify(pool, archives, &listed).await?;
    prove_rows(pool, &of, &proof, |_| Ok(())).await?;
    for _ in 0..TRIES {
        let mut tx = pool.begin().await?;
        match try_discard(&mut tx, &of).await {
            Ok(()) => {
                tx.commit().await?;
                return Ok(of);
            }
            Err(error) if is_locked(&error) => {
                tx.rollback().await?;
                let jitter = rand::random::<u64>() % 60;
                tokio::time::sleep(Duration::from_millis(20 + jitter)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(ArchiveError::Busy { first: of.first, last: of.last })
}

/// Reads an archive and verifies it with the keys that sign this log's checkpoints. Returns
/// its manifest.
///
/// # Errors
/// [`ArchiveError::Corrupt`].
pub async fn verify(
    pool: &PgPool,
    archives: &Archives,
    listed: &ArchiveRecord,
) -> Result<Manifest, ArchiveError> {
    let path = listed.directory(archives.directory().unwrap_or(Path::new("archives")));
    let keys: Vec<TrustedKey> = note_keys(pool).await?.into_iter().map(TrustedKey::Bare).collect();
    let directory = path.clone();
    let checking = tokio::task::spawn_blocking(move || check(&directory, &keys, &mut |_| {}));
    checking.await.map_err(|error| super::io_error(&path)(error.into()))??;
    Ok(Manifest::read(&path, Some(&listed.manifest_sha256))?.0)
}

async fn try_discard(connection: &mut PgConnection, of: &Partition) -> Result<(), sqlx::Error> {
    // The lock waits for readers that have read the end of the archives and still read rows.
    let table = &of.table;
    let drop = format!(
        "set local lock_timeout = '{LOCK_MS}ms'; \
         set local idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_MS}ms'; \
         lock table log_event in access exclusive mode; \
         lock table log_archive in access exclusive mode; \
         alter table log_event detach partition {table}; drop table {table}"
    );
    connection.execute(&*drop).await?;
    sqlx::query("update log_archive set dropped_at = $2 where last_position = $1")
        .bind(bigint(of.last))
        .bind(Clock::system().now())
        .execute(connection)
        .await?;
    Ok(())
}

async fn find_record(
    connection: &mut PgConnection,
    last: u64,
) -> Result<ArchiveRecord, ArchiveError> {
    let found = list(connection).await?.into_iter().find(|one| one.last == last);
    found.ok_or(ArchiveError::Unknown(last))
}

/// Returns true if another transaction holds a lock, or if a deadlock ended this transaction.
fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "55P03" | "40P01"))
}
