//! Forward-only migrations of the tables. Each file runs once. All new files run in one
//! transaction.
use proof::chain;
use sqlx::{PgConnection, PgExecutor, PgPool, Row};

use crate::{
    Clock, FormatMismatch, LogError, connect::SCHEMA, ids::new_ulid,
    partitions::keep_from_application,
};

#[cfg(feature = "fault-injection")]
mod next;

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Format of the tables and events that this program reads and writes. A migration increments it if
/// older programs must not write to the migrated tables.
pub const FORMAT: i32 = 3;
/// Format of the first release. Logs of a lower format are from pre-release versions, and no
/// migration converts them.
pub(crate) const FIRST_RELEASED: i32 = 3;

/// Returns [`FORMAT`], or the next one in a test of a rolling update.
pub fn format() -> i32 {
    #[cfg(feature = "fault-injection")]
    if next::is_enabled() {
        return next::FORMAT;
    }
    FORMAT
}

/// Name and SQL of a migration.
type File = (&'static str, &'static str);

/// The migrations of this program, in order.
fn files() -> Vec<File> {
    #[cfg(feature = "fault-injection")]
    if next::is_enabled() {
        return [MIGRATIONS, &[next::MIGRATION]].concat();
    }
    MIGRATIONS.to_vec()
}

/// Maximum number of attempts if another program creates the same tables concurrently.
const TRIES: u32 = 5;

/// Database role of servers. It can neither change nor delete an event.
pub const APPLICATION_ROLE: &str = "stead_app";
const GRANTS: &str = "
    grant usage on schema stead to stead_app;
    grant select, insert, update, delete on all tables in schema stead to stead_app;
    revoke update, delete on log_event, log_node, log_checkpoint, blob, migration from stead_app;
    revoke update, delete on log_checkpoint_key from stead_app;
    grant update (valid_until, last_size) on log_checkpoint_key to stead_app;
    revoke insert on migration from stead_app;
    revoke insert, update, delete on log_archive from stead_app;
    revoke update, delete on erased_execution from stead_app;
    revoke insert, delete on log_head from stead_app";

/// Reasons why the tables cannot be migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A database operation failed, or the database rejected a migration.
    #[error("cannot migrate the database: {0}")]
    Database(#[from] sqlx::Error),
    /// A migration file was changed after it ran.
    #[error(
        "cannot migrate the database: migration {0} has changed since it ran; start the version of Stead that ran it"
    )]
    Changed(String),
    /// A newer program migrated the database.
    #[error("cannot migrate the database: a newer Stead ran migration {0}; start that version")]
    Unknown(String),
    /// The log was written by a pre-release version.
    #[error(transparent)]
    Format(#[from] FormatMismatch),
}

/// Migrates the tables and creates the log if there is none. Several programs may call this
/// concurrently and repeatedly. Returns the names of the migrations that ran.
///
/// # Errors
/// [`MigrateError`].
pub async fn migrate(pool: &PgPool) -> Result<Vec<String>, MigrateError> {
    let format_of_log = found_format(&mut *pool.acquire().await?).await?;
    if let Some(found) = format_of_log.filter(|format| *format < FIRST_RELEASED) {
        return Err(FormatMismatch { known: format(), found }.into());
    }
    let ran = tables(pool).await?;
    found(pool).await?;
    Ok(ran)
}

/// Checks that the log of this database, if there is one, has the format that this program reads.
///
/// # Errors
/// [`LogError::Format`], or a database operation fails.
pub async fn check_format(connection: &mut PgConnection) -> Result<(), LogError> {
    check_format_is(connection, format()).await
}

pub(crate) async fn check_format_is(
    connection: &mut PgConnection,
    known: i32,
) -> Result<(), LogError> {
    match found_format(connection).await? {
        Some(found) if found != known => Err(FormatMismatch { known, found }.into()),
        Some(_) | None => Ok(()),
    }
}

/// Returns the format of the log, or `None` if the database has no log.
async fn found_format(connection: &mut PgConnection) -> Result<Option<i32>, sqlx::Error> {
    let exists = sqlx::query_scalar("select to_regclass('log_head') is not null");
    if !exists.fetch_one(&mut *connection).await? {
        return Ok(None);
    }
    // Before the first release the column was called `layout`. The query converts the row to JSON,
    // where a missing column is null instead of an error.
    let format = "select coalesce(head->>'format', head->>'layout')::integer \
                  from (select to_jsonb(h) as head from log_head h) as row";
    sqlx::query_scalar(format).fetch_optional(connection).await
}

