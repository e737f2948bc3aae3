//! `/v1/audit/diff/installs`: what changed between two points in every install.
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Json, extract::State};
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
    between::{of_stream, range},
    point,
};
use crate::{
    extract::Query,
    problem::{Answer, Code, Problem},
    state::App,
};

/// Number of installs of a page without a limit.
const USUAL: u32 = 20;
/// The highest limit: each install is read as of two positions.
const MOST: u32 = 50;
/// Number of archived events that are read at a time.
const ARCHIVED: u32 = 2_000;
/// Number of ranges whose installs are kept for the next page.
const KEPT: usize = 8;

/// Two positions.
type Range = (u64, u64);

/// The installs that changed in the ranges that were asked for last: what happened in a range is the same for ever, so
/// only the first page reads it.
#[derive(Debug, Default)]
pub struct Ranges(Mutex<VecDeque<(Range, Arc<BTreeSet<InstallId>>)>>);

impl Ranges {
    fn find(&self, range: Range) -> Option<Arc<BTreeSet<InstallId>>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| *known == range).map(|(_, installs)| Arc::clone(installs))
    }

    pub(crate) fn keep(&self, range: Range, installs: Arc<BTreeSet<InstallId>>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != range);
        kept.truncate(KEPT - 1);
        kept.push_front((range, installs));
    }
}

/// Compare every install at two points: changed fields, and by run its requests, approvals and jobs
///
/// Lists each install with an event of its own or of one of its runs in between.
#[utoipa::path(
    get, path = "/v1/audit/diff/installs", tag = "audit", params(InstallsDiffQuery),
    responses((status = 200, body = InstallsDiff)),
)]
pub async fn installs_diff(
    State(app): State<App>,
    Query(which): Query<InstallsDiffQuery>,
) -> Answer<InstallsDiff> {
    let limit = which.limit.unwrap_or(USUAL);
    if limit == 0 || limit > MOST {
        return Err(Problem::new(Code::BadRequest, format!("limit takes 1 to {MOST}")));
    }
    let bad = |_| Problem::new(Code::InvalidCursor, "pass `next` of the answer before as it is");
    let after: Option<InstallId> =
        which.cursor.as_deref().map(str::parse).transpose().map_err(bad)?;
    let from = (which.from_position, which.from_time);
    let range = range(&app, from, (which.to_position, which.to_time)).await?;
    let changed = match app.changed.find(range) {
        Some(changed) => changed,
        None => {
            let changed = Arc::new(changed(&app, range).await?);
            app.changed.keep(range, Arc::clone(&changed));
            changed
        }
    };
    let is_left = |install: &InstallId| after.is_none_or(|after| *install > after);
    let mut left = changed.iter().copied().filter(is_left);
    let page: Vec<InstallId> = left.by_ref().take(limit as usize).collect();
    let next = page.last().filter(|_| left.next().is_some()).map(ToString::to_string);
    let mut items = Vec::with_capacity(page.len());
    for install in page {
        items.push(of_stream(&app, &StreamId::of::<Install>(install), range).await?);
    }
    let (from, to) = (point(&app, range.0).await?, point(&app, range.1).await?);
    Ok(Json(InstallsDiff { from, to, items, next }))
}

/// The installs of which, or of a run of which, an event was recorded in between.
async fn changed(app: &App, (from, to): Range) -> Result<BTreeSet<InstallId>, Problem> {
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
    // What is older than the rows is in archives.
    let (mut at, floor) = (from, floor_of(&mut connection, &rows).await?.min(to));
    while at < floor {
        let archives = app.log().archives();
        let page = archives.events(&mut connection, (at, floor), ARCHIVED).await?;
        let Some(last) = page.last() else { break };
        at = last.position;
        page.iter()
            .for_each(|event| take(&event.stream.aggregate_type, &event.stream.aggregate_id));
    }
    drop(connection);
    let ids: Vec<RunId> = runs.into_iter().collect();
    let known: HashMap<RunId, InstallId> = runs::installs_of(&app.pool, &ids).await?;
    for run in ids.iter().filter(|run| !known.contains_key(run)) {
        // The view has not come to it yet.
        let state = app.log().reload::<Run>(&run.to_string()).await?.state;
        installs.extend(state.request.as_ref().map(|request| request.install));
    }
    installs.extend(known.into_values());
    Ok(installs)
}
