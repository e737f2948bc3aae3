//! Home page: what needs attention, and counts of the runs and the versions.
use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use dashboard::pages::{self, AppVersions, Attention, RunDay};
use schemas::control::{
    PageQuery, jobs::JobsQuery, runners::Runner, runs::RunsQuery, tokens::Token,
};

use super::{
    audit::verification,
    pages::{ATTENTION, caller_of},
    response::{Page, PageResult},
};
use crate::{
    auth::sessions::Session,
    extract::Caller,
    problem::Problem,
    queries::{apps, jobs, min_position, overview, runners, runs, tokens},
    state::App,
};

/// Number of days whose runs the home page counts.
const DAYS: u64 = 14;
/// Maximum number of apps on the home page.
const APPS: u32 = 50;
/// Number of runners in each read of the home page, which looks for disconnected ones.
const RUNNERS: u32 = 200;
/// Maximum number of such reads.
const RUNNER_READS: u64 = 5;
/// Number of tokens that the home page checks.
const TOKENS: u32 = 200;
/// Time before its end at which the home page shows a token.
const TOKEN_NOTICE: TimeDelta = TimeDelta::days(14);

pub(super) async fn home(State(app): State<App>, caller: Caller, session: Session) -> PageResult {
    min_position::wait(&app, None).await?;
    let frame = caller_of(&app, &caller, &session).await?;
    let of = |state: Option<&str>| RunsQuery {
        state: state.map(str::to_owned),
        limit: Some(ATTENTION),
        ..RunsQuery::default()
    };
    let unknown = JobsQuery {
        state: Some("outcome_unknown".into()),
        limit: Some(ATTENTION),
        ..JobsQuery::default()
    };
    let (disconnected, compared_runners) = disconnected(&app, &caller).await?;
    let expiring = match frame.may(&[]) {
        true => expiring(&app, &caller).await?,
        false => vec![],
    };
    let (versions, are_versions_partial) = versions(&app, &caller).await?;
    let attention = Attention {
        waiting: runs::list(&app, &caller, of(Some("waiting_for_approval"))).await?.items,
        failed: runs::list(&app, &caller, of(Some("failed"))).await?.items,
        unknown: jobs::list(&app, &caller, unknown).await?.items,
        disconnected,
        expiring,
        compared_runners,
        newest: runs::list(&app, &caller, of(None)).await?.items,
        days: days(&app, &caller).await?,
        versions,
        are_versions_partial,
        verification: verification(&app),
    };
    Ok(Page(pages::home(&frame, &attention)))
}

/// Returns the valid tokens that expire soon, of the oldest ones.
async fn expiring(app: &App, caller: &Caller) -> Result<Vec<Token>, Problem> {
    let query = PageQuery { limit: Some(TOKENS), ..PageQuery::default() };
    let end = app.now() + TOKEN_NOTICE;
    let mut tokens = tokens::list(app, caller, query).await?.items;
    tokens.retain(|token| token.state == "active" && token.expires_at.is_some_and(|at| at < end));
    tokens.sort_by_key(|token| token.expires_at);
    tokens.truncate(ATTENTION as usize);
    Ok(tokens)
}

/// Returns the runs of the last days by outcome. Without any run, returns no days.
async fn days(app: &App, caller: &Caller) -> Result<Vec<RunDay>, Problem> {
    let days = overview::run_days(app, caller, DAYS).await?;
    if days.iter().all(|(_, counts)| counts.is_empty()) {
        return Ok(vec![]);
    }
    let day = |(start, counts): (DateTime<Utc>, Vec<(String, u64)>)| {
        let of = |is: fn(&str) -> bool| -> u64 {
            counts.iter().filter(|(state, _)| is(state)).map(|(_, count)| count).sum()
        };
        RunDay {
            day: start.date_naive(),
            succeeded: of(|state| state == "succeeded"),
            failed: of(|state| state == "failed"),
            other: of(|state| state != "succeeded" && state != "failed"),
        }
    };
    Ok(days.into_iter().map(day).collect())
}

/// Returns the versions of the installs by app, and true if not all installs are counted.
async fn versions(app: &App, caller: &Caller) -> Result<(Vec<AppVersions>, bool), Problem> {
    let (counts, is_cut) = overview::versions(app, caller).await?;
    let query = PageQuery { limit: Some(APPS), ..PageQuery::default() };
    let apps = apps::list(app, caller, query).await?;
    let is_partial = is_cut || apps.next.is_some();
    let of = |shown: schemas::control::apps::App| AppVersions {
        counts: counts
            .iter()
            .filter(|count| count.app == shown.id)
            .map(|count| (count.version, count.installs))
            .collect(),
        app: shown.id.to_string(),
        name: shown.name,
        newest: shown.version,
    };
    let versions = apps.items.into_iter().map(of).filter(|app| !app.counts.is_empty());
    Ok((versions.collect(), is_partial))
}

/// Returns the first disconnected runners, and the number of compared runners if there are more.
async fn disconnected(app: &App, caller: &Caller) -> Result<(Vec<Runner>, Option<u64>), Problem> {
    let (mut disconnected, mut cursor, mut compared) = (Vec::new(), None, 0);
    for _ in 0..RUNNER_READS {
        let query = PageQuery { limit: Some(RUNNERS), cursor, ..PageQuery::default() };
        let page = runners::list(app, caller, query).await?;
        compared += page.items.len() as u64;
        disconnected.extend(page.items.into_iter().filter(|at| at.state == "disconnected"));
        cursor = page.next;
        if cursor.is_none() {
            disconnected.truncate(ATTENTION as usize);
            return Ok((disconnected, None));
        }
    }
    disconnected.truncate(ATTENTION as usize);
    Ok((disconnected, Some(compared)))
}
