//! The list of all projections, with their positions.
use std::{marker::PhantomData, sync::Arc};

use event_log::{InlineProjection, consumer};
use futures::future::BoxFuture;
use sqlx::{PgConnection, Row};

use crate::{
    Class,
    fold::{DynProjection, Erased},
    inline::InlineProjector,
    views::{
        apps::Apps, builds::Builds, components::Components, config_versions::ConfigVersions,
        enrolments::Enrolments, installs::Installs, job_queue::JobQueue, jobs::Jobs,
        plugins::Plugins, principals::Principals, runners::Runners, runs::Runs, timers::Timers,
        tokens::Tokens, webhooks::Webhooks,
    },
};

/// Consumer shard of the live rows.
pub(crate) const LIVE: i32 = 0;
/// First consumer shard of a rebuild. Each worker has one shard, from this one upwards.
pub(crate) const SHADOW: i32 = 1;
/// Consumer shard of the rows that were live before the last rebuild.
pub(crate) const PREVIOUS: i32 = -1;

/// Version and position of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub name: &'static str,
    /// Mode in which the projection follows the log.
    pub class: Class,
    /// Version of the live rows.
    pub version: i32,
    /// Last position that the rows include.
    pub position: u64,
    /// Number of events that the rows do not include yet.
    pub lag: u64,
}

/// Returns the inline projections, for the options with which the log is opened.
pub fn inline_projections() -> Vec<Arc<dyn InlineProjection>> {
    vec![
        InlineProjector::<JobQueue>::new(),
        InlineProjector::<Timers>::new(),
        InlineProjector::<Principals>::new(),
        InlineProjector::<Tokens>::new(),
        InlineProjector::<Enrolments>::new(),
    ]
}

/// Returns the position of every projection.
///
/// # Errors
/// If a database operation fails.
pub fn list(connection: &mut PgConnection) -> BoxFuture<'_, Result<Vec<Status>, sqlx::Error>> {
    Box::pin(statuses(connection))
}

async fn statuses(connection: &mut PgConnection) -> Result<Vec<Status>, sqlx::Error> {
    let row = sqlx::query("select position from log_head").fetch_one(&mut *connection).await?;
    let head = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
    let mut all = vec![];
    for view in views() {
        let (name, class, version) = (view.name(), view.class(), view.version());
        let position = match class {
            Class::Synchronous => head,
            Class::Asynchronous => {
                let of = (name, version, LIVE);
                consumer::position(&mut *connection, of).await?.unwrap_or(0)
            }
        };
        all.push(Status { name, class, version, position, lag: head.saturating_sub(position) });
    }
    Ok(all)
}

pub(crate) fn views() -> Vec<Box<dyn DynProjection>> {
    vec![
        Box::new(Erased::<JobQueue>(PhantomData)),
        Box::new(Erased::<Timers>(PhantomData)),
        Box::new(Erased::<Principals>(PhantomData)),
        Box::new(Erased::<Tokens>(PhantomData)),
        Box::new(Erased::<Enrolments>(PhantomData)),
        Box::new(Erased::<Apps>(PhantomData)),
        Box::new(Erased::<ConfigVersions>(PhantomData)),
        Box::new(Erased::<Components>(PhantomData)),
        Box::new(Erased::<Builds>(PhantomData)),
        Box::new(Erased::<Installs>(PhantomData)),
        Box::new(Erased::<Runs>(PhantomData)),
        Box::new(Erased::<Jobs>(PhantomData)),
        Box::new(Erased::<Runners>(PhantomData)),
        Box::new(Erased::<Plugins>(PhantomData)),
        Box::new(Erased::<Webhooks>(PhantomData)),
    ]
}

pub(crate) fn view(name: &str) -> Option<Box<dyn DynProjection>> {
    views().into_iter().find(|view| view.name() == name)
}

#[cfg(test)]
mod tests {
    use event_log::migrate::FORMAT;

    use super::*;

    #[test]
    fn a_synchronous_projection_keeps_its_version_unless_the_log_format_changes() {
        let synchronous = views().into_iter().filter(|view| view.class() == Class::Synchronous);
        let versions: Vec<_> = synchronous.map(|view| (view.name(), view.version())).collect();
        let known =
            [("job_queue", 1), ("timers", 1), ("principals", 1), ("tokens", 1), ("enrolments", 1)];
        assert_eq!(
            (FORMAT, &*versions),
            (3, &known[..]),
            "the VERSION of an inline projection changed: add a migration that raises FORMAT, because an older \
             server would continue to write rows of the old version; then update this list"
        );
    }
}
