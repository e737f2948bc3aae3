//! Compares every install at two points.
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use domain::{
    decider::Decider,
    ids::{InstallId, RunId},
    install::Install,
    run::Run,
};
use event_log::{StreamId, archive::FLOOR, read::floor_of};
use projections::views::runs;
use schemas::control::history::{InstallsDiff, InstallsDiffQuery};
use sqlx::Row as _;

use super::{
    diff::{compare_stream, resolve_range},
    point_at,
};
use crate::{
    changed_installs::Range,
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Page size if the request has no limit.
const DEFAULT_LIMIT: u32 = 20;
/// Largest page size that a request can set. The server reads each install as of two positions.
const MAX_LIMIT: u32 = 50;
/// Number of archived events that are read at a time.
const ARCHIVE_PAGE: u32 = 2_000;

/// Returns a page of the installs that changed between two points, with their changes. An install
/// changed if it, or one of its runs, has an event in between.
pub(crate) async fn installs_diff(
    app: &App,
    caller: &Caller,
    which: &InstallsDiffQuery,
) -> Result<InstallsDiff, Problem> {
    caller.authorize("GET", "/v1/audit/diff/installs")?;
    let limit = which.limit.unwrap_or(DEFAULT_LIMIT);
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
    let after: Option<InstallId> =
        which.cursor.as_deref().map(str::parse).transpose().map_err(bad)?;
    let from = (which.from_position, which.from_time);
    let range = resolve_range(app, from, (which.to_position, which.to_time)).await?;
    let changed = match app.changed_installs.find(range) {
        Some(changed) => changed,
        None => {
            let changed = Arc::new(changed_installs(app, range).await?);
            app.changed_installs.keep(range, Arc::clone(&changed));
            changed
        }
    };
    let is_left = |install: &InstallId| after.is_none_or(|after| *install > after);
    let mut left = changed.iter().copied().filter(is_left);
    let page: Vec<InstallId> = left.by_ref().take(limit as usize).collect();
    let next = page.last().filter(|_| left.next().is_some()).map(ToString::to_string);
    let mut items = Vec::with_capacity(page.len());
    for install in page {
        items.push(compare_stream(app, &StreamId::of::<Install>(install), range).await?);
    }
    let (from, to) = (point_at(app, range.0).await?, point_at(app, range.1).await?);
    Ok(InstallsDiff { from, to, items, next })
}

/// Returns the installs that have an event in the range, or whose run has such an event.
async fn changed_installs(app: &App, (from, to): Range) -> Result<BTreeSet<InstallId>, Problem> {
    let (mut installs, mut runs) = (BTreeSet::new(), BTreeSet::new());
    let mut take = |kind: &str, id: &str| {
        match kind {
            Install::NAME => drop(id.parse().map(|id: InstallId| installs.insert(id))),
            Run::NAME => drop(id.parse().map(|id: RunId| runs.insert(id))),
            _ => {}
        };
    };
    let sql = format!(
        "select aggregate_type, aggregate_id, {FLOOR} as floor from log_event \
         where position > $1 and position <= $2 and aggregate_type = any($3) group by 1, 2"
    );
    let mut connection = app.pool.acquire().await?;
    let rows = sqlx::query(&sql)
        .bind(from.cast_signed())
        .bind(to.cast_signed())
        .bind([Install::NAME, Run::NAME])
        .fetch_all(&mut *connection)
        .await?;
    for row in &rows {
        take(row.try_get(0)?, row.try_get(1)?);
    }
    // Events before the oldest row are in archives.
    let (mut at, floor) = (from, floor_of(&mut connection, &rows).await?.min(to));
    while at < floor {
        let archives = app.log().archives();
        let page = archives.events(&mut connection, (at, floor), ARCHIVE_PAGE).await?;
        let Some(last) = page.last() else { break };
        at = last.position;
        page.iter()
            .for_each(|event| take(&event.stream.aggregate_type, &event.stream.aggregate_id));
    }
    drop(connection);
    let ids: Vec<RunId> = runs.into_iter().collect();
    let known: HashMap<RunId, InstallId> = runs::installs_of(&app.pool, &ids).await?;
    for run in ids.iter().filter(|run| !known.contains_key(run)) {
        // The projection has not processed this run yet.
        let state = app.log().reload::<Run>(&run.to_string()).await?.state;
        installs.extend(state.request.as_ref().map(|request| request.install));
    }
    installs.extend(known.into_values());
    Ok(installs)
}
