//! Hold on the states of an install, while another host takes over from its runner.
use std::collections::BTreeMap;

use domain::ids::InstallId;
use schemas::{manifest::Fence, runner::StateHead};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{WRITERS, newest_of_install};

/// States without new versions until the hold ends: an upload of the former host gets an error, and
/// is repeated.
pub(crate) struct Held {
    tx: Transaction<'static, Postgres>,
    install: InstallId,
    /// Newest version of each component.
    pub newest: BTreeMap<String, StateHead>,
    _permit: SemaphorePermit<'static>,
}

/// Concurrent holds of this server. Each needs a second connection, to commit.
static HOLDS: Semaphore = Semaphore::const_new(2);
/// Time to wait for the uploads that have begun. Waiting excludes later ones: a former host that stores
/// states all the time cannot prevent a recovery.
const LOCK_TIMEOUT: &str = "set local lock_timeout = '3s'";
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Holds the states of an install. Returns `None` if a state is being stored for long, and during
/// other holds.
pub(crate) async fn hold(pool: &PgPool, install: InstallId) -> Result<Option<Held>, sqlx::Error> {
    let Ok(permit) = HOLDS.try_acquire() else { return Ok(None) };
    let mut tx = pool.begin().await?;
    sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
    let lock = format!("select pg_advisory_xact_lock({WRITERS})");
    let locked = sqlx::query(&lock).bind(install.to_string()).execute(&mut *tx).await;
    if let Err(sqlx::Error::Database(error)) = &locked
        && error.code().as_deref() == Some(LOCK_NOT_AVAILABLE)
    {
        tx.rollback().await?;
        return Ok(None);
    }
    locked?;
    let newest = newest_of_install(&mut tx, install).await?;
    Ok(Some(Held { tx, install, newest, _permit: permit }))
}

impl Held {
    /// Ends the hold without a change. A dropped transaction would release the lock later.
    pub(crate) async fn release(self) -> Result<(), sqlx::Error> {
        self.tx.rollback().await
    }

    /// Ends the permission of all executions that were claimed until this fence to store states.
    /// Ends the hold.
    pub(crate) async fn end_all(mut self, until: Fence) -> Result<(), sqlx::Error> {
        // A component without a state can have an execution that would store the first one.
        let sql = "insert into state_fence (install, component, fence_epoch, fence_position, job) \
                   select install, component, $2::int8, $3::int8, null from \
                     (select install, component from state_version where install = $1 \
                      union select install, component from state_fence where install = $1) as known \
                   on conflict (install, component) do update set fence_epoch = excluded.fence_epoch, \
                     fence_position = excluded.fence_position, job = null \
                   where (state_fence.fence_epoch, state_fence.fence_position) \
                     < (excluded.fence_epoch, excluded.fence_position)";
        sqlx::query(sql)
            .bind(self.install.to_string())
            .bind(until.epoch.cast_signed())
            .bind(until.position.cast_signed())
            .execute(&mut *self.tx)
            .await?;
        self.tx.commit().await
    }
}
