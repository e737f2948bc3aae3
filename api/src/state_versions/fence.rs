//! Fence of a component: the newest execution that may write its state. An earlier execution cannot
//! store a state after a later one has begun, because the later one continues from the stored state.
use domain::ids::JobId;
use event_log::transaction::completed;
use schemas::manifest::Fence;
use sqlx::{PgConnection, PgPool, Row as _};

use super::{Of, lock, newest_in};

/// Newest execution that may write a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    pub fence: Fence,
    /// Job of the execution. `None` after a decision of a user.
    pub job: Option<JobId>,
}

/// Result of the beginning of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    Begun,
    /// A later execution has begun.
    Later,
    /// A state of the component is being stored.
    Busy,
}

/// Records that an execution may write the state from now on. Earlier executions no longer may.
pub(crate) async fn begin(pool: &PgPool, of: Of<'_>, new: Begun) -> Result<Beginning, sqlx::Error> {
    let (pool, install, component) = (pool.clone(), of.install, of.component.to_owned());
    completed(async move {
        let of = Of { install, component: &component };
        let mut tx = pool.begin().await?;
        let beginning = match lock(&mut tx, of).await? {
            true => begin_in(&mut tx, of, new).await?,
            false => Beginning::Busy,
        };
        // Nothing was written without a beginning. The end of the transaction releases the lock.
        tx.commit().await?;
        Ok(beginning)
    })
    .await
}

async fn begin_in(tx: &mut PgConnection, of: Of<'_>, new: Begun) -> Result<Beginning, sqlx::Error> {
    let stored = newest_in(&mut *tx, of).await?;
    let is_later = stored.is_some_and(|stored| stored.fence > new.fence);
    Ok(match !is_later && raise(tx, of, new).await? {
        true => Beginning::Begun,
        false => Beginning::Later,
    })
}

/// Ends the permission of all executions that were claimed until the position of this fence, because
/// a user chose a state. `known` is the execution that the caller has checked. Returns false if
/// another one has begun meanwhile.
pub(crate) async fn decide(
    pool: &PgPool,
    of: Of<'_>,
    known: Option<Begun>,
    until: Fence,
) -> Result<bool, sqlx::Error> {
    let (pool, install, component) = (pool.clone(), of.install, of.component.to_owned());
    completed(async move {
        let of = Of { install, component: &component };
        let mut tx = pool.begin().await?;
        let is_known = lock(&mut tx, of).await? && begun_in(&mut tx, of).await? == known;
        if is_known {
            raise(&mut tx, of, Begun { fence: until, job: None }).await?;
        }
        tx.commit().await?;
        Ok(is_known)
    })
    .await
}

/// Returns the newest execution that may write the state of a component.
pub(crate) async fn begun(pool: &PgPool, of: Of<'_>) -> Result<Option<Begun>, sqlx::Error> {
    begun_in(&mut *pool.acquire().await?, of).await
}

pub(super) async fn begun_in(
    connection: &mut PgConnection,
    of: Of<'_>,
) -> Result<Option<Begun>, sqlx::Error> {
    let sql = "select fence_epoch, fence_position, job from state_fence \
               where install = $1 and component = $2";
    let row = sqlx::query(sql).bind(of.install.to_string()).bind(of.component);
    let Some(row) = row.fetch_optional(connection).await? else { return Ok(None) };
    let number = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned);
    let fence = Fence { epoch: number("fence_epoch")?, position: number("fence_position")? };
    let job: Option<String> = row.try_get("job")?;
    Ok(Some(Begun { fence, job: job.and_then(|job| job.parse().ok()) }))
}

/// Raises the fence. Returns false if it is higher already.
pub(super) async fn raise(
    tx: &mut PgConnection,
    of: Of<'_>,
    new: Begun,
) -> Result<bool, sqlx::Error> {
    let sql = "insert into state_fence (install, component, fence_epoch, fence_position, job) \
               values ($1, $2, $3, $4, $5) \
               on conflict (install, component) do update set fence_epoch = excluded.fence_epoch, \
                 fence_position = excluded.fence_position, job = excluded.job \
               where (state_fence.fence_epoch, state_fence.fence_position) \
                 <= (excluded.fence_epoch, excluded.fence_position)";
    let raised = sqlx::query(sql)
        .bind(of.install.to_string())
        .bind(of.component)
        .bind(new.fence.epoch.cast_signed())
        .bind(new.fence.position.cast_signed())
        .bind(new.job.map(|job| job.to_string()))
        .execute(tx)
        .await?;
    Ok(raised.rows_affected() > 0)
}

/// Position of the last event in the database.
pub(crate) async fn log_position(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let position: i64 = sqlx::query_scalar("select position from log_head").fetch_one(pool).await?;
    Ok(position.cast_unsigned())
}
