//! Summaries for the home page: config versions of the installs, and runs per day. They have no route
//! of their own, so each authorizes by the list that it summarizes.
use chrono::{DateTime, Days, NaiveTime, Utc};
use domain::ids::{AppId, RunId};
use ulid::Ulid;

use crate::{extract::Caller, problem::Problem, state::App};

/// Maximum number of installs that a summary reads, because Home is rendered often.
pub(crate) const INSTALLS: i64 = 1000;

/// Number of installs of an app that follow a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionCount {
    pub app: AppId,
    pub version: u32,
    pub installs: u64,
}

/// Counts the installs that are not deprovisioned by app and config version. Also returns true if not
/// all installs are counted.
pub(crate) async fn versions(
    app: &App,
    caller: &Caller,
) -> Result<(Vec<VersionCount>, bool), Problem> {
    caller.authorize("GET", "/v1/installs")?;
    let sql = "select app, coalesce((data->'state'->>'config_version')::bigint, 0) as version, \
                 count(*) filter (where not coalesce((data->'state'->>'deprovisioned')::boolean, false)), \
                 count(*) \
               from (select app, data from projection_installs order by key limit $1) as first \
               group by app, version order by app, version desc";
    let rows: Vec<(String, i64, i64, i64)> =
        sqlx::query_as(sql).bind(INSTALLS).fetch_all(&app.pool).await?;
    let read: i64 = rows.iter().map(|(.., all)| all).sum();
    let counts = rows.into_iter().filter_map(|(app, version, installs, _)| {
        let (app, version) = (app.parse().ok()?, u32::try_from(version).ok()?);
        let installs = installs.unsigned_abs();
        (installs > 0).then_some(VersionCount { app, version, installs })
    });
    Ok((counts.collect(), read == INSTALLS))
}

/// Start of a day, with the number of runs that were requested on it, by state.
pub(crate) type RunDay = (DateTime<Utc>, Vec<(String, u64)>);

/// Counts the runs of the last days by the day of their request, oldest day first. The id of a run has
/// the time of its request, so each day is a range of keys.
pub(crate) async fn run_days(
    app: &App,
    caller: &Caller,
    days: u64,
) -> Result<Vec<RunDay>, Problem> {
    caller.authorize("GET", "/v1/runs")?;
    let today = app.now().date_naive();
    let starts: Vec<DateTime<Utc>> = (0..days)
        .rev()
        .filter_map(|ago| today.checked_sub_days(Days::new(ago)))
        .map(|day| day.and_time(NaiveTime::MIN).and_utc())
        .collect();
    let keys: Vec<String> = starts.iter().map(|start| first_run_at(*start)).collect();
    let sql = "select day.number, run.state, count(*) \
               from (select number, key, lead(key) over (order by number) as next \
                     from unnest($1::text[]) with ordinality as start(key, number)) as day \
               join projection_runs as run on run.key >= day.key and (day.next is null or run.key < day.next) \
               group by day.number, run.state order by day.number, run.state";
    let rows: Vec<(i64, String, i64)> = sqlx::query_as(sql).bind(keys).fetch_all(&app.pool).await?;
    let of = |number: usize| {
        let of_day = rows.iter().filter(move |(day, ..)| usize::try_from(*day) == Ok(number + 1));
        of_day.map(|(_, state, count)| (state.clone(), count.unsigned_abs())).collect()
    };
    Ok(starts.iter().enumerate().map(|(number, start)| (*start, of(number))).collect())
}

/// Lowest id of a run that is requested at this time.
fn first_run_at(time: DateTime<Utc>) -> String {
    let millis = time.timestamp_millis().unsigned_abs();
    format!("{}{}", RunId::PREFIX, Ulid::from_parts(millis, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_day_follow_its_start() {
        let start: DateTime<Utc> = "2026-01-31T00:00:00Z".parse().unwrap();
        let key = first_run_at(start);
        let id = |millis: i64, random| {
            let millis = (start.timestamp_millis() + millis).unsigned_abs();
            format!("run_{}", Ulid::from_parts(millis, random))
        };
        assert!(id(-1, u128::MAX) < key && key <= id(0, 0) && id(0, 0) < id(1, 0));
    }
}
