//! Sensitive values of installs: their ciphertexts, which the server cannot decrypt. Events refer to
//! a value by its id.
//!
//! A value is stored before the event that refers to it. Values that the install no longer refers to
//! are deleted with the next value of the same name.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::{
    ids::{InstallId, ValueId},
    secret::Consumer,
};
use schemas::secret::{Ciphertext, EncryptedValue};
use sqlx::{PgPool, Row as _, postgres::PgRow, types::Json};

use crate::problem::{Code, Problem};

/// Value without its ciphertext.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub name: String,
    pub consumers: Vec<Consumer>,
    pub json: bool,
    /// True if the customer set the value on the runner's host.
    pub customer: bool,
}

/// Values of one install by their ids.
pub(crate) type KnownValues = BTreeMap<ValueId, Known>;

/// Stores values of an install. Storing a value again changes nothing: an install that encrypts the
/// same output again uses the same id.
///
/// # Errors
/// If another value has the id, or if the data of the install was erased.
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
             on conflict (install, id) do update set created_at = sensitive_value.created_at \
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
        .execute(pool)
        .await?;
        if stored.rows_affected() == 0 {
            let detail = format!(
                "cannot store the sensitive value {name}: another value has the id {id}, or the data of \
                 {install} was erased; encrypt the value again"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
    }
    Ok(())
}

/// Returns the values of an install.
pub(crate) async fn of_install(pool: &PgPool, install: InstallId) -> Result<KnownValues, Problem> {
    let sql = "select id, name, consumers, json, ciphertext is null as customer \
         from sensitive_value where install = $1";
    let rows = sqlx::query(sql).bind(install.to_string()).fetch_all(pool).await?;
    let known = |row: &PgRow| -> Result<_, Problem> {
        let Json(consumers) = row.try_get("consumers")?;
        let known = Known {
            name: row.try_get("name")?,
            consumers,
            json: row.try_get("json")?,
            customer: row.try_get("customer")?,
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

/// Deletes the values with this name, except these.
pub(crate) async fn delete_others(
    pool: &PgPool,
    install: InstallId,
    name: &str,
    kept: &[ValueId],
) -> Result<(), Problem> {
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let sql = "delete from sensitive_value where install = $1 and name = $2 and id <> all($3)";
    sqlx::query(sql).bind(install.to_string()).bind(name).bind(kept).execute(pool).await?;
    Ok(())
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
