//! From events to rows, for whoever writes them.
use std::collections::HashMap;

use event_log::LogError;
use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{
    Class, Projection, Recorded,
    table::{Rows, load, write},
};

/// How many rows are kept in memory between pages.
const KEPT: usize = 50_000;

/// A view whose kind of row nobody needs to know.
pub(crate) trait View: Send + Sync {
    fn name(&self) -> &'static str;
    fn version(&self) -> i32;
    fn class(&self) -> Class;
    fn table(&self) -> String;
    fn aggregates(&self) -> &'static [&'static str];
    fn columns(&self) -> Vec<&'static str>;
    fn folding(&self) -> Box<dyn Folding>;
}

/// A view being written, with the rows that it wrote last in memory.
pub(crate) trait Folding: Send + Sync {
    /// Bring the rows of a table up to date with these events, which come after all before.
    fn project<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
        table: &'a str,
        events: &'a [&'a Recorded],
    ) -> BoxFuture<'a, Result<(), LogError>>;

    /// Somebody else may have written, or what was written was rolled back.
    fn forget(&mut self);
}

pub(crate) struct Of<P>(pub std::marker::PhantomData<P>);

impl<P: Projection> View for Of<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }
    fn version(&self) -> i32 {
        P::VERSION
    }
    fn class(&self) -> Class {
        P::CLASS
    }
    fn table(&self) -> String {
        P::table()
    }
    fn aggregates(&self) -> &'static [&'static str] {
        P::AGGREGATES
    }
    fn columns(&self) -> Vec<&'static str> {
        P::COLUMNS.iter().map(|(name, _)| *name).collect()
    }
    fn folding(&self) -> Box<dyn Folding> {
        Box::new(Known::<P> { rows: HashMap::new() })
    }
}

struct Known<P: Projection> {
    rows: HashMap<String, Option<P::Row>>,
}

impl<P: Projection> Folding for Known<P> {
    fn project<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
        table: &'a str,
        events: &'a [&'a Recorded],
    ) -> BoxFuture<'a, Result<(), LogError>> {
        Box::pin(async move {
            if self.rows.len() > KEPT {
                self.rows.clear();
            }
            let unknown = unknown::<P>(events, |key| self.rows.contains_key(key));
            if !unknown.is_empty() {
                let mut there = load::<P>(connection, table, &unknown).await?;
                self.rows.extend(unknown.into_iter().map(|key| {
                    let row = there.remove(&key);
                    (key, row)
                }));
            }
            let changed = fold::<P>(events, |key| self.rows.get(key).cloned().flatten());
            write::<P>(connection, table, &changed).await?;
            self.rows.extend(changed);
            Ok(())
        })
    }

    fn forget(&mut self) {
        self.rows.clear();
    }
}

/// The keys whose rows have to be read. A stream's first event finds no row: nothing was before it.
pub(crate) fn unknown<P: Projection>(
    events: &[&Recorded],
    known: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut seen = HashMap::new();
    for event in events {
        for key in P::keys(event) {
            seen.entry(key).or_insert(event.sequence > 1);
        }
    }
    seen.into_iter().filter(|(key, read)| *read && !known(key)).map(|(key, _)| key).collect()
}

/// The rows that these events change, as they are afterwards.
pub(crate) fn fold<P: Projection>(
    events: &[&Recorded],
    before: impl Fn(&str) -> Option<P::Row>,
) -> Rows<P> {
    let mut rows: Rows<P> = Rows::<P>::new();
    for event in events {
        for key in P::keys(event) {
            let row = match rows.remove(&key) {
                Some(row) => row,
                None => before(&key),
            };
            let after = P::apply(&key, row, event);
            rows.insert(key, after);
        }
    }
    rows
}
