//! What a program does with tables that another version of it made.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]
use crate::support;

use event_log::{
    migrate::{MigrateError, has_application_role, migrate},
    testing::fresh_database,
};

#[tokio::test]
async fn tables_of_a_newer_program_are_left_as_they_are_and_it_is_said_what_to_start() {
    let database = fresh_database().await.unwrap();
    assert_eq!(migrate(&database.pool).await.unwrap(), Vec::<String>::new(), "nothing is left");
    let newer =
        "insert into migration (name, sha256, ran_at) values ('9999_later', '\\x00', now())";
    sqlx::raw_sql(newer).execute(&database.pool).await.unwrap();
    let error = migrate(&database.pool).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Unknown(name) if name == "9999_later"), "{error}");
    assert_eq!(
        error.to_string(),
        "the database was migrated by a newer Stead (migration 9999_later); start that version"
    );
}

#[tokio::test]
async fn a_migration_that_was_changed_after_it_ran_is_named() {
    let database = fresh_database().await.unwrap();
    let changed = "update migration set sha256 = '\\x00' where name = (select min(name) from migration) \
                   returning name";
    let name: String = sqlx::query_scalar(changed).fetch_one(&database.pool).await.unwrap();
    let error = migrate(&database.pool).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Changed(which) if *which == name), "{error}");
    assert!(error.to_string().contains("start the version of Stead that ran it"), "{error}");
}

#[tokio::test]
async fn whether_servers_have_a_role_is_known() {
    let database = fresh_database().await.unwrap();
    let role: bool =
        sqlx::query_scalar("select exists (select from pg_roles where rolname = 'stead_app')")
            .fetch_one(&database.pool)
            .await
            .unwrap();
    assert_eq!(has_application_role(&database.pool).await.unwrap(), role);
}
