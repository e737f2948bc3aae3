use sqlx::{PgConnection, PgPool, Row};

use super::ShadowBuild;

impl ShadowBuild {
    /// Creates the indexes of the live table on the shadow table. Creating indexes on existing rows
    /// is much faster than updating them row by row.
    pub(crate) async fn index(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut tx = pool.begin().await?;
        // The lock on the positions excludes a concurrent rebuild of the same projection.
        if self.positions(&mut tx).await?.is_empty() {
            return Ok(());
        }
        let existing = indexes(&mut tx, &self.shadow).await?;
        let mut missing = indexes(&mut tx, &self.live).await?;
        missing.retain(|index| !existing.contains(index));
        for Index { unique, definition } in missing {
            let unique = if unique { "unique " } else { "" };
            let sql = format!("create {unique}index on {} using {definition}", self.shadow);
            sqlx::Executor::execute(&mut *tx, &*sql).await?;
        }
        sqlx::Executor::execute(&mut *tx, &*format!("analyze {}", self.shadow)).await?;
        tx.commit().await
    }
}

#[derive(PartialEq)]
struct Index {
    unique: bool,
    /// Part of the definition after `using`.
    definition: String,
}

/// Returns the indexes of a table, without the primary key.
async fn indexes(connection: &mut PgConnection, table: &str) -> Result<Vec<Index>, sqlx::Error> {
    let rows = sqlx::query(
        "select indisunique, pg_get_indexdef(indexrelid) from pg_index \
         where indrelid = $1::regclass and not indisprimary order by indexrelid",
    )
    .bind(table)
    .fetch_all(connection)
    .await?;
    let index = |row: &sqlx::postgres::PgRow| {
        let (unique, text): (bool, String) = (row.try_get(0)?, row.try_get(1)?);
        let definition = text.split_once(" USING ").map(|(_, definition)| definition.to_owned());
        let unreadable = || sqlx::Error::Decode(format!("unknown index definition: {text}").into());
        Ok(Index { unique, definition: definition.ok_or_else(unreadable)? })
    };
    rows.iter().map(index).collect()
}
