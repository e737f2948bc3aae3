//! Pagination. A cursor is the id of the last item of a page.
use std::{fmt::Display, str::FromStr};

use crate::problem::{Code, Problem};

/// Page size if the request has no limit.
const DEFAULT_LIMIT: u32 = 50;
/// Largest page size that a request can set.
const MAX_LIMIT: u32 = 200;

/// Validated limit and cursor of a list request.
pub(super) struct PageRequest<Id> {
    limit: u32,
    /// Id after which the page starts.
    pub after: Option<Id>,
}

impl<Id: FromStr> PageRequest<Id> {
    /// Validates the parameters of the query.
    pub(super) fn of(limit: Option<u32>, cursor: Option<String>) -> Result<Self, Problem> {
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(Problem::new(
                Code::BadRequest,
                format!("invalid limit {limit}: it must be between 1 and {MAX_LIMIT}"),
            ));
        }
        let bad = |_| {
            Problem::new(
                Code::InvalidCursor,
                "invalid cursor: it cannot be parsed; pass `next` of the previous page unchanged",
            )
        };
        let after = cursor.map(|cursor| cursor.parse().map_err(|_| bad(()))).transpose()?;
        Ok(PageRequest { limit, after })
    }

    /// Number of rows to read: one more than the limit, to detect a further page.
    pub(super) fn query_limit(&self) -> u32 {
        self.limit + 1
    }

    /// Returns the rows of the page, and the cursor if there are more.
    pub(super) fn page<R, K: Display>(
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
    fn cursor_exists_only_if_there_are_more_rows() {
        let part = PageRequest::<u32>::of(Some(2), None).unwrap();
        assert_eq!(part.query_limit(), 3);
        assert_eq!(part.page(vec![7, 8, 9], |n| *n), (vec![7, 8], Some("8".into())));
        assert_eq!(part.page(vec![7, 8], |n| *n), (vec![7, 8], None));
    }

    #[test]
    fn invalid_limit_or_cursor_is_rejected() {
        for limit in [0, 201] {
            assert!(PageRequest::<u32>::of(Some(limit), None).is_err());
        }
        assert!(PageRequest::<u32>::of(None, Some("x".into())).is_err());
    }
}
