//! Idempotency keys: those that commits claim, and those of stale commits.
use chrono::{DateTime, Utc};

use super::builder::{Column, StatementBuilder, Value, table};
use crate::stored::bigint;

/// Key that a commit claims, with the response to store under it.
pub(crate) struct KeyRow {
    pub principal: String,
    pub key: String,
    pub request_hash: [u8; 32],
    pub first: u64,
    pub last: u64,
    pub response: Option<String>,
}

/// Key of a stale commit. The commit may be stale because an earlier attempt wrote it.
pub(crate) struct StaleKey {
    pub principal: String,
    pub key: String,
}

/// SQL aggregate whose JSON [`crate::append::conflicts::UsedKey`] reads.
const REPORT: &str = "json_agg(json_build_object('principal', principal, 'key', idempotency_key, \
    'request_hash', encode(request_hash, 'hex'), 'first', first_position, 'last', last_position, \
    'response', response))";

/// Adds the guard: no claimed key is in use. An expired key is not in use.
pub(super) fn guard(sql: &mut StatementBuilder, keys: &[KeyRow], now: DateTime<Utc>) {
    let columns = [
        ("principal", sql.column(keys.iter().map(|row| &*row.principal))),
        ("key", sql.column(keys.iter().map(|row| &*row.key))),
    ];
    let now = sql.value(now);
    sql.guard("used_key", REPORT, || in_use(columns, now));
}

/// Adds the lookup of stale commits' keys. The lookup prevents no write.
pub(super) fn look_up(sql: &mut StatementBuilder, keys: &[StaleKey], now: DateTime<Utc>) {
    let columns = [
        ("principal", sql.column(keys.iter().map(|row| &*row.principal))),
        ("key", sql.column(keys.iter().map(|row| &*row.key))),
    ];
    let now = sql.value(now);
    sql.report("stale_key", REPORT, || in_use(columns, now));
}

fn in_use(columns: [(&str, Column); 2], now: Value) -> String {
    let keys = table("u", &columns);
    format!(
        "select c.* from {keys}
    join log_command c on c.principal = u.principal and c.idempotency_key = u.key
   where c.expires_at > {now}"
    )
}

/// Adds the insert of the claimed keys. With `replace`, the insert replaces a row with the same
/// key, which the guard has found to be expired.
pub(super) fn insert(
    sql: &mut StatementBuilder,
    keys: &[KeyRow],
    expire_at: DateTime<Utc>,
    replace: bool,
) {
    let columns = [
        ("principal", sql.column(keys.iter().map(|row| &*row.principal))),
        ("key", sql.column(keys.iter().map(|row| &*row.key))),
        ("request_hash", sql.column(keys.iter().map(|row| &row.request_hash[..]))),
        ("first", sql.column(keys.iter().map(|row| bigint(row.first)))),
        ("last", sql.column(keys.iter().map(|row| bigint(row.last)))),
        ("response", sql.column(keys.iter().map(|row| row.response.as_deref()))),
    ];
    let expire_at = sql.value(expire_at);
    sql.cte("command", || {
        let rows = table("u", &columns);
        let conflict = if replace { ON_CONFLICT } else { "" };
        format!(
            "insert into log_command (principal, idempotency_key, request_hash, first_position, last_position,
         response, expires_at)
  select u.principal, u.key, u.request_hash, u.first, u.last, u.response::json, {expire_at}
    from head, {rows}{conflict}"
        )
    });
}

const ON_CONFLICT: &str = "
  on conflict (principal, idempotency_key) do update
     set request_hash = excluded.request_hash, first_position = excluded.first_position,
         last_position = excluded.last_position, response = excluded.response,
         expires_at = excluded.expires_at";
