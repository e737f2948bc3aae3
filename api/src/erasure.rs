//! Every copy of a subject's words that the server can reach, when their key is gone. What it cannot reach is listed in
//! `docs/security.md`. Done again it does the same.
use domain::{
    digest::Digest,
    erasure::ERASED,
    ids::{InstallId, PrincipalId},
    subject::SubjectId,
};
use projections::RebuildError;
use sqlx::Row as _;

use crate::{
    auth::names,
    problem::{Code, Problem},
    state::App,
};

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
    projections::erase::erase(app.source()).await.map_err(unmade)?;
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
    sqlx::query(
        "delete from job_log where execution in (select payload ->> 'execution' from log_event \
           where aggregate_type = 'job' and aggregate_id = any($1) and event_type = 'job.claimed')",
    )
    .bind(&jobs)
    .execute(&app.pool)
    .await?;
    // Why something that happened there could not be reacted to, in words.
    sqlx::query(
        "update log_parked p set reason = $3 from log_event e where e.position = p.position \
           and (e.aggregate_id = $1 or e.aggregate_id = any($2) \
             or e.aggregate_id in (select key from view_runs where install = $1))",
    )
    .bind(install.to_string())
    .bind(&jobs)
    .bind(ERASED)
    .execute(&app.pool)
    .await?;
    let named = sqlx::query(
        "select coalesce(payload ->> 'manifest', payload -> 'plan' ->> 'summary') as digest \
           from log_event where aggregate_type = 'job' and aggregate_id = any($1) \
           and event_type in ('job.queued', 'job.plan_produced')",
    );
    let rows = named.bind(&jobs).fetch_all(&app.pool).await?;
    let digests = rows.iter().filter_map(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
    let digests: Vec<String> =
        digests.filter_map(|text| text.parse::<Digest>().ok()).map(|of| of.to_string()).collect();
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
