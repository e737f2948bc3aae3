//! Bulk reads and writes of rows.
use std::collections::{BTreeMap, HashMap};

use event_log::Column;
use sqlx::{
    PgConnection, PgExecutor, Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use crate::{Cell, Projection, Type};

/// Rows by key. `None` means that the row does not exist or is to be deleted.
pub(crate) type Rows<P> = BTreeMap<String, Option<<P as Projection>::Row>>;

/// Loads the existing rows of these keys.
pub(crate) async fn load<P: Projection>(
    connection: &mut PgConnection,
    table: &str,
    keys: &[String],
) -> Result<HashMap<String, P::Row>, sqlx::Error> {
    let sql = format!("select key, data::text as data from {table} where key = any($1)");
    let rows = sqlx::query(&sql).bind(keys).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get("key")?, decode::<P>(row)?))).collect()
}

/// Writes the rows, and deletes those that are `None`.
pub(crate) async fn write<P: Projection>(
    connection: &mut PgConnection,
    table: &str,
    rows: &Rows<P>,
) -> Result<(), sqlx::Error> {
    let mut columns = columns::<P>(rows)?;
    let removed = columns.pop();
    if rows.values().any(Option::is_some) {
        let sql = upsert::<P>(table, "");
        columns.into_iter().fold(sqlx::query(&sql), bind).execute(&mut *connection).await?;
    }
    if let Some(removed) = removed.filter(|_| rows.values().any(Option::is_none)) {
        let sql = remove(table, "", 1);
        bind(sqlx::query(&sql), removed).execute(connection).await?;
    }
    Ok(())
}

/// Builds the upsert statement. `from` is an additional source of its select: `head, ` in an
/// append.
pub(crate) fn upsert<P: Projection>(table: &str, from: &str) -> String {
    let (mut names, mut values, mut arrays, mut sets) =
        (vec!["key", "data"], vec!["u.key".into(), "u.data::json".into()], vec![], vec![]);
    arrays.extend(["$1::text[]".to_string(), "$2::text[]".to_string()]);
    sets.push("data = excluded.data".to_string());
    for (at, (name, kind)) in P::COLUMNS.iter().enumerate() {
        names.push(name);
        values.push(format!("u.{name}"));
        arrays.push(format!("${}::{}[]", at + 3, kind.sql()));
        sets.push(format!("{name} = excluded.{name}"));
    }
    let (names, values) = (names.join(", "), values.join(", "));
    let (arrays, sets) = (arrays.join(", "), sets.join(", "));
    format!(
        "insert into {table} ({names}) select {values} from {from}unnest({arrays}) as u({names}) \
         on conflict (key) do update set {sets}"
    )
}

/// Builds the delete statement. `parameter` is the number of the parameter with the keys.
pub(crate) fn remove(table: &str, from: &str, parameter: usize) -> String {
    format!(
        "delete from {table} t using {from}unnest(${parameter}::text[]) as u(key) \
         where t.key = u.key"
    )
}

/// Returns the arrays of the upsert statement, followed by the keys of the rows to delete.
pub(crate) fn columns<P: Projection>(rows: &Rows<P>) -> Result<Vec<Column>, sqlx::Error> {
    let (mut keys, mut data, mut removed) = (vec![], vec![], vec![]);
    let empty = |(_, kind): &(&str, Type)| match kind {
        Type::Text => Column::Text(vec![]),
        Type::Bigint => Column::Bigint(vec![]),
        Type::Boolean => Column::Boolean(vec![]),
        Type::Time => Column::Time(vec![]),
    };
    let mut cells: Vec<Column> = P::COLUMNS.iter().map(empty).collect();
    for (key, row) in rows {
        let Some(row) = row else {
            removed.push(Some(key.clone()));
            continue;
        };
        keys.push(Some(key.clone()));
        data.push(Some(serde_json::to_string(row).map_err(|e| sqlx::Error::Encode(e.into()))?));
        for (column, cell) in cells.iter_mut().zip(P::cells(row)) {
            push(column, cell)?;
        }
    }
    let mut columns = vec![Column::Text(keys), Column::Text(data)];
    columns.extend(cells);
    columns.push(Column::Text(removed));
    Ok(columns)
}

