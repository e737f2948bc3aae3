//! SQL of inline projections. Each projection numbers its parameters from `$1` and writes its SQL
//! for arrays.
//!
//! The SQL is split at its parameters once, at start. Each append statement then inserts its own
//! parameter numbers.
use super::builder::StatementBuilder;
use crate::Column;

/// Rows that one inline projection writes with a batch.
pub(crate) struct InlineRows {
    /// Index of the projection.
    pub projection: usize,
    /// Values of the projection's parameters.
    pub columns: Vec<Column>,
}

/// SQL of one statement, split at its parameters.
pub(super) struct InlineStatement {
    pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Parameter of the projection, from 1.
    Parameter(usize),
    /// SQL that differs between a list of rows and one row.
    Rows {
        many: &'static str,
        one: &'static str,
    },
}

/// SQL for arrays, with its replacement for one row: `unnest($1::t[])` becomes `(values ($1::t))`,
/// and `= any($1::t[])` becomes `= ($1::t)`.
const FORMS: [(&str, &str); 4] =
    [("unnest(", "(values ("), (UNNEST_END, "))"), ("= any(", "= ("), ("[]", "")];
const UNNEST_END: &str = ")";

impl InlineStatement {
    pub(super) fn parse(sql: &str) -> InlineStatement {
        let (mut pieces, mut text) = (Vec::new(), String::new());
        let (mut rest, mut in_unnest) = (sql, false);
        while let Some(first) = rest.chars().next() {
            let Some((piece, length)) = Piece::at_start(rest, in_unnest) else {
                text.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            };
            if let Piece::Rows { many, .. } = piece {
                in_unnest = many == "unnest(" || (in_unnest && many != UNNEST_END);
            }
            pieces.extend([Piece::Text(std::mem::take(&mut text)), piece]);
            rest = &rest[length..];
        }
        pieces.push(Piece::Text(text));
        InlineStatement { pieces }
    }

    /// Returns true if all parameters of the statement have rows.
    pub(super) fn has_rows(&self, columns: &[Column]) -> bool {
        self.pieces.iter().all(|piece| match piece {
            Piece::Text(_) | Piece::Rows { .. } => true,
            Piece::Parameter(number) => {
                let column = number.checked_sub(1).and_then(|at| columns.get(at));
                column.is_some_and(|column| !column.is_empty())
            }
        })
    }

    /// Returns the SQL for an append statement in which `before` other values precede those of the
    /// projection.
    fn sql(&self, before: usize, one_row: bool) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Parameter(number) => format!("${}", number + before),
            Piece::Rows { many, one } => String::from(if one_row { *one } else { *many }),
        };
        self.pieces.iter().map(piece).collect()
    }
}

impl Piece {
    /// Returns the parameter or the array form at the start of `sql`, with its length. `None` if
    /// `sql` starts with other text.
    fn at_start(sql: &str, in_unnest: bool) -> Option<(Piece, usize)> {
        if let Some(after) = sql.strip_prefix('$') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let number = after[..digits].parse().ok()?;
            return Some((Piece::Parameter(number), 1 + digits));
        }
        let mut forms = FORMS.into_iter().filter(|(many, _)| in_unnest || *many != UNNEST_END);
        let (many, one) = forms.find(|(many, _)| sql.starts_with(many))?;
        Some((Piece::Rows { many, one }, many.len()))
    }
}

/// Binds the rows of a projection and adds those of its statements that have rows.
pub(super) fn push<'a>(
    sql: &mut StatementBuilder,
    rows: InlineRows,
    statements: impl Iterator<Item = (usize, &'a InlineStatement)>,
) {
    let before = sql.bound();
    for column in rows.columns {
        match column {
            Column::Text(values) => sql.column(values),
            Column::Bigint(values) => sql.column(values),
            Column::Integer(values) => sql.column(values),
            Column::Boolean(values) => sql.column(values),
            Column::Bytes(values) => sql.column(values),
            Column::Time(values) => sql.column(values),
        };
    }
    let (projection, one_row) = (rows.projection, sql.one_row());
    sql.with_text(|text| {
        for (number, statement) in statements {
            let name = format!("inline_{projection}_{number}");
            text.cte(&name, &statement.sql(before, one_row));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_projection_follow_others() {
        let sql = "unnest($1::text[], $12::int[]) || '$' || $2";
        let moved = "unnest($46::text[], $57::int[]) || '$' || $47";
        assert_eq!(InlineStatement::parse(sql).sql(45, false), moved);
        assert_eq!(InlineStatement::parse(sql).sql(0, false), sql);
    }

    #[test]
    fn arrays_of_one_become_a_row() {
        let sql = "from head, unnest($1::text[],\n $2::int[]) as u(a, b) where b = any($3::int[])";
        let row = "from head, (values ($1::text,\n $2::int)) as u(a, b) where b = ($3::int)";
        assert_eq!(InlineStatement::parse(sql).sql(0, true), row);
    }

    #[test]
    fn a_statement_without_rows_is_left_out() {
        let columns = [Column::Bigint(vec![Some(1)]), Column::Bigint(vec![])];
        let has_rows = |sql| InlineStatement::parse(sql).has_rows(&columns);
        assert!(has_rows("… unnest($1::bigint[])"));
        assert!(!has_rows("… unnest($2::bigint[])"));
        assert!(!has_rows("… unnest($1::bigint[], $2::bigint[])"));
        assert!(!has_rows("… unnest($3::bigint[])"));
    }
}
