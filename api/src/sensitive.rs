//! Sensitive values of installs: their ciphertexts, which the server cannot decrypt. Events refer to
//! a value by its id.
//!
//! A value is stored before the event that refers to it, and these are two transactions. So an event
//! may only refer to a value that was stored within [`REFERENCE_PERIOD`], and a value without a
//! reference is deleted only after [`UNUSED_PERIOD`], which is longer.
use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use domain::{
    ids::{InstallId, ValueId},
    secret::Consumer,
};
use schemas::secret::{Ciphertext, EncryptedValue};
use sqlx::{PgPool, Row as _, postgres::PgRow, types::Json};

use crate::problem::{Code, Problem};

/// Time after the storing of a value in which an event may begin to refer to it.
const REFERENCE_PERIOD: TimeDelta = TimeDelta::minutes(30);
/// Time after the storing of a value from which it is deleted if the install does not refer to it.
pub(crate) const UNUSED_PERIOD: TimeDelta = TimeDelta::hours(1);
/// The same for the newest value of an output: an install refers to it only after its job, which may
/// wait for a user's decision.
const UNUSED_OUTPUT_PERIOD: TimeDelta = TimeDelta::days(30);
/// Maximum number of values of one install, former ones included.
const MAX_VALUES: i64 = 2_000;

/// Value without its ciphertext.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub name: String,
    pub consumers: Vec<Consumer>,
    pub json: bool,
    /// True if the customer set the value on the runner's host.
    pub customer: bool,
    /// Time at which the value was last stored.
    pub stored_at: DateTime<Utc>,
}

impl Known {
    /// Returns whether an event may begin to refer to the value now.
    pub(crate) fn is_new(&self, now: DateTime<Utc>) -> bool {
        now - self.stored_at < REFERENCE_PERIOD
    }
}

/// Values of one install by their ids.
pub(crate) type KnownValues = BTreeMap<ValueId, Known>;

