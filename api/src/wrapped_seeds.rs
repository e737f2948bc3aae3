//! Seeds of installs, wrapped for the customer's recovery recipients. The server cannot read them.
//!
//! A runner replaces only its own ones, and those of other runners that contain the same seed: a
//! recipient that the customer removes must not keep one. A runner with new keys, enrolled by mistake,
//! deletes none of a lost host: the vendor can choose to recover them.
use domain::{
    decider::Timestamp,
    ids::{InstallId, RunnerId},
};
use event_log::transaction::completed;
use schemas::runner::{OfferedSeed, WrappedSeed};
use sqlx::{PgPool, Row as _, postgres::PgRow};

/// Maximum number of wrapped seeds that a new host gets.
const MAX_OFFERED: i64 = 100;

/// Replaces the wrapped seeds of a runner. An erased install stores none.
pub(crate) async fn replace(
    pool: &PgPool,
    now: Timestamp,
    (install, runner): (InstallId, RunnerId),
    seeds: &[WrappedSeed],
) -> Result<(), sqlx::Error> {
    let (pool, seeds) = (pool.clone(), seeds.to_vec());
    completed(async move {
        let (install, runner) = (install.to_string(), runner.to_string());
        let kept: Vec<&str> = seeds.iter().map(|seed| seed.recipient.as_str()).collect();
        let mut tx = pool.begin().await?;
        let delete = "delete from wrapped_seed where install = $1 and runner = $2 and recipient <> all($3)";
        sqlx::query(delete).bind(&install).bind(&runner).bind(kept).execute(&mut *tx).await?;
        for seed in &seeds {
            sqlx::query(
                "insert into wrapped_seed (install, runner, recipient, generation, wrapped, stored_at) \
                 select $1::text, $2::text, $3::text, $4::int8, $5::text, $6::timestamptz where not exists \
                   (select from subject_key where subject = $1 and shredded_at is not null) \
                 on conflict (install, runner, recipient) do update \
                   set generation = excluded.generation, wrapped = excluded.wrapped, \
                     stored_at = excluded.stored_at where wrapped_seed.wrapped <> excluded.wrapped",
            )
            .bind(&install)
            .bind(&runner)
            .bind(&seed.recipient)
            .bind(i64::from(seed.generation))
            .bind(&seed.wrapped)
            .bind(now)
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await
    })
    .await
}

/// Deletes the wrapped seeds of these runners of an install.
pub(crate) async fn delete(
    pool: &PgPool,
    install: InstallId,
    runners: &[RunnerId],
) -> Result<(), sqlx::Error> {
    let delete = "delete from wrapped_seed where install = $1 and runner = any($2)";
    let runners: Vec<String> = runners.iter().map(ToString::to_string).collect();
    sqlx::query(delete).bind(install.to_string()).bind(runners).execute(pool).await.map(drop)
}

/// Returns the runners of an install that have wrapped seeds.
pub(crate) async fn runners(
    pool: &PgPool,
    install: InstallId,
) -> Result<Vec<RunnerId>, sqlx::Error> {
    let sql = "select distinct runner from wrapped_seed where install = $1 order by runner";
    let rows = sqlx::query(sql).bind(install.to_string()).fetch_all(pool).await?;
    rows.iter().map(runner).collect()
}

/// Returns the wrapped seeds of these runners of an install, in the order of the runners, the last
/// stored first.
pub(crate) async fn of_runners(
    pool: &PgPool,
    install: InstallId,
    runners: &[RunnerId],
) -> Result<Vec<OfferedSeed>, sqlx::Error> {
    let sql = "select runner, wrapped from wrapped_seed where install = $1 and runner = any($2) \
               order by array_position($2, runner), stored_at desc, recipient limit $3";
    let runners: Vec<String> = runners.iter().map(ToString::to_string).collect();
    let query = sqlx::query(sql).bind(install.to_string()).bind(runners).bind(MAX_OFFERED);
    let rows = query.fetch_all(pool).await?;
    let seed = |row: &PgRow| -> Result<_, sqlx::Error> {
        Ok(OfferedSeed { runner: runner(row)?, wrapped: row.try_get("wrapped")? })
    };
    rows.iter().map(seed).collect()
}

fn runner(row: &PgRow) -> Result<RunnerId, sqlx::Error> {
    let runner: String = row.try_get("runner")?;
    runner.parse().map_err(|why| sqlx::Error::Decode(Box::new(why)))
}

/// Deletes the wrapped seeds of these installs.
pub(crate) async fn erase(pool: &PgPool, installs: &[String]) -> Result<(), sqlx::Error> {
    let delete = "delete from wrapped_seed where install = any($1)";
    sqlx::query(delete).bind(installs).execute(pool).await.map(drop)
}

/// Returns the number of wrapped seeds that [`erase`] would delete.
pub(crate) async fn not_erased(pool: &PgPool, installs: &[String]) -> Result<i64, sqlx::Error> {
    let count = "select count(*) from wrapped_seed where install = any($1)";
    sqlx::query_scalar(count).bind(installs).fetch_one(pool).await
}
