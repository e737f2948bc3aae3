//! Placeholders in the statement's text: names become numbers, a view's numbers come after ours, lists become values.
use super::sql::{NAMES, Parameter};
use crate::Column;

/// Whether all parameters that a view's statement names have rows.
pub(super) fn has_rows(sql: &str, columns: &[Column]) -> bool {
    let has = |number: usize| number.checked_sub(1).and_then(|at| columns.get(at));
    let numbers = sql.split('$').skip(1).filter_map(|after| {
        after[..after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())].parse().ok()
    });
    { numbers }.all(|number| has(number).is_some_and(|column| !column.is_empty()))
}

/// Values instead of lists: `unnest($1::t[], $2::t[])` becomes `(values ($1::t, $2::t))`, `= any($1::t[])` `= ($1::t)`.
pub(super) fn one_row(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("unnest(") {
        let (lists, after) = after.split_once(')').unwrap_or((after, ""));
        text.push_str(&format!("{before}(values ({lists}))"));
        rest = after;
    }
    text.push_str(rest);
    text.replace("= any(", "= (").replace("[]", "")
}

/// Names become numbers, in order of appearance.
pub(super) fn numbered(sql: &str) -> (String, Vec<Parameter>) {
    let (mut text, mut parameters) = (String::with_capacity(sql.len()), Vec::new());
    let mut rest = sql;
    while let Some(at) = rest.find(':') {
        let (before, after) = rest.split_at(at);
        text.push_str(before);
        let cast = after.starts_with("::");
        let start = if cast { 2 } else { 1 };
        let length = after[start..].find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let end = length.map_or(after.len(), |length| start + length);
        let named = NAMES.iter().find(|(name, _)| !cast && *name == &after[start..end]);
        match named {
            None => text.push_str(&after[..end]),
            Some((_, parameter)) => {
                let known = parameters.iter().position(|known| known == parameter);
                let number = known.unwrap_or_else(|| {
                    parameters.push(*parameter);
                    parameters.len() - 1
                });
                text.push_str(&format!("${}", number + 1));
            }
        }
        rest = &after[end..];
    }
    text.push_str(rest);
    (text, parameters)
}

/// A view's SQL with its parameters moved behind others.
pub(super) fn moved(sql: &str, offset: usize) -> String {
    let mut text = String::with_capacity(sql.len() + 16);
    let mut rest = sql;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        let digits = after[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len() - 1);
        text.push_str(before);
        match after[1..=digits].parse::<usize>() {
            Ok(number) => text.push_str(&format!("${}", number + offset)),
            Err(_) => text.push_str(&after[..=digits]),
        }
        rest = &after[1 + digits..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_view_come_after_ours() {
        let sql = moved("unnest($1::text[], $12::int[]) || '$' || $2", 45);
        assert_eq!(sql, "unnest($46::text[], $57::int[]) || '$' || $47");
    }

    #[test]
    fn lists_of_one_are_a_row() {
        let sql = "from head, unnest($1::text[],\n $2::int[]) as u(a, b) where b = any($3::int[])";
        let row = "from head, (values ($1::text,\n $2::int)) as u(a, b) where b = ($3::int)";
        assert_eq!(one_row(sql), row);
    }

    #[test]
    fn a_statement_without_rows_is_left_out() {
        let columns = [Column::Bigint(vec![Some(1)]), Column::Bigint(vec![])];
        assert!(has_rows("… unnest($1::bigint[])", &columns));
        assert!(!has_rows("… unnest($2::bigint[])", &columns));
        assert!(!has_rows("… unnest($1::bigint[], $2::bigint[])", &columns));
    }

    #[test]
    fn names_become_numbers_and_casts_stay() {
        let (sql, parameters) = numbered("select :turn::bigint, :epoch, :turn::text, ':'");
        assert_eq!(sql, "select $1::bigint, $2, $1::text, ':'");
        assert_eq!(parameters, [Parameter::Turn, Parameter::Epoch]);
    }
}
