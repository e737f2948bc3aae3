//! Builder of the append statement: a parameter gets its number when its value is bound.
//!
//! A part of the statement binds its values and uses the returned parameters in its SQL, so each
//! parameter number matches its value. The text of a statement depends only on its shape. It is
//! written once per shape, and later statements of that shape only bind.
use std::fmt::{self, Display};

use sqlx::{
    Arguments, Encode, Postgres, Type,
    error::BoxDynError,
    postgres::{PgArguments, PgHasArrayType},
};

/// Parameter for a single value. Displays as its placeholder, `$n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value(usize);

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.0)
    }
}

/// Parameter for one column of rows: an array, or in a one-row statement the value itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    value: Value,
    one_row: bool,
}

impl Column {
    /// SQL condition that the column contains the value of an expression.
    pub(super) fn contains(self, expression: &str) -> String {
        let Column { value, one_row } = self;
        if one_row {
            format!("{expression} = {value}")
        } else {
            format!("{expression} = any({value})")
        }
    }
}

/// Table expression over named columns of equal length: `unnest($1, $2) as u(a, b)`, or for one row
/// `(values ($1, $2)) as u(a, b)`.
pub(super) fn table(alias: &str, columns: &[(&str, Column)]) -> String {
    let join = |of: &dyn Fn(&(&str, Column)) -> String| -> String {
        columns.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let names = join(&|(name, _)| (*name).to_owned());
    let values = join(&|(_, column)| column.value.to_string());
    if columns.iter().all(|(_, column)| column.one_row) {
        format!("(values ({values})) as {alias}({names})")
    } else {
        format!("unnest({values}) as {alias}({names})")
    }
}

pub(super) struct StatementBuilder {
    /// SQL text; `None` if the text of this shape is cached.
    text: Option<Text>,
    /// Bound values, or the error if the client cannot encode one of them.
    values: Result<PgArguments, BoxDynError>,
    bound: usize,
    one_row: bool,
}

/// Text of a statement under construction.
#[derive(Default)]
pub(in crate::append) struct Text {
    sql: String,
    /// Names of the common table expressions that must be empty for the batch to be written.
    guards: Vec<&'static str>,
    /// Name and aggregate of each common table expression whose rows the statement returns.
    reports: Vec<(&'static str, &'static str)>,
}

impl StatementBuilder {
    /// Builder of text and values.
    pub(super) fn new(one_row: bool) -> StatementBuilder {
        StatementBuilder { text: Some(Text::default()), ..StatementBuilder::values_only(one_row) }
    }

    /// Builder of the values for a cached text.
    pub(super) fn values_only(one_row: bool) -> StatementBuilder {
        StatementBuilder { text: None, values: Ok(PgArguments::default()), bound: 0, one_row }
    }

    /// Binds a single value.
    pub(super) fn value<'q, T>(&mut self, value: T) -> Value
    where
        T: 'q + Encode<'q, Postgres> + Type<Postgres>,
    {
        if let Ok(values) = &mut self.values
            && let Err(error) = values.add(value)
        {
            self.values = Err(error);
        }
        self.bound += 1;
        Value(self.bound)
    }

    /// Binds one column of rows.
    pub(super) fn column<'q, T>(&mut self, rows: impl IntoIterator<Item = T>) -> Column
    where
        T: 'q + Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        let mut rows = rows.into_iter();
        let one_row = self.one_row;
        let value =
            if one_row { self.value(rows.next()) } else { self.value(rows.collect::<Vec<_>>()) };
        Column { value, one_row }
    }

    /// Adds a common table expression.
    pub(super) fn cte(&mut self, name: &str, body: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            text.cte(name, &body());
        }
    }

    /// Adds a guard: a common table expression of conflicts. Any row in it prevents the write.
    /// `report` is the SQL aggregate that returns the rows as JSON.
    pub(super) fn guard(
        &mut self,
        name: &'static str,
        report: &'static str,
        body: impl FnOnce() -> String,
    ) {
        if let Some(text) = &mut self.text {
            text.guards.push(name);
        }
        self.report(name, report, body);
    }

    /// Adds a common table expression whose rows the statement returns. `report` is the SQL
    /// aggregate that converts them to JSON.
    pub(super) fn report(
        &mut self,
        name: &'static str,
        report: &'static str,
        body: impl FnOnce() -> String,
    ) {
        if let Some(text) = &mut self.text {
            text.reports.push((name, report));
            text.cte(name, &body());
        }
    }

    /// Adds SQL that depends on the preceding text. Does nothing if the text is cached.
    pub(super) fn with_text(&mut self, write: impl FnOnce(&mut Text)) {
        if let Some(text) = &mut self.text {
            write(text);
        }
    }

    /// Number of values so far, which is the number of the last parameter.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Returns true if every column binds one value instead of an array, because the statement
    /// writes one row.
    pub(super) fn one_row(&self) -> bool {
        self.one_row
    }

    /// Returns the text, unless it is cached, and the values.
    pub(super) fn finish(self) -> (Option<String>, Result<PgArguments, sqlx::Error>) {
        (self.text.map(|text| text.sql), self.values.map_err(sqlx::Error::Encode))
    }
}

impl Text {
    /// Adds a common table expression.
    pub(super) fn cte(&mut self, name: &str, body: &str) {
        let before = if self.sql.is_empty() { "with " } else { ",\n" };
        self.sql.extend([before, name, " as (", body, ")"]);
    }

    /// SQL condition that all guards are met.
    pub(super) fn guards_are_met(&self) -> String {
        if self.guards.is_empty() {
            return "true".to_owned();
        }
        let empty = self.guards.iter().map(|name| format!("not exists (select 1 from {name})"));
        empty.collect::<Vec<_>>().join(" and ")
    }

    /// Adds the final select: the column `first`, and one column per name in `reports`. A column is
    /// null if the statement has no common table expression of that name.
    pub(in crate::append) fn select(&mut self, first: &str, reports: &[&str]) {
        self.sql.extend(["\nselect ", first]);
        for name in reports {
            let report = self.reports.iter().find(|(report, _)| report == name);
            self.sql.push_str(&match report {
                Some((_, report)) => format!(",\n(select {report} from {name})::text as {name}"),
                None => format!(",\nnull::text as {name}"),
            });
        }
    }
}
