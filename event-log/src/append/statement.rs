//! The one statement: all guards, the head's compare-and-set, all writes. One round trip, one fsync.
use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sqlx::{
    PgConnection, Row,
    postgres::{PgDatabaseError, PgRow, PgSeverity},
};

use super::{
    batch::{Batch, Ride},
    bind::{Bound, Expected},
    culprits::{Culprits, Known},
    head::{Head, within},
    placeholders,
    sql::{self, Check, Parameter, Parts},
};
use crate::{Column, SyncView};

/// What became of a batch.
pub(crate) enum Sent {
    /// It is durable, but for those that were known to come too late.
    Committed(Culprits),
    /// Nothing was written, because of these.
    Culprits(Culprits),
    /// Nothing was written, because the head is not where we thought.
    Moved,
    /// Nothing was written, because a stream or key that was trusted to be new is not: ask.
    Distrusted,
    /// Nothing was written, because the database says so.
    Refused(sqlx::Error),
    /// Nobody knows.
    InDoubt(sqlx::Error),
}

/// The texts that were sent so far: one per combination of parts.
pub(crate) struct Statement {
    /// For each view its statements.
    views: Vec<Vec<String>>,
    texts: HashMap<(Parts, Vec<Statements>), Text>,
}

/// Which view, and which of its statements.
type Statements = (usize, Vec<usize>);

#[derive(Clone)]
struct Text {
    sql: Arc<str>,
    parameters: Arc<[Parameter]>,
    /// Whether it takes values instead of lists.
    single: bool,
}

impl Statement {
    pub(crate) fn of(views: &[Arc<dyn SyncView>]) -> Statement {
        let views = views.iter().map(|view| view.statements()).collect();
        Statement { views, texts: HashMap::new() }
    }

    /// Send a batch and wait until the database has said everything it has to say about it.
    pub(crate) fn send<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
        before: &'a Head,
        batch: &'a Batch,
        rides: Vec<Ride>,
        (layout, check, answer): (i32, Check, Duration),
    ) -> BoxFuture<'a, Sent> {
        let Text { sql, parameters, single } = self.text(batch, check, &rides);
        Box::pin(async move {
            let expected = Expected { before, layout, check };
            let mut bound = Bound::of(&sql, single);
            for parameter in parameters.iter() {
                bound = bound.bind(*parameter, &expected, batch);
            }
            for column in rides.into_iter().flat_map(|ride| ride.columns) {
                bound = bound.column(column);
            }
            let query = bound.query;
            // All rows, not one: the commit comes after the row, and only the end of the answer says it is durable.
            match within(answer, query.fetch_all(connection)).await {
                Ok(rows) => outcome(&rows).unwrap_or_else(Sent::InDoubt),
                Err(error) if check == Check::Trusted && was_known(&error) => Sent::Distrusted,
                Err(error) if is_certain(&error) => Sent::Refused(error),
                Err(error) if batch.writes => Sent::InDoubt(error),
                Err(error) => Sent::Refused(error),
            }
        })
    }

    fn text(&mut self, batch: &Batch, check: Check, rides: &[Ride]) -> Text {
        let rows = rides.iter().flat_map(|ride| &ride.columns).map(Column::len).max().unwrap_or(0);
        // Of a view only the statements that have rows.
        let wanted = |ride: &Ride| {
            let statements = self.views.get(ride.view).into_iter().flatten().enumerate();
            let wanted = statements.filter(|(_, sql)| placeholders::has_rows(sql, &ride.columns));
            (ride.view, wanted.map(|(number, _)| number).collect::<Vec<_>>())
        };
        let key = (Parts::of(batch, check, rows), rides.iter().map(wanted).collect::<Vec<_>>());
        if let Some(text) = self.texts.get(&key) {
            return text.clone();
        }
        let views: Vec<_> = key
            .1
            .iter()
            .zip(rides)
            .map(|((view, statements), ride)| sql::Riding {
                statements: statements.iter().map(|number| &*self.views[*view][*number]).collect(),
                parameters: ride.columns.len(),
            })
            .collect();
        let (sql, parameters) = key.0.text(&views);
        let single = key.0.single;
        let text = Text { sql: sql.into(), parameters: parameters.into(), single };
        self.texts.insert(key, text.clone());
        text
    }
}

/// Whether the database itself said that nothing was written. A connection that it ends (FATAL) may have
/// committed before.
fn is_certain(error: &sqlx::Error) -> bool {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(error) => matches!(error.severity(), PgSeverity::Error),
        // Values that could not even be encoded were never sent.
        None => matches!(error, sqlx::Error::Encode(_)),
    }
}

/// Whether a stream or a key was there that should not be.
fn was_known(error: &sqlx::Error) -> bool {
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    constraint.is_some_and(|name| matches!(name, "log_stream_pkey" | "log_command_pkey"))
}

/// Deadlock, serialisation failure, lock time-out, or a partition that was attached while the rows were on their way into
/// the rest: nothing was written, and the next try may well be.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // A check of a table has a name, a partition's range has none.
    let attached = |code: &str| code == "23514" && error.constraint().is_none();
    error
        .code()
        .is_some_and(|code| matches!(&*code, "40P01" | "40001" | "55P03") || attached(&code))
}

/// Whether a commit in the batch may be to blame, as opposed to the database being away.
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    // A row of a view that cannot be read belongs to a stream of one of them; nothing was sent yet.
    is_certain(error) || matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. })
}

/// What the statement's one row says.
fn outcome(rows: &[PgRow]) -> Result<Sent, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (moved, culprits) = (row.try_get::<i64, _>("moved")? == 1, culprits(row)?);
    let held = culprits.stale.is_empty() && culprits.sessions.is_empty();
    Ok(match (moved, culprits.is_empty()) {
        (true, _) if held => Sent::Committed(culprits),
        (false, true) => Sent::Moved,
        (true | false, _) => Sent::Culprits(culprits),
    })
}

fn culprits(row: &PgRow) -> Result<Culprits, sqlx::Error> {
    fn list<T: serde::de::DeserializeOwned>(
        row: &PgRow,
        name: &str,
    ) -> Result<Vec<T>, sqlx::Error> {
        match row.try_get::<Option<String>, _>(name)? {
            None => Ok(Vec::new()),
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
            }
        }
    }
    let known = list::<Known>(row, "known")?.into_iter();
    let stale = list::<(String, String, u64)>(row, "stale")?.into_iter();
    Ok(Culprits {
        stale: stale.map(|(kind, id, version)| ((kind, id), version)).collect(),
        known: known.map(|one| ((one.principal.clone(), one.key.clone()), one)).collect(),
        consumers: list(row, "consumers")?.into_iter().collect(),
        sessions: list(row, "sessions")?.into_iter().collect(),
    })
}
