//! Partitions of `job_log`, one per day (UTC). The rows of an execution belong to the day on which
//! its id was created.
//!
//! The id of an execution starts with the time of its creation, so each day is a range of ids. A
//! query for one execution reads one partition.
//!
//! Rows of a day without a partition go to `job_log_default`. They move when the partition is
//! created. The role that writes logs therefore needs no right to create tables.
use chrono::{DateTime, Days, NaiveDate, NaiveTime};
use domain::ids::ExecutionId;
use sqlx::{Executor as _, PgExecutor, PgPool};
use ulid::Ulid;

/// Number of days for which a server creates partitions in advance, if it may create tables.
pub const AHEAD: u64 = 7;
/// Number of days for which `stead migrate` creates partitions, because later servers may not
/// create tables.
pub const MIGRATE_AHEAD: u64 = 90;
/// Lock timeout, which limits how long writers of the default partition wait.
const LOCK_TIMEOUT_MS: u32 = 2_000;
/// Time after which the database ends the transaction of an unresponsive server, which releases the
/// lock.
const IDLE_TIMEOUT_MS: u32 = 5_000;

/// Creates the missing partitions: for today, for the next `ahead` days, and for each day with
/// rows in the default partition. Several servers may do so concurrently. Returns the created
/// days.
///
/// # Errors
/// The database rejects the statement: only the owner of the tables may create partitions. If no
/// partition is missing, no statement requires this role.
pub async fn create_missing(
    owner: &PgPool,
    today: NaiveDate,
    ahead: u64,
) -> Result<Vec<NaiveDate>, sqlx::Error> {
    let mut created = vec![];
    for day in (0..=ahead).filter_map(|days| today.checked_add_days(Days::new(days))) {
        created.extend(create_day(owner, day).await?);
    }
    let mut from = String::new();
    while let Some(day) = first_day_in_default(owner, &from).await? {
        // A day whose partition cannot be created stays in the default partition and does not delay
        // later days.
        let Some((_, end)) = id_range(day) else { break };
        from = end.to_string();
        created.extend(create_day(owner, day).await?);
    }
    Ok(created)
}

/// First day with rows in the default partition, from an id on.
async fn first_day_in_default(
    owner: &PgPool,
    from: &str,
) -> Result<Option<NaiveDate>, sqlx::Error> {
    let first = "select min(execution) from job_log_default where execution >= $1";
    let first: Option<String> = sqlx::query_scalar(first).bind(from).fetch_one(owner).await?;
    let first = first.and_then(|first| first.parse().ok());
    Ok(first.and_then(day_of))
}

/// Day (UTC) on which the id of an execution was created.
fn day_of(execution: ExecutionId) -> Option<NaiveDate> {
    let created = i64::try_from(execution.0.timestamp_ms()).ok()?;
    DateTime::from_timestamp_millis(created).map(|created| created.date_naive())
}

/// First id of a day, and first id of the next one.
fn id_range(day: NaiveDate) -> Option<(ExecutionId, ExecutionId)> {
    let first = |day: NaiveDate| {
        let midnight = day.and_time(NaiveTime::MIN).and_utc().timestamp_millis();
        Some(ExecutionId(Ulid::from_parts(u64::try_from(midnight).ok()?, 0)))
    };
    Some((first(day)?, first(day.checked_add_days(Days::new(1))?)?))
}

