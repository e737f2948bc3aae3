//! Encrypted versions of the Terraform state of components. The server stores them in order and
//! cannot read them.
//!
//! ```text
//! order: fence of the newest execution that may write, then serial within a lineage
//! same serial and digest     repeated, nothing is stored
//! same serial, other digest  conflict
//! other lineage              after an empty state or a decision, else a conflict
//! ```
mod fence;
mod hold;
mod keep;
mod order;
mod read;
mod uploads;

use std::collections::BTreeMap;

use domain::{
    decider::Timestamp,
    ids::{InstallId, JobId},
    state_version::StateVersion,
};
use event_log::transaction::completed;
use schemas::{manifest::Fence, runner::StateHead};
use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

pub(crate) use self::{
    fence::{Beginning, Begun, begin, begun, decide, log_position},
    hold::hold,
    keep::{Named, mark_named},
    order::{Conflict, Place, Replaces},
    read::{find, has},
    uploads::{LOWEST_RATE, Transfer, Uploads},
};

/// Default of the maximum size of all versions of an install in bytes.
pub const DEFAULT_QUOTA: u64 = 4 << 30;

/// Component whose state is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub install: InstallId,
    pub component: &'a str,
}

/// Version to store.
pub(crate) struct NewVersion<'a> {
    pub head: &'a StateHead,
    pub ciphertext: Vec<u8>,
    pub replaces: Replaces,
    pub writer: Writer,
    /// Current versions of all components of the install in the log.
    pub named: &'a [Named],
    /// Maximum size of all versions of the install in bytes.
    pub quota: u64,
}

/// Party that stores a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Execution of this job, also after its end.
    Job(JobId),
    /// User who chose the state.
    User {
        /// Newest execution that may write, which the caller has checked.
        known: Option<Begun>,
        /// Fence that rejects all executions claimed until now.
        until: Fence,
    },
}

/// Reasons why a version was not stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStored {
    Conflict(Conflict),
    /// The data of the install was erased.
    Erased,
    /// Another version of the component is being stored.
    Busy,
    /// The versions of the install would be larger than its quota.
    OverQuota,
}

/// Stores a version. Returns the newest version of the component afterwards, which is the stored
/// one, or an earlier upload of the same state. `permits` are held until the transaction ends, also if
/// the caller stops waiting.
pub(crate) async fn put(
    pool: &PgPool,
    now: Timestamp,
    of: Of<'_>,
    new: NewVersion<'_>,
    permits: impl Send + 'static,
) -> Result<Result<StateHead, NotStored>, sqlx::Error> {
    let (pool, install, component) = (pool.clone(), of.install, of.component.to_owned());
    let NewVersion { ciphertext, replaces, writer, quota, .. } = new;
    let (head, named) = (new.head.clone(), new.named.to_vec());
    completed(async move {
        let _until_the_end = permits;
        let of = Of { install, component: &component };
        let (head, named) = (&head, named.as_slice());
        let new = NewVersion { head, ciphertext, replaces, writer, named, quota };
        let mut tx = pool.begin().await?;
        let stored = put_in(&mut tx, now, of, new).await?;
        // An explicit rollback releases the lock of the component immediately.
        match stored {
            Ok(_) => tx.commit().await?,
            Err(_) => tx.rollback().await?,
        }
        Ok(stored)
    })
    .await
}

