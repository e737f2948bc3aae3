//! Every copy of a subject's words that the server can reach, when their key is gone. What it cannot reach is listed in
//! `docs/security.md`. Done again it does the same.
use std::collections::{BTreeSet, HashSet};

use domain::{
    decider::Decider as _,
    digest::Digest,
    erasure::ERASED,
    ids::{InstallId, PrincipalId},
    job::Job,
    subject::SubjectId,
};
use event_log::{Stored, StreamId, archive::floor};
use projections::RebuildError;
use serde::Deserialize;

use crate::{
    auth::names,
    problem::{Code, Problem},
    state::App,
};

/// The event that says which plan a job has.
const PLANNED: &str = "job.plan_produced";
/// How many archived events are read at once.
const PAGE: u32 = 2_000;

/// Erase the copies of these, all of them in one go.
pub async fn erase(app: &App, subjects: &[SubjectId]) -> Result<(), Problem> {
    // States with what was folded into them; they are made again when they are needed.
    sqlx::query("delete from log_snapshot").execute(&app.pool).await?;
    // An answer that is not kept is told from the log, which no longer says it.
    let answers = "update log_command set answer = null where answer is not null";
    sqlx::query(answers).execute(&app.pool).await?;
    for subject in subjects {
        match subject {
            SubjectId::Install(install) => of_install(app, *install).await?,
            SubjectId::Principal(principal) => of_principal(app, *principal).await?,
        }
    }
    projections::erase::erase(app.owner_source()).await.map_err(unmade)?;
    // Deleted rows are on the disk until then. Only the owner may; the database does it by itself later.
    let tables = "subject_key, log_snapshot, log_command, principal_name, blob, job_log";
    if let Err(why) = projections::erase::vacuum(app.owner(), tables).await {
        tracing::warn!(reason = %why, "Deleted rows stay on the disk until the database removes them by itself: {why}");
    }
    Ok(())
}

async fn of_principal(app: &App, principal: PrincipalId) -> Result<(), Problem> {
    names::forget(&app.pool, principal).await?;
    Ok(())
}

/// What its jobs wrote, were told, and said that they would change.
async fn of_install(app: &App, install: InstallId) -> Result<(), Problem> {
    let jobs = "select key from view_jobs where install = $1";
    let jobs: Vec<String> =
        sqlx::query_scalar(jobs).bind(install.to_string()).fetch_all(&app.pool).await?;
    let runs = "select key from view_runs where install = $1";
    let runs: Vec<String> =
        sqlx::query_scalar(runs).bind(install.to_string()).fetch_all(&app.pool).await?;
    let Named { executions, mut digests } = named(app, &jobs).await?;
    sqlx::query("delete from job_log where execution = any($1)")
        .bind(&executions)
        .execute(&app.pool)
        .await?;
    let streams: HashSet<String> =
        jobs.iter().chain(&runs).cloned().chain([install.to_string()]).collect();
    unparked(app, &streams).await?;
    elsewhere(app, &jobs, &mut digests).await?;
    let digests: Vec<String> = digests.into_iter().collect();
    // Two plans may be the same to the byte: then it is somebody else's too, and says nothing of this one alone.
    sqlx::query(
        "delete from blob where digest = any($1) and digest not in ( \
           select payload -> 'plan' ->> 'summary' from log_event where aggregate_type = 'job' \
             and event_type = 'job.plan_produced' and not aggregate_id = any($2) \
             and payload -> 'plan' ->> 'summary' = any($1))",
    )
    .bind(&digests)
    .bind(&jobs)
    .execute(app.owner())
    .await
    .map_err(|error| unmade(error.into()))?;
    Ok(())
}

/// What these jobs name: whether their events are rows or in archives only.
#[derive(Default)]
struct Named {
    executions: Vec<String>,
    digests: BTreeSet<String>,
}

async fn named(app: &App, jobs: &[String]) -> Result<Named, Problem> {
    let mut named = Named::default();
    for job in jobs {
        for event in app.log().read_stream(&StreamId::new(Job::NAME, job), 0).await? {
            match &*event.event_type {
                "job.claimed" => named.executions.extend(told(&event).execution),
                "job.queued" => named.digests.extend(told(&event).manifest.and_then(digest)),
                PLANNED => named.digests.extend(summary(&event)),
                _ => {}
            }
        }
    }
    Ok(named)
}

/// Why something that happened there could not be reacted to, in words.
async fn unparked(app: &App, streams: &HashSet<String>) -> Result<(), Problem> {
    let parked = "select position from log_parked where reason <> $1";
    let parked: Vec<i64> = sqlx::query_scalar(parked).bind(ERASED).fetch_all(&app.pool).await?;
    for position in parked {
        let event = app.log().event(position.max(0).cast_unsigned()).await?;
        if event.is_some_and(|event| streams.contains(&event.stream.aggregate_id)) {
            let reason = "update log_parked set reason = $2 where position = $1";
            sqlx::query(reason).bind(position).bind(ERASED).execute(&app.pool).await?;
        }
    }
    Ok(())
}

/// Leave out what jobs of others name too, as far as archives say it; what rows say is asked when it is deleted.
async fn elsewhere(
    app: &App,
    jobs: &[String],
    digests: &mut BTreeSet<String>,
) -> Result<(), Problem> {
    let mut connection = app.pool.acquire().await?;
    let (floor, mut at) = (floor(&mut connection).await?, 0);
    while at < floor && !digests.is_empty() {
        let page = app.log().archives().events(&mut connection, (at, floor), PAGE).await?;
        let Some(last) = page.last() else { break };
        at = last.position;
        for event in page.iter().filter(|event| event.event_type == PLANNED) {
            if let Some(summary) =
                summary(event).filter(|_| !jobs.contains(&event.stream.aggregate_id))
            {
                digests.remove(&summary);
            }
        }
    }
    Ok(())
}

/// What is nobody's in the events of jobs, and is read without opening them.
#[derive(Default, Deserialize)]
struct Told {
    execution: Option<String>,
    manifest: Option<String>,
    plan: Option<Plan>,
}

#[derive(Deserialize)]
struct Plan {
    summary: Option<String>,
}

fn told(event: &Stored) -> Told {
    serde_json::from_str(&event.payload).unwrap_or_default()
}

fn summary(event: &Stored) -> Option<String> {
    told(event).plan?.summary.and_then(digest)
}

fn digest(text: String) -> Option<String> {
    text.parse::<Digest>().ok().map(|digest| digest.to_string())
}

/// Only the tables' owner may delete a blob or make a view again.
fn unmade(error: RebuildError) -> Problem {
    match error {
        RebuildError::Log(error) => error.into(),
        error @ (RebuildError::NotOwner(_)
        | RebuildError::Busy(_)
        | RebuildError::Unknown(_)
        | RebuildError::AlreadyKept { .. }
        | RebuildError::NothingKept(_)
        | RebuildError::OtherVersion { .. }) => Problem::new(Code::Unavailable, error.to_string()),
    }
}
