//! Which part of a list, and where the next one starts: a cursor is the id of the last thing given.
use std::{fmt::Display, str::FromStr};

use crate::problem::{Code, Problem};

/// Without a limit.
const USUAL: u32 = 50;
/// The highest limit.
const MOST: u32 = 200;

/// Which part, checked.
pub struct Part<Id> {
    limit: u32,
    /// Go on after this one.
    pub after: Option<Id>,
}

impl<Id: FromStr> Part<Id> {
    /// From what the query says.
    pub fn of(limit: Option<u32>, cursor: Option<String>) -> Result<Self, Problem> {
        let limit = limit.unwrap_or(USUAL);
        if limit == 0 || limit > MOST {
            return Err(Problem::new(Code::BadRequest, format!("limit takes 1 to {MOST}")));
        }
        let bad =
            |_| Problem::new(Code::InvalidCursor, "pass `next` of the answer before as it is");
        let after = cursor.map(|cursor| cursor.parse().map_err(|_| bad(()))).transpose()?;
        Ok(Part { limit, after })
    }

    /// How many rows to read: one more than is given, to know whether there are more.
    pub fn rows(&self) -> u32 {
        self.limit + 1
    }

    /// The rows that are given, and the cursor when there are more.
    pub fn cut<R, K: Display>(
        &self,
        mut rows: Vec<R>,
        id: impl Fn(&R) -> K,
    ) -> (Vec<R>, Option<String>) {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|last| id(last).to_string());
        (rows, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_cursor_exactly_when_there_is_more() {
        let part = Part::<u32>::of(Some(2), None).unwrap();
        assert_eq!(part.rows(), 3);
        assert_eq!(part.cut(vec![7, 8, 9], |n| *n), (vec![7, 8], Some("8".into())));
        assert_eq!(part.cut(vec![7, 8], |n| *n), (vec![7, 8], None));
    }

    #[test]
    fn a_limit_or_cursor_that_is_none_is_refused() {
        for limit in [0, 201] {
            assert!(Part::<u32>::of(Some(limit), None).is_err());
        }
        assert!(Part::<u32>::of(None, Some("x".into())).is_err());
    }
}