/// Creates the partition of a day, unless it exists.
async fn create_day(owner: &PgPool, day: NaiveDate) -> Result<Option<NaiveDate>, sqlx::Error> {
    let Some((first, end)) = id_range(day) else { return Ok(None) };
    let table = format!("job_log_{}", day.format("%Y%m%d"));
    if exists(owner, &table).await? {
        return Ok(None);
    }
    let mut tx = owner.begin().await?;
    // The lock blocks other servers, and it blocks inserts into the default partition while rows
    // move. The timeouts end the lock of a stalled server.
    let lock = format!(
        "set local lock_timeout = '{LOCK_TIMEOUT_MS}ms'; \
         set local idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_MS}ms'; \
         lock table job_log_default in access exclusive mode"
    );
    tx.execute(&*lock).await?;
    if exists(&mut *tx, &table).await? {
        return Ok(None);
    }
    // First creates a table and then attaches it. Creating a partition directly would wait for all
    // readers and writers of logs.
    let make = format!(
        "create table {table} (like job_log including all); \
         with moved as (delete from job_log_default \
           where execution >= '{first}' and execution < '{end}' returning *) \
         insert into {table} select * from moved; \
         alter table job_log attach partition {table} for values from ('{first}') to ('{end}')"
    );
    tx.execute(&*make).await?;
    tx.commit().await?;
    Ok(Some(day))
}