async fn put_in(
    tx: &mut PgConnection,
    now: Timestamp,
    of: Of<'_>,
    new: NewVersion<'_>,
) -> Result<Result<StateHead, NotStored>, sqlx::Error> {
    let install = of.install.to_string();
    sqlx::query(STATEMENT_TIMEOUT).execute(&mut *tx).await?;
    let shared = format!("select pg_try_advisory_xact_lock_shared({WRITERS})");
    if !sqlx::query_scalar(&shared).bind(&install).fetch_one(&mut *tx).await? {
        return Ok(Err(NotStored::Busy));
    }
    if !lock(&mut *tx, of).await? {
        return Ok(Err(NotStored::Busy));
    }
    let (newest, begun) = (newest_in(&mut *tx, of).await?, fence::begun_in(&mut *tx, of).await?);
    let (begun, raised) = match new.writer {
        Writer::Job(job) => (begun, Begun { fence: new.head.fence, job: Some(job) }),
        // Another execution has begun since the caller checked that none uses the state.
        Writer::User { known, .. } if known != begun => return Ok(Err(NotStored::Busy)),
        // A decision continues the newest version and not the newest execution, which may have
        // stored nothing.
        Writer::User { until, .. } => (None, Begun { fence: until, job: None }),
    };
    let place =
        order::place(newest.as_ref(), begun.map(|begun| begun.fence), new.head, new.replaces);
    match place {
        Err(conflict) => return Ok(Err(NotStored::Conflict(conflict))),
        Ok(place) => {
            fence::raise(&mut *tx, of, raised).await?;
            if place == Place::Repeated {
                return Ok(Ok(newest.unwrap_or_else(|| new.head.clone())));
            }
        }
    }
    // Either an erasure of the install waits for the shared lock, or this statement sees that the
    // key of the install was deleted.
    let sql = "insert into state_version (install, component, number, lineage, serial, fence_epoch, \
               fence_position, digest, is_empty, size, ciphertext, created_at, is_named) \
             select $1::text, $2::text, coalesce((select max(number) from state_version \
               where install = $1 and component = $2), 0) + 1, $3::text, $4::int8, $5::int8, $6::int8, \
               $7::text, $8::bool, $9::int8, $10::bytea, $11::timestamptz, $12::bool \
             where not exists (select from subject_key where subject = $1 and shredded_at is not null)";
    let (head, size) = (new.head, new.ciphertext.len() as u64);
    let named: Vec<StateVersion> = new
        .named
        .iter()
        .filter(|(component, _)| component == of.component)
        .map(|(_, version)| version.clone())
        .collect();
    let is_named = named.iter().any(|named| named.is_same(&head.version()));
    let stored = sqlx::query(sql)
        .bind(&install)
        .bind(of.component)
        .bind(&head.lineage)
        .bind(head.serial.cast_signed())
        .bind(head.fence.epoch.cast_signed())
        .bind(head.fence.position.cast_signed())
        .bind(&head.digest)
        .bind(head.is_empty)
        .bind(size.cast_signed())
        // Moved: the statement has its own copy.
        .bind(new.ciphertext)
        .bind(now)
        .bind(is_named)
        .execute(&mut *tx)
        .await?;
    if stored.rows_affected() == 0 {
        return Ok(Err(NotStored::Erased));
    }
    keep::mark_named_in(tx, of, &named).await?;
    keep::remove_old(tx, of).await?;
    match keep::fit(tx, of.install, new.named, new.quota).await? {
        true => Ok(Ok(head.clone())),
        false => Ok(Err(NotStored::OverQuota)),
    }
}

/// Time after which a statement of an upload releases its connection.
const STATEMENT_TIMEOUT: &str = "set local statement_timeout = '60s'";

/// Locks the state of a component until the end of the transaction. Returns false if it is locked:
/// waiting uploads would hold all connections of the pool.
async fn lock(tx: &mut PgConnection, of: Of<'_>) -> Result<bool, sqlx::Error> {
    let lock = "select pg_try_advisory_xact_lock(hashtextextended('state_version ' || $1 || ' ' || $2, 0))";
    sqlx::query_scalar(lock).bind(of.install.to_string()).bind(of.component).fetch_one(tx).await
}

const COLUMNS: &str = "lineage, serial, fence_epoch, fence_position, digest, is_empty";

async fn newest_in(
    connection: &mut PgConnection,
    of: Of<'_>,
) -> Result<Option<StateHead>, sqlx::Error> {
    let sql = format!(
        "select {COLUMNS} from state_version where install = $1 and component = $2 order by number desc limit 1"
    );
    let row = sqlx::query(&sql).bind(of.install.to_string()).bind(of.component);
    row.fetch_optional(connection).await?.map(|row| head(&row)).transpose()
}