/// Stores values of an install. Storing a value again changes nothing: an install that encrypts the
/// same output again uses the same id.
///
/// # Errors
/// If another value has the id, if the install has too many values, or if its data was erased.
pub(crate) async fn put(
    pool: &PgPool,
    install: InstallId,
    values: &[EncryptedValue],
    now: DateTime<Utc>,
) -> Result<(), Problem> {
    for value in values {
        let (id, name) = (value.id, &value.name);
        if let Some(why) = value.problem() {
            let detail = format!("cannot store the sensitive value {name}: it {why}");
            return Err(Problem::new(Code::Invalid, detail));
        }
        let stored = sqlx::query(
            "insert into sensitive_value \
               (install, id, name, consumers, signed, json, ciphertext, created_at) \
             select $1::text, $2::text, $3::text, $4::jsonb, $5::bool, $6::bool, $7::bytea, \
               $8::timestamptz where not exists \
               (select from subject_key where subject = $1 and shredded_at is not null) \
               and (exists (select from sensitive_value where install = $1 and id = $2) \
                 or (select count(*) from sensitive_value where install = $1) < $9) \
             on conflict (install, id) do update set created_at = excluded.created_at \
               where sensitive_value.name = excluded.name and (sensitive_value.signed \
                 and excluded.signed or sensitive_value.ciphertext = excluded.ciphertext)",
        )
        .bind(install.to_string())
        .bind(id.to_string())
        .bind(name)
        .bind(Json(&value.consumers))
        .bind(value.signed)
        .bind(value.json)
        .bind(value.ciphertext.as_ref().map(|ciphertext| ciphertext.0.as_slice()))
        .bind(now)
        .bind(MAX_VALUES)
        .execute(pool)
        .await?;
        if stored.rows_affected() == 0 {
            let detail = format!(
                "cannot store the sensitive value {name}: another value has the id {id}, the data of {install} was \
                 erased, or it has {MAX_VALUES} values; encrypt the value again, or wait an hour, after which the \
                 server deletes values that are not in use"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
    }
    Ok(())
}

/// Returns the values of an install.
pub(crate) async fn of_install(pool: &PgPool, install: InstallId) -> Result<KnownValues, Problem> {
    let sql = "select id, name, consumers, json, ciphertext is null as customer, created_at \
         from sensitive_value where install = $1";
    let rows = sqlx::query(sql).bind(install.to_string()).fetch_all(pool).await?;
    let known = |row: &PgRow| -> Result<_, Problem> {
        let Json(consumers) = row.try_get("consumers")?;
        let known = Known {
            name: row.try_get("name")?,
            consumers,
            json: row.try_get("json")?,
            customer: row.try_get("customer")?,
            stored_at: row.try_get("created_at")?,
        };
        Ok((id_of(row)?, known))
    };
    rows.iter().map(known).collect()
}

/// Returns values with their ciphertexts. Leaves out those that the install does not have.
pub(crate) async fn fetch(
    pool: &PgPool,
    install: InstallId,
    ids: &[ValueId],
) -> Result<Vec<EncryptedValue>, Problem> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let sql = "select id, name, consumers, signed, json, ciphertext from sensitive_value \
         where install = $1 and id = any($2) order by id";
    let rows = sqlx::query(sql).bind(install.to_string()).bind(ids).fetch_all(pool).await?;
    let value = |row: &PgRow| -> Result<_, Problem> {
        let Json(consumers) = row.try_get("consumers")?;
        let ciphertext: Option<Vec<u8>> = row.try_get("ciphertext")?;
        Ok(EncryptedValue {
            id: id_of(row)?,
            name: row.try_get("name")?,
            consumers,
            signed: row.try_get("signed")?,
            json: row.try_get("json")?,
            ciphertext: ciphertext.map(Ciphertext),
        })
    };
    rows.iter().map(value).collect()
}

/// Returns the installs with values that are deleted if they are not in use.
pub(crate) async fn installs(pool: &PgPool, now: DateTime<Utc>) -> Result<Vec<InstallId>, Problem> {
    let sql = "select distinct install from sensitive_value \
         where ciphertext is not null and created_at < $1";
    let ids: Vec<String> =
        sqlx::query_scalar(sql).bind(now - UNUSED_PERIOD).fetch_all(pool).await?;
    ids.iter().map(|id| id.parse().map_err(Problem::internal)).collect()
}

/// Deletes values that are not in use, and returns their number. Values of the customer have no
/// ciphertext and remain as long as the runner's host has them.
pub(crate) async fn delete_unused(
    pool: &PgPool,
    install: InstallId,
    used: &BTreeSet<ValueId>,
    now: DateTime<Utc>,
) -> Result<u64, Problem> {
    let used: Vec<String> = used.iter().map(ToString::to_string).collect();
    let sql = "delete from sensitive_value as value \
         where install = $1 and ciphertext is not null and id <> all($2) and created_at < $3 \
           and (created_at < $4 or name not like 'outputs.%' or exists \
             (select from sensitive_value as later where later.install = value.install \
                and later.name = value.name and later.created_at > value.created_at))";
    let deleted = sqlx::query(sql)
        .bind(install.to_string())
        .bind(used)
        .bind(now - UNUSED_PERIOD)
        .bind(now - UNUSED_OUTPUT_PERIOD)
        .execute(pool)
        .await?;
    Ok(deleted.rows_affected())
}

/// Deletes the values of the customer that the runner's host no longer has.
pub(crate) async fn delete_removed_by_customer(
    pool: &PgPool,
    install: InstallId,
    kept: &[ValueId],
) -> Result<(), Problem> {
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let sql = "delete from sensitive_value \
         where install = $1 and ciphertext is null and id <> all($2)";
    sqlx::query(sql).bind(install.to_string()).bind(kept).execute(pool).await?;
    Ok(())
}

/// Deletes all values of these installs.
pub(crate) async fn erase(pool: &PgPool, installs: &[String]) -> Result<(), sqlx::Error> {
    let sql = "delete from sensitive_value where install = any($1)";
    sqlx::query(sql).bind(installs).execute(pool).await.map(|_| ())
}

/// Number of the values of these installs.
pub(crate) async fn not_erased(pool: &PgPool, installs: &[String]) -> Result<i64, sqlx::Error> {
    let sql = "select count(*) from sensitive_value where install = any($1)";
    sqlx::query_scalar(sql).bind(installs).fetch_one(pool).await
}

fn id_of(row: &PgRow) -> Result<ValueId, Problem> {
    row.try_get::<String, _>("id")?.parse().map_err(Problem::internal)
}

#[cfg(test)]
mod tests;