/// Migrates the tables without creating a log.
pub(crate) async fn tables(pool: &PgPool) -> Result<Vec<String>, MigrateError> {
    let mut tries = 1;
    loop {
        match try_migrate(pool, &files()).await {
            Err(MigrateError::Database(error)) if is_race(&error) && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// Returns true if another program may have created the schema or the migration table concurrently.
/// `if not exists` checks before it creates, and only an existing table can be locked.
fn is_race(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "23505" | "42P06" | "42P07"))
}

async fn try_migrate(pool: &PgPool, files: &[File]) -> Result<Vec<String>, MigrateError> {
    let mut tx = pool.begin().await?;
    prepare(&mut tx).await?;
    let known =
        sqlx::query("select name, sha256 from migration order by name").fetch_all(&mut *tx).await?;
    let mut ran = Vec::new();
    for row in &known {
        let (name, sha256): (String, Vec<u8>) = (row.try_get("name")?, row.try_get("sha256")?);
        match files.iter().find(|(ours, _)| *ours == name) {
            None => return Err(MigrateError::Unknown(name)),
            Some((_, sql)) if proof::sha256(sql.as_bytes())[..] != sha256[..] => {
                return Err(MigrateError::Changed(name));
            }
            Some(_) => ran.push(name),
        }
    }
    let mut new = Vec::new();
    for (name, sql) in files.iter().filter(|(name, _)| ran.iter().all(|old| old != name)) {
        sqlx::raw_sql(sql).execute(&mut *tx).await?;
        sqlx::query("insert into migration (name, sha256, ran_at) values ($1, $2, now())")
            .bind(*name)
            .bind(&proof::sha256(sql.as_bytes())[..])
            .execute(&mut *tx)
            .await?;
        new.push((*name).to_owned());
    }
    if has_application_role(&mut *tx).await? {
        sqlx::raw_sql(GRANTS).execute(&mut *tx).await?;
        keep_from_application(&mut tx).await?;
    }
    tx.commit().await?;
    Ok(new)
}

/// Returns true if the database role of servers exists. Without it, servers must connect as
/// the owner, which can change events.
///
/// # Errors
/// A database operation failed.
pub async fn has_application_role(connection: impl PgExecutor<'_>) -> Result<bool, sqlx::Error> {
    let role = sqlx::query("select 1 from pg_roles where rolname = $1").bind(APPLICATION_ROLE);
    Ok(role.fetch_optional(connection).await?.is_some())
}

/// Creates the schema and the migration table, and locks the table until the transaction ends.
async fn prepare(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let schema = sqlx::query("select 1 from pg_namespace where nspname = $1").bind(SCHEMA);
    // The check is necessary because `create … if not exists` needs the create privilege even if
    // the schema exists.
    if schema.fetch_optional(&mut *connection).await?.is_none() {
        let create = format!("create schema if not exists {SCHEMA}");
        sqlx::raw_sql(&create).execute(&mut *connection).await?;
    }
    let list = "create table if not exists migration (name text not null primary key, \
                sha256 bytea not null, ran_at timestamptz not null); \
                lock table migration in exclusive mode";
    sqlx::raw_sql(list).execute(connection).await?;
    Ok(())
}

/// Creates the log, if the database has none.
pub(crate) async fn found(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::raw_sql("lock table migration in exclusive mode").execute(&mut *tx).await?;
    let log_id = new_ulid().to_string();
    sqlx::query(
        "insert into log_head (log_id, position, commit_no, fence, epoch, format, chain, recorded_at) \
         select $1, 0, 0, 0, 1, $2, $3, $4 where not exists (select 1 from log_head)",
    )
    .bind(&log_id)
    .bind(format())
    .bind(&chain::genesis(&log_id)[..])
    .bind(Clock::system().now())
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fresh_empty_database;

    #[tokio::test]
    async fn later_migration_runs_once_and_then_rejects_an_earlier_program() {
        let database = fresh_empty_database().await.unwrap();
        let first = files();
        let later = [&first[..], &[("9999_later", "create table later (id bigint)")]].concat();
        let all: Vec<_> = first.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(try_migrate(&database.pool, &first).await.unwrap(), all);
        assert_eq!(try_migrate(&database.pool, &later).await.unwrap(), ["9999_later"]);
        assert_eq!(try_migrate(&database.pool, &later).await.unwrap(), [] as [String; 0]);
        sqlx::query("select id from later").fetch_all(&database.pool).await.unwrap();
        let error = try_migrate(&database.pool, &first).await.unwrap_err();
        assert!(matches!(&error, MigrateError::Unknown(name) if name == "9999_later"));
    }
}
