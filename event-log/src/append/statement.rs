//! The one statement: all guards, the head's compare-and-set, all writes. One round trip, one fsync.
use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sqlx::{
    PgConnection, Row,
    postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity},
};

use super::{
    batch::{Batch, Ride},
    bind::{Bound, Expected},
    conflicts::{Conflicts, UsedKey},
    head::{Head, within},
    placeholders,
    sql::{self, Check, Parameter, Parts},
};
use crate::{Column, SyncView};

/// What became of a batch.
pub(crate) enum Sent {
    /// It is durable, but for those that were known to come too late.
    Committed(Conflicts),
    /// Nothing was written, because of these.
    Conflicts(Conflicts),
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
    texts: HashMap<(Parts, Vec<Statements>), Arc<str>>,
    /// What each combination takes before the values of the views.
    parameters: HashMap<Parts, Arc<[Parameter]>>,
}

/// Which view, and which of its statements.
type Statements = (usize, Vec<usize>);

impl Statement {
    pub(crate) fn of(views: &[Arc<dyn SyncView>]) -> Statement {
        let views = views.iter().map(|view| view.statements()).collect();
        Statement { views, texts: HashMap::new(), parameters: HashMap::new() }
    }

    /// What of a batch can be written down before it is known what the views write with it. `None`: that decides
    /// how the rest is written.
    pub(crate) fn early(&mut self, before: &Head, batch: &Batch, layout: i32) -> Option<Early> {
        let parts = Parts::of(batch, Check::Trusted, 0);
        let expected = Expected { before, layout, check: Check::Trusted };
        (!parts.single).then(|| Early { parts, values: self.values(parts, &expected, batch) })
    }

    /// A batch as it is sent. `early`: what of it is written down already.
    pub(crate) fn of_batch(
        &mut self,
        before: &Head,
        batch: &Batch,
        early: Option<Early>,
        rides: Vec<Ride>,
        (layout, check): (i32, Check),
    ) -> Sending {
        let rows = rides.iter().flat_map(|ride| &ride.columns).map(Column::len).max().unwrap_or(0);
        let parts = Parts::of(batch, check, rows);
        let sql = self.text(parts, &rides);
        let values = match early {
            Some(early) if early.parts == parts => early.values,
            _ => self.values(parts, &Expected { before, layout, check }, batch),
        };
        let columns = rides.into_iter().flat_map(|ride| ride.columns);
        let values = columns.fold(values, Bound::column).values();
        Sending { sql, values, check, writes: batch.writes }
    }

    fn values(&mut self, parts: Parts, expected: &Expected<'_>, batch: &Batch) -> Bound {
        let parameters =
            self.parameters.entry(parts).or_insert_with(|| parts.text(&[]).1.into()).iter();
        parameters.fold(Bound::none(parts.single), |bound, parameter| {
            bound.bind(*parameter, expected, batch)
        })
    }

    fn text(&mut self, parts: Parts, rides: &[Ride]) -> Arc<str> {
        // Of a view only the statements that have rows.
        let wanted = |ride: &Ride| {
            let statements = self.views.get(ride.view).into_iter().flatten().enumerate();
            let wanted = statements.filter(|(_, sql)| placeholders::has_rows(sql, &ride.columns));
            (ride.view, wanted.map(|(number, _)| number).collect::<Vec<_>>())
        };
        let key = (parts, rides.iter().map(wanted).collect::<Vec<_>>());
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
        let text: Arc<str> = parts.text(&views).0.into();
        self.texts.insert(key, text.clone());
        text
    }
}

/// The part of a batch's values that does not depend on the views.
pub(crate) struct Early {
    parts: Parts,
    values: Bound,
}

/// A batch on its way.
pub(crate) struct Sending {
    sql: Arc<str>,
    values: Result<PgArguments, sqlx::Error>,
    check: Check,
    writes: bool,
}

impl Sending {
    /// Send it and wait until the database has said everything it has to say about it, `answer` at most.
    pub(crate) fn send(
        self,
        connection: &mut PgConnection,
        answer: Duration,
    ) -> BoxFuture<'_, Sent> {
        let Sending { sql, values, check, writes } = self;
        Box::pin(async move {
            let values = match values {
                Ok(values) => values,
                Err(error) => return Sent::Refused(error),
            };
            let query = sqlx::query_with(&sql, values);
            // All rows, not one: the commit comes after the row, and only the end of the answer says it is durable.
            match within(answer, query.fetch_all(connection)).await {
                Ok(rows) => outcome(&rows).unwrap_or_else(Sent::InDoubt),
                Err(error) if check == Check::Trusted && was_known(&error) => Sent::Distrusted,
                Err(error) if is_certain(&error) => Sent::Refused(error),
                Err(error) if writes => Sent::InDoubt(error),
                Err(error) => Sent::Refused(error),
            }
        })
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
    let held =
        culprits.stale.is_empty() && culprits.sessions.is_empty() && culprits.consumers.is_empty();
    Ok(match (moved, culprits.is_empty()) {
        (true, _) if held => Sent::Committed(culprits),
        (false, true) => Sent::Moved,
        (true | false, _) => Sent::Conflicts(culprits),
    })
}

fn culprits(row: &PgRow) -> Result<Conflicts, sqlx::Error> {
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
    let known = list::<UsedKey>(row, "known")?.into_iter();
    let stale = list::<(String, String, u64)>(row, "stale")?.into_iter();
    Ok(Conflicts {
        stale: stale.map(|(kind, id, version)| ((kind, id), version)).collect(),
        known: known.map(|one| ((one.principal.clone(), one.key.clone()), one)).collect(),
        consumers: list(row, "consumers")?.into_iter().collect(),
        sessions: list(row, "sessions")?.into_iter().collect(),
    })
}
