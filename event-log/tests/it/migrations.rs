//! Migrations of tables that another version of the program made.

use event_log::{
    migrate::{MigrateError, check_format, has_application_role, migrate},
    testing::fresh_database,
};

#[tokio::test]
async fn tables_of_a_newer_program_stay_and_the_error_has_the_remedy() {
    let database = fresh_database().await.unwrap();
    assert_eq!(migrate(&database.pool).await.unwrap(), Vec::<String>::new(), "nothing is left");
    let newer =
        "insert into migration (name, sha256, ran_at) values ('9999_later', '\\x00', now())";
    sqlx::raw_sql(newer).execute(&database.pool).await.unwrap();
    let error = migrate(&database.pool).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Unknown(name) if name == "9999_later"), "{error}");
    assert_eq!(
        error.to_string(),
        "cannot migrate the database: a newer Stead ran migration 9999_later; start that version"
    );
}

#[tokio::test]
async fn error_names_a_migration_that_was_changed_after_it_ran() {
    let database = fresh_database().await.unwrap();
    let changed = "update migration set sha256 = '\\x00' where name = (select min(name) from migration) \
                   returning name";
    let name: String = sqlx::query_scalar(changed).fetch_one(&database.pool).await.unwrap();
    let error = migrate(&database.pool).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Changed(which) if *which == name), "{error}");
    assert!(error.to_string().contains("start the version of Stead that ran it"), "{error}");
}

#[tokio::test]
async fn application_role_is_detected() {
    let database = fresh_database().await.unwrap();
    let role: bool =
        sqlx::query_scalar("select exists (select from pg_roles where rolname = 'stead_app')")
            .fetch_one(&database.pool)
            .await
            .unwrap();
    assert_eq!(has_application_role(&database.pool).await.unwrap(), role);
}

#[tokio::test]
async fn log_of_a_pre_release_version_is_rejected() {
    let database = fresh_database().await.unwrap();
    let old = "alter table log_head rename column format to layout; \
               alter table log_head rename column fence to turn; update log_head set layout = 2";
    sqlx::raw_sql(old).execute(&database.pool).await.unwrap();
    let message = "cannot open the log: it was written by a pre-release version (format 2, this program reads 3); \
                   create a new database or restore with that version";
    let refused = migrate(&database.pool).await.unwrap_err();
    assert_eq!(refused.to_string(), message);
    let refused = database.log().await.err().unwrap();
    assert_eq!(refused.to_string(), message);
    let mut connection = database.pool.acquire().await.unwrap();
    let refused = check_format(&mut connection).await.unwrap_err();
    assert_eq!(refused.to_string(), message);
    // For a log of a later version, the error says that a newer version migrated it.
    let later =
        "alter table log_head rename column layout to format; update log_head set format = 4";
    sqlx::raw_sql(later).execute(&mut *connection).await.unwrap();
    let refused = check_format(&mut connection).await.unwrap_err().to_string();
    assert!(
        refused.contains("a newer version migrated it (format 4, this program reads 3)"),
        "{refused}"
    );
    sqlx::raw_sql("drop table log_head").execute(&mut *connection).await.unwrap();
    check_format(&mut connection).await.unwrap();
}
