//! Every copy of a subject's words that the server can reach, when their key is gone. What it cannot reach is listed in
//! `docs/security.md`. Done again it does the same.
//!
//! ```text
//! fence ─▶ copies (from the log) ─▶ marks ─▶ barrier ─▶ delete ─▶ rebuild ─▶ look for what remains
//! ```
//! Projections are not consulted, because each may lag. From the fence on, the database rejects writes of data that other
//! servers read before they knew of the shredding, so no server's clock matters.
mod copies;

use domain::{
    erasure::ERASED,
    ids::{InstallId, PrincipalId},
    subject::SubjectId,
};
use event_log::{sealed::shred, upload};
use projections::RebuildError;

use self::copies::Copies;
use crate::{
    auth::names,
    problem::{Code, Problem},
    state::App,
};

/// The tables that late writers could write copies to.
const WRITTEN: [&str; 6] =
    ["log_snapshot", "log_command", "job_log", "blob", "blob_upload", "principal_name"];

/// Erases the copies of these subjects together. Their keys must be deleted already.
///
/// # Errors
/// A copy could not be erased; call it again.
pub async fn erase(app: &App, subjects: &[SubjectId]) -> Result<(), Problem> {
    let ids: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    shred::raise_fence(&app.pool, &ids).await?;
    // Includes subjects that were erased before: a plan that only erased installs share is erased, too.
    let before = erased(app).await?;
    let all: Vec<SubjectId> = before.iter().chain(subjects).copied().collect();
    let copies = Copies::of(app, &installs(&all)).await?;
    app.logs.mark_erased(&copies.executions()).await?;
    shred::barrier(app.owner(), &WRITTEN).await.map_err(|error| unmade(error.into()))?;
    // States with what was folded into them; they are made again when they are needed.
    sqlx::query("delete from log_snapshot").execute(&app.pool).await?;
    // An answer that is not kept is told from the log, which no longer says it.
    let answers = "update log_command set answer = null where answer is not null";
    sqlx::query(answers).execute(&app.pool).await?;
    app.logs.erase(&copies.executions()).await?;
    upload::erase(&app.pool, &copies.executions()).await?;
    unparked(app, &copies).await?;
    sqlx::query("delete from blob where digest = any($1)")
        .bind(copies.digests())
        .execute(app.owner())
        .await
        .map_err(|error| unmade(error.into()))?;
    for principal in principals(&all) {
        names::forget(&app.pool, principal).await?;
    }
    projections::erase::erase(app.owner_source()).await.map_err(unmade)?;
    // Deleted rows are on the disk until then. Only the owner may; the database does it by itself later.
    let tables =
        "subject_key, log_snapshot, log_command, principal_name, blob, blob_upload, job_log";
    if let Err(why) = projections::erase::vacuum(app.owner(), tables).await {
        tracing::warn!(reason = %why, "Deleted rows stay on the disk until the database removes them by itself: {why}");
    }
    match remaining(app, &all).await?.as_slice() {
        [] => Ok(()),
        some => Err(Problem::new(Code::Unavailable, format!("copies remain: {}", some.join("; ")))),
    }
}

/// Remaining copies of every subject that the log records as erased.
pub async fn remaining_copies(app: &App) -> Result<Vec<String>, Problem> {
    let subjects = erased(app).await?;
    if subjects.is_empty() {
        return Ok(vec![]);
    }
    remaining(app, &subjects).await
}

/// Subjects that the log records as erased.
async fn erased(app: &App) -> Result<Vec<SubjectId>, Problem> {
    let erased = shred::without_copies(&app.pool).await?;
    Ok(erased.iter().filter_map(|id| id.parse().ok()).collect())
}

