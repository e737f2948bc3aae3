use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use domain::ids::{InstallId, ValueId};
use event_log::testing::fresh_database;
use schemas::secret::{Ciphertext, EncryptedValue};
use sqlx::PgPool;

use super::{MAX_VALUES, delete_unused, installs, of_install, put};

const INSTALL: InstallId = InstallId(ulid::Ulid(7));
const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

fn id(number: u128) -> ValueId {
    ValueId(ulid::Ulid(number))
}

fn value(number: u128, name: &str) -> EncryptedValue {
    let ciphertext = Some(Ciphertext(vec![1; 200]));
    let (name, consumers) = (name.to_owned(), schemas::secret::all_jobs());
    EncryptedValue { id: id(number), name, consumers, signed: false, json: false, ciphertext }
}

async fn stored(pool: &PgPool) -> BTreeSet<ValueId> {
    of_install(pool, INSTALL).await.unwrap().into_keys().collect()
}

/// Stores values, each a number of minutes before the collection.
async fn store(pool: &PgPool, values: &[(u128, &str, i64)]) {
    for (number, name, minutes) in values {
        let at = NOW - TimeDelta::minutes(*minutes);
        put(pool, INSTALL, &[value(*number, name)], at).await.unwrap();
    }
}

#[tokio::test]
async fn a_value_is_deleted_once_it_is_old_and_not_in_use() {
    let database = fresh_database().await.unwrap();
    let pool = &database.pool;
    let (day, month) = (24 * 60, 31 * 24 * 60);
    store(
        pool,
        &[
            (1, "inputs.token", day),
            (2, "inputs.token", 61),
            (3, "inputs.token", 59),
            (4, "outputs.db.password", day),
            (5, "outputs.db.password", 61),
            (6, "outputs.db.gone", month),
        ],
    )
    .await;
    assert_eq!(installs(pool, NOW).await.unwrap(), [INSTALL]);
    let deleted = delete_unused(pool, INSTALL, &BTreeSet::from([id(1)]), NOW).await.unwrap();
    // 1 is in use. 3 may belong to a request that has not ended. A job may still succeed with 5.
    assert_eq!((deleted, stored(pool).await), (3, BTreeSet::from([id(1), id(3), id(5)])));
    assert_eq!(delete_unused(pool, INSTALL, &BTreeSet::from([id(1)]), NOW).await.unwrap(), 0);
}

#[tokio::test]
async fn a_value_of_the_customer_remains() {
    let database = fresh_database().await.unwrap();
    let mut of_customer = value(1, "inputs.license");
    (of_customer.signed, of_customer.ciphertext) = (true, None);
    let at = NOW - TimeDelta::days(90);
    put(&database.pool, INSTALL, &[of_customer], at).await.unwrap();
    assert_eq!(installs(&database.pool, NOW).await.unwrap(), []);
    let none = BTreeSet::new();
    assert_eq!(delete_unused(&database.pool, INSTALL, &none, NOW).await.unwrap(), 0);
}

/// Two users set one input at the same time. No order of storing, events and deletion may remove
/// the value whose event comes last.
#[tokio::test]
async fn a_value_that_was_stored_again_is_new() {
    let database = fresh_database().await.unwrap();
    let pool = &database.pool;
    store(pool, &[(1, "inputs.token", 90), (2, "inputs.token", 90), (1, "inputs.token", 5)]).await;
    let known = of_install(pool, INSTALL).await.unwrap();
    assert!(known[&id(1)].is_new(NOW) && !known[&id(2)].is_new(NOW));
    delete_unused(pool, INSTALL, &BTreeSet::new(), NOW).await.unwrap();
    assert_eq!(stored(pool).await, BTreeSet::from([id(1)]));
}

#[tokio::test]
async fn an_install_has_a_limited_number_of_values() {
    let database = fresh_database().await.unwrap();
    let pool = &database.pool;
    let values: Vec<EncryptedValue> =
        (0..MAX_VALUES).map(|number| value(u128::try_from(number).unwrap(), "inputs.x")).collect();
    put(pool, INSTALL, &values, NOW).await.unwrap();
    let rejected = put(pool, INSTALL, &[value(1 << 40, "inputs.x")], NOW).await.unwrap_err();
    assert!(rejected.detail.contains("2000 values"), "{}", rejected.detail);
    // Storing one of them again is no new value.
    put(pool, INSTALL, &values[..1], NOW).await.unwrap();
}