/// Returns true if the day has a partition, or if a detached table has its name.
async fn exists(db: impl PgExecutor<'_>, table: &str) -> Result<bool, sqlx::Error> {
    let sql = "select exists (select from pg_inherits \
                   where inhparent = 'job_log'::regclass and inhrelid = taken) \
                 from to_regclass($1) as taken where taken is not null";
    let attached: Option<bool> = sqlx::query_scalar(sql).bind(table).fetch_optional(db).await?;
    if attached == Some(false) {
        tracing::warn!(
            table,
            "A detached table has the name of a partition; logs of that day stay in the default partition"
        );
    }
    Ok(attached.is_some())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use event_log::testing::{Database, fresh_database};

    use super::{
        super::{LogError, LogStore},
        *,
    };

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn begun(at: &str, n: u128) -> ExecutionId {
        let at: DateTime<chrono::Utc> = at.parse().unwrap();
        ExecutionId(Ulid::from_parts(at.timestamp_millis().try_into().unwrap(), n))
    }

    async fn partitions(database: &Database) -> Vec<(String, i64)> {
        let tables = "select inhrelid::regclass::text from pg_inherits \
                      where inhparent = 'job_log'::regclass order by 1";
        let tables: Vec<String> =
            sqlx::query_scalar(tables).fetch_all(&database.pool).await.unwrap();
        let mut all = vec![];
        for table in tables {
            let count = format!("select count(*) from {table}");
            all.push((table, sqlx::query_scalar(&count).fetch_one(&database.pool).await.unwrap()));
        }
        all
    }

    #[test]
    fn day_is_a_range_of_ids() {
        let first = begun("2026-11-21T00:00:00Z", 0);
        let last = begun("2026-11-21T23:59:59.999Z", u128::MAX >> 48);
        let (from, to) = id_range(day("2026-11-21")).unwrap();
        assert_eq!(from, first);
        assert!(last.to_string() < to.to_string() && first.to_string() < last.to_string());
        assert_eq!(
            (day_of(first), day_of(last)),
            (Some(day("2026-11-21")), Some(day("2026-11-21")))
        );
        assert_eq!(day_of(to), Some(day("2026-11-22")));
    }

    #[tokio::test]
    async fn each_execution_is_in_the_partition_of_the_day_it_began() {
        // given days that two servers created concurrently, and bytes of a day without a partition
        let database = fresh_database().await.unwrap();
        let store = LogStore::new(database.pool.clone());
        let early = begun("2026-10-02T23:59:59.999Z", 1);
        store.append(early, 0, Bytes::from_static(b"early")).await.unwrap();
        let today = day("2026-11-21");
        let (one, two) = tokio::join!(
            create_missing(&database.pool, today, 30),
            create_missing(&database.pool, today, 30)
        );
        assert_eq!(one.unwrap().len() + two.unwrap().len(), 32);
        // when executions of several days write, including the early one
        for (at, n) in [("2026-11-21T00:00:00Z", 2), ("2026-11-22T12:00:00Z", 3)] {
            store.append(begun(at, n), 0, Bytes::from_static(b"later")).await.unwrap();
        }
        store.append(early, 5, Bytes::from_static(b" still")).await.unwrap();
        // then each row is in the partition of its day, and no partition is missing
        let with_rows = partitions(&database).await.into_iter().filter(|(_, rows)| *rows > 0);
        let expected = [("job_log_20261002", 2), ("job_log_20261121", 1), ("job_log_20261122", 1)];
        assert_eq!(with_rows.collect::<Vec<_>>(), expected.map(|(name, n)| (name.into(), n)));
        assert_eq!(store.read(early, 0..100).await.unwrap(), "early still");
        assert_eq!(create_missing(&database.pool, today, 30).await.unwrap(), []);
        // and a query for one execution reads one partition
        let sql =
            format!("explain (format text) select * from job_log where execution = '{early}'");
        let plan: Vec<String> = sqlx::query_scalar(&sql).fetch_all(&database.pool).await.unwrap();
        let plan = plan.join("\n");
        let of_the_day = plan.matches("job_log_20261002").count();
        assert!(of_the_day > 0, "{plan}");
        assert_eq!(plan.matches("job_log_2026").count(), of_the_day, "{plan}");
        assert!(!plan.contains("job_log_default"), "{plan}");
        // and dropping a day removes only that day
        sqlx::query("drop table job_log_20261002").execute(&database.pool).await.unwrap();
        assert_eq!(store.length(early).await.unwrap(), 0);
        assert_eq!(store.length(begun("2026-11-21T00:00:00Z", 2)).await.unwrap(), 5);
    }

    #[tokio::test]
    async fn detached_day_does_not_block_later_days() {
        // given a day that an operator detached, and bytes of that day and of a later day
        let database = fresh_database().await.unwrap();
        let store = LogStore::new(database.pool.clone());
        create_missing(&database.pool, day("2026-10-02"), 0).await.unwrap();
        let detach = "alter table job_log detach partition job_log_20261002";
        sqlx::query(detach).execute(&database.pool).await.unwrap();
        for (at, n) in [("2026-10-02T12:00:00Z", 1), ("2026-10-03T12:00:00Z", 2)] {
            store.append(begun(at, n), 0, Bytes::from_static(b"late")).await.unwrap();
        }
        // when partitions are created, then the later day gets one and the detached day stays
        // readable
        let created = create_missing(&database.pool, day("2026-11-21"), 0).await.unwrap();
        assert_eq!(created, [day("2026-11-21"), day("2026-10-03")]);
        let detached = begun("2026-10-02T12:00:00Z", 1);
        assert_eq!(store.read(detached, 0..100).await.unwrap(), "late");
        assert_eq!(create_missing(&database.pool, day("2026-11-21"), 0).await.unwrap(), []);
    }

    #[tokio::test]
    async fn erased_execution_stays_erased_when_its_day_is_dropped() {
        let database = fresh_database().await.unwrap();
        let store = LogStore::new(database.pool.clone());
        let erased = begun("2026-10-02T12:00:00Z", 1);
        create_missing(&database.pool, day("2026-10-02"), 0).await.unwrap();
        store.mark_erased(&[erased.to_string()]).await.unwrap();
        sqlx::query("drop table job_log_20261002").execute(&database.pool).await.unwrap();
        let late = store.append(erased, 0, Bytes::from_static(b"late")).await;
        assert!(matches!(late, Err(LogError::Erased)), "{late:?}");
        assert_eq!(store.not_erased(&[erased.to_string()]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn new_partition_stores_bytes_uncompressed() {
        let database = fresh_database().await.unwrap();
        create_missing(&database.pool, day("2026-11-21"), 0).await.unwrap();
        let sql = "select attstorage::text from pg_attribute \
                   where attrelid = 'job_log_20261121'::regclass and attname = 'bytes'";
        let storage: String = sqlx::query_scalar(sql).fetch_one(&database.pool).await.unwrap();
        assert_eq!(storage, "e");
    }
}