async fn remaining(app: &App, subjects: &[SubjectId]) -> Result<Vec<String>, Problem> {
    let mut found = vec![];
    let all = installs(subjects);
    // Reads the log once for all subjects, and again for each only if copies remain.
    let of_all = of_installs(app, &all).await?;
    let are_clean = of_all.iter().all(|(number, _)| *number == 0);
    for install in all.iter().filter(|_| !are_clean) {
        let of_one = of_installs(app, &[*install]).await?.into_iter();
        found.extend(of_one.filter(|(number, _)| *number > 0).map(|(number, what)| {
            format!("{number} {what} of {install} remain after its erasure: `stead subjects shred {install}` again")
        }));
    }
    if found.is_empty() {
        // Copies that two of them share are not counted for either.
        found.extend(of_all.iter().filter(|(number, _)| *number > 0).map(|(number, what)| {
            format!("{number} {what} of several erased installs remain: `stead subjects shred` one of them again")
        }));
    }
    for principal in principals(subjects) {
        let names = "select count(*) from principal_name where principal = $1";
        let names: i64 =
            sqlx::query_scalar(names).bind(principal.to_string()).fetch_one(&app.pool).await?;
        if names > 0 {
            found.push(format!(
                "the name of {principal} remains after its erasure: `stead subjects shred {principal}` again"
            ));
        }
    }
    for (table, what) in [
        ("log_command where answer is not null and last_position", "cached responses"),
        ("log_snapshot where read_position", "snapshots"),
    ] {
        let count = format!("select count(*) from {table} <= (select max(fence) from subject_key)");
        let number: i64 = sqlx::query_scalar(&count).fetch_one(&app.pool).await?;
        if number > 0 {
            found.push(format!(
                "{number} {what} of before an erasure remain: `stead subjects shred` an erased subject again"
            ));
        }
    }
    Ok(found)
}

/// Numbers of copies of these installs' data, by kind.
async fn of_installs(
    app: &App,
    installs: &[InstallId],
) -> Result<[(i64, &'static str); 4], Problem> {
    let copies = Copies::of(app, installs).await?;
    let logs = app.logs.not_erased(&copies.executions()).await?;
    let blobs = "select count(*) from blob where digest = any($1)";
    let blobs = sqlx::query_scalar(blobs).bind(copies.digests()).fetch_one(&app.pool).await?;
    let uploads = "select count(*) from blob_upload where execution = any($1)";
    let uploads =
        sqlx::query_scalar(uploads).bind(copies.executions()).fetch_one(&app.pool).await?;
    let reasons = i64::try_from(dead_letters(app, &copies).await?.len()).unwrap_or(i64::MAX);
    Ok([
        (logs, "job logs"),
        (blobs, "manifests and plan summaries"),
        (uploads, "uploads"),
        (reasons, "dead letters"),
    ])
}

fn installs(subjects: &[SubjectId]) -> Vec<InstallId> {
    let install = |subject: &SubjectId| match subject {
        SubjectId::Install(install) => Some(*install),
        SubjectId::Principal(_) => None,
    };
    subjects.iter().filter_map(install).collect()
}

fn principals(subjects: &[SubjectId]) -> Vec<PrincipalId> {
    let principal = |subject: &SubjectId| match subject {
        SubjectId::Principal(principal) => Some(*principal),
        SubjectId::Install(_) => None,
    };
    subjects.iter().filter_map(principal).collect()
}

/// Replaces the reasons of dead letters, which may quote data of a subject.
async fn unparked(app: &App, copies: &Copies) -> Result<(), Problem> {
    for position in dead_letters(app, copies).await? {
        let reason = "update log_parked set reason = $2 where position = $1";
        sqlx::query(reason).bind(position).bind(ERASED).execute(&app.pool).await?;
    }
    Ok(())
}

/// Positions of dead letters of these streams that have a reason.
async fn dead_letters(app: &App, copies: &Copies) -> Result<Vec<i64>, Problem> {
    let parked = "select position from log_parked where reason <> $1";
    let parked: Vec<i64> = sqlx::query_scalar(parked).bind(ERASED).fetch_all(&app.pool).await?;
    let mut of_copies = vec![];
    for position in parked {
        let event = app.log().event(position.max(0).cast_unsigned()).await?;
        if event.is_some_and(|event| copies.has_stream(&event.stream.aggregate_id)) {
            of_copies.push(position);
        }
    }
    Ok(of_copies)
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