fn push(column: &mut Column, cell: Cell) -> Result<(), sqlx::Error> {
    match (column, cell) {
        (Column::Text(values), Cell::Text(value)) => values.push(value),
        (Column::Bigint(values), Cell::Bigint(value)) => values.push(value),
        (Column::Boolean(values), Cell::Boolean(value)) => values.push(Some(value)),
        (Column::Time(values), Cell::Time(value)) => values.push(value),
        (
            Column::Text(_)
            | Column::Bigint(_)
            | Column::Integer(_)
            | Column::Boolean(_)
            | Column::Bytes(_)
            | Column::Time(_),
            cell,
        ) => {
            return Err(sqlx::Error::Encode(
                format!("the type of value {cell:?} differs from the type of its column").into(),
            ));
        }
    }
    Ok(())
}

pub(crate) fn bind(
    query: Query<'_, Postgres, PgArguments>,
    column: Column,
) -> Query<'_, Postgres, PgArguments> {
    match column {
        Column::Text(values) => query.bind(values),
        Column::Bigint(values) => query.bind(values),
        Column::Integer(values) => query.bind(values),
        Column::Boolean(values) => query.bind(values),
        Column::Bytes(values) => query.bind(values),
        Column::Time(values) => query.bind(values),
    }
}

/// Selects rows of a projection. `rest` is the SQL after `from projection_<name>`, with the
/// conditions.
pub(crate) async fn select<'q, P: Projection>(
    executor: impl PgExecutor<'_>,
    rest: &str,
    binds: Vec<Cell>,
) -> Result<Vec<P::Row>, sqlx::Error> {
    let sql = format!("select data::text as data from {} {rest}", P::table());
    let query = bound(sqlx::query(&sql), binds);
    query.fetch_all(executor).await?.iter().map(decode::<P>).collect()
}

fn bound(
    query: Query<'_, Postgres, PgArguments>,
    cells: Vec<Cell>,
) -> Query<'_, Postgres, PgArguments> {
    cells.into_iter().fold(query, |query, cell| match cell {
        Cell::Text(value) => query.bind(value),
        Cell::Bigint(value) => query.bind(value),
        Cell::Boolean(value) => query.bind(value),
        Cell::Time(value) => query.bind(value),
    })
}

/// Builds a `where` clause that has only the conditions in use. With `$1 is null or install = $1`,
/// Postgres would not use the index.
#[derive(Debug, Default)]
pub(crate) struct Where {
    conditions: Vec<String>,
    binds: Vec<Cell>,
}

impl Where {
    /// Adds a condition if there is a value for its `?`.
    pub(crate) fn and(mut self, condition: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.binds.push(Cell::text(value));
            self.conditions.push(condition.replace('?', &format!("${}", self.binds.len())));
        }
        self
    }

    /// Adds a condition without a value.
    pub(crate) fn holds(mut self, condition: &str) -> Self {
        self.conditions.push(condition.into());
        self
    }

    /// Returns the first `limit` rows in this order.
    pub(crate) async fn first<P: Projection>(
        mut self,
        executor: impl PgExecutor<'_>,
        order: &str,
        limit: u32,
    ) -> Result<Vec<P::Row>, sqlx::Error> {
        self.binds.push(Cell::number(limit.into()));
        let conditions = match self.conditions.is_empty() {
            true => String::new(),
            false => format!("where {} ", self.conditions.join(" and ")),
        };
        let table = P::table();
        let sql = format!(
            "select data::text as data from {table} {conditions}order by {order} limit ${}",
            self.binds.len()
        );
        // Each execution is planned for its values. A generic plan treats a rare value like a
        // frequent one.
        let query = bound(sqlx::query(&sql).persistent(false), self.binds);
        query.fetch_all(executor).await?.iter().map(decode::<P>).collect()
    }
}

/// Returns the row of a key.
pub(crate) async fn get<P: Projection>(
    executor: impl PgExecutor<'_>,
    key: impl ToString,
) -> Result<Option<P::Row>, sqlx::Error> {
    Ok(select::<P>(executor, "where key = $1", vec![Cell::text(key)]).await?.pop())
}

/// Returns the existing rows of these keys, in one statement. Lists use this function to add data
/// of related objects.
///
/// # Errors
/// If a database operation fails.
pub async fn many<P: Projection>(
    executor: impl PgExecutor<'_>,
    keys: Vec<String>,
) -> Result<HashMap<String, P::Row>, sqlx::Error> {
    let sql = format!("select key, data::text as data from {} where key = any($1)", P::table());
    let rows = sqlx::query(&sql).bind(keys).fetch_all(executor).await?;
    rows.iter().map(|row| Ok((row.try_get("key")?, decode::<P>(row)?))).collect()
}

fn decode<P: Projection>(row: &PgRow) -> Result<P::Row, sqlx::Error> {
    let data: String = row.try_get("data")?;
    serde_json::from_str(&data).map_err(|error| sqlx::Error::Decode(error.into()))
}