/// Returns the newest version of a component, without its ciphertext.
pub(crate) async fn newest(pool: &PgPool, of: Of<'_>) -> Result<Option<StateHead>, sqlx::Error> {
    newest_in(&mut *pool.acquire().await?, of).await
}

/// Returns the newest version of each component of an install.
pub(crate) async fn newest_of_install(
    connection: &mut PgConnection,
    install: InstallId,
) -> Result<BTreeMap<String, StateHead>, sqlx::Error> {
    let sql = format!(
        "select distinct on (component) component, {COLUMNS} from state_version where install = $1 \
         order by component, number desc"
    );
    let rows = sqlx::query(&sql).bind(install.to_string()).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get("component")?, head(row)?))).collect()
}

fn head(row: &PgRow) -> Result<StateHead, sqlx::Error> {
    let number = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned);
    let fence = Fence { epoch: number("fence_epoch")?, position: number("fence_position")? };
    let (lineage, serial) = (row.try_get("lineage")?, number("serial")?);
    let (digest, is_empty) = (row.try_get("digest")?, row.try_get("is_empty")?);
    Ok(StateHead { lineage, serial, fence, digest, is_empty })
}

/// Lock of the writers of an install, which an erasure waits for.
const WRITERS: &str = "hashtextextended('state_version writers ' || $1, 0)";

/// Deletes all versions of these installs, whose keys must be deleted already. Waits for transactions
/// that store one.
pub(crate) async fn erase(pool: &PgPool, installs: &[String]) -> Result<(), sqlx::Error> {
    for install in installs {
        let mut tx = pool.begin().await?;
        sqlx::query("set local lock_timeout = '60s'").execute(&mut *tx).await?;
        let lock = format!("select pg_advisory_xact_lock({WRITERS})");
        sqlx::query(&lock).bind(install).execute(&mut *tx).await?;
    }
    for table in ["state_version", "state_fence"] {
        let delete = format!("delete from {table} where install = any($1)");
        sqlx::query(&delete).bind(installs).execute(pool).await?;
    }
    Ok(())
}

/// Returns the number of versions that [`erase`] would delete.
pub(crate) async fn not_erased(pool: &PgPool, installs: &[String]) -> Result<i64, sqlx::Error> {
    let count = "select count(*) from state_version where install = any($1)";
    sqlx::query_scalar(count).bind(installs).fetch_one(pool).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ulid::Ulid;

    use super::*;

    #[tokio::test]
    async fn an_erasure_waits_for_an_upload_and_a_later_upload_stores_nothing() {
        let database = event_log::testing::fresh_database().await.unwrap();
        let (pool, now) = (database.pool.clone(), Timestamp::UNIX_EPOCH);
        let (install, job) = (InstallId(Ulid::new()), JobId(Ulid::new()));
        let of = Of { install, component: "web" };
        let fence = Fence { epoch: 1, position: 1 };
        let (lineage, digest) = ("l".to_owned(), "d".to_owned());
        let head = StateHead { lineage, serial: 1, fence, digest, is_empty: false };
        let new = |head| {
            let (ciphertext, writer) = (vec![7], Writer::Job(job));
            let replaces = Replaces::EmptyState;
            NewVersion { head, ciphertext, replaces, writer, named: &[], quota: 100 }
        };
        let mut open = pool.begin().await.unwrap();
        put_in(&mut open, now, of, new(&head)).await.unwrap().unwrap();
        // When the install is erased before the commit.
        let id = install.to_string();
        let shred =
            "insert into subject_key (subject, created_at, shredded_at) values ($1, $2, $2)";
        sqlx::query(shred).bind(&id).bind(now).execute(&pool).await.unwrap();
        let ids = [id];
        let (erasing, of_install) = (pool.clone(), ids.clone());
        let erasing = tokio::spawn(async move { erase(&erasing, &of_install).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!erasing.is_finished());
        open.commit().await.unwrap();
        erasing.await.unwrap().unwrap();
        assert_eq!(not_erased(&pool, &ids).await.unwrap(), 0);
        let next = StateHead { serial: 2, ..head.clone() };
        assert_eq!(put(&pool, now, of, new(&next), ()).await.unwrap(), Err(NotStored::Erased));
    }
}
