//! Every copy of a subject's words that the server can reach, when their key is gone. What it cannot reach is listed in
//! `docs/security.md`. Done again it does the same.
//!
//! ```text
//! fence ─▶ copies (from the log) ─▶ marks ─▶ barrier ─▶ delete ─▶ rebuild ─▶ look for what remains
//! ```
//! The log is read once for the copies of all subjects, and once by the rebuild. While an archive cannot be read the rest
//! of the log is obeyed all the same; views cannot be rebuilt then, and the error names whom the archive may concern.
//!
//! No projection is asked what is to be erased: each may be behind. What other servers read before they knew of the
//! shredding is rejected by the database from the fence on, so no server's clock counts.
mod copies;

use domain::{
    decider::Decider as _,
    erasure::ERASED,
    ids::{InstallId, PrincipalId},
    install::Install,
    subject::SubjectId,
};
use event_log::{LogError, blob, sealed::shred, upload};
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

/// Erase the copies of these, all of them in one go. Their keys are deleted.
///
/// # Errors
/// What could not be erased; then it is to be tried again.
pub async fn erase(app: &App, subjects: &[SubjectId]) -> Result<(), Problem> {
    let ids: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    shred::raise_fence(&app.pool, &ids).await?;
    // With those that were erased before: a plan that two of them have in common is no other's.
    let before = erased(app).await?;
    let all: Vec<SubjectId> = before.iter().chain(subjects).copied().collect();
    let mut copies = Copies::of(app, &installs(&all)).await?;
    let (executions, digests) = (copies.executions(None), copies.digests(None));
    app.logs.mark_erased(&executions).await?;
    shred::barrier(app.owner(), &WRITTEN).await.map_err(|error| unmade(error.into()))?;
    // States with what was folded into them; they are made again when they are needed.
    sqlx::query("delete from log_snapshot").execute(&app.pool).await?;
    // An answer that is not kept is told from the log, which no longer says it.
    let answers = "update log_command set answer = null where answer is not null";
    sqlx::query(answers).execute(&app.pool).await?;
    app.logs.erase(&executions).await?;
    upload::erase(&app.pool, &executions).await?;
    unparked(app, &copies).await?;
    blob::erase(app.owner(), &digests, &executions).await.map_err(|error| unmade(error.into()))?;
    for principal in principals(&all) {
        names::forget(&app.pool, principal).await?;
    }
    if let Some(missing) = missing(app, &copies, subjects).await? {
        let detail = format!("{missing}; projections are erased when it can be read");
        return Err(Problem::new(Code::ArchiveMissing, detail));
    }
    projections::erase::erase(app.owner_source()).await.map_err(unmade)?;
    // Deleted rows are on the disk until then. Only the owner may; the database does it by itself later.
    let tables =
        "subject_key, log_snapshot, log_command, principal_name, blob, blob_upload, job_log";
    if let Err(why) = projections::erase::vacuum(app.owner(), tables).await {
        tracing::warn!(reason = %why, "Deleted rows stay on the disk until the database removes them by itself: {why}");
    }
    copies.go_on(app).await?;
    match remaining(app, &copies, &all).await?.as_slice() {
        [] => Ok(()),
        some => Err(Problem::new(Code::Unavailable, format!("copies remain: {}", some.join("; ")))),
    }
}

/// Archives that cannot be read, and the subjects of whom they may name copies: those that are as old.
async fn missing(
    app: &App,
    copies: &Copies,
    subjects: &[SubjectId],
) -> Result<Option<String>, Problem> {
    let Some(last) = copies.missing().iter().map(|missing| missing.last).max() else {
        return Ok(None);
    };
    let ids: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    let young = "select aggregate_id from log_stream where aggregate_id = any($1) \
         and aggregate_type = $2 and since_position > $3";
    let young: Vec<String> = sqlx::query_scalar(young)
        .bind(&ids)
        .bind(Install::NAME)
        .bind(last.cast_signed())
        .fetch_all(&app.pool)
        .await?;
    let old: Vec<&str> = ids.iter().filter(|id| !young.contains(id)).map(String::as_str).collect();
    let archives: Vec<&str> = copies.missing().iter().map(|missing| missing.why.as_str()).collect();
    let whom = match old.as_slice() {
        [] => "every other copy was erased".to_owned(),
        old => format!("it may name copies of {}", old.join(", ")),
    };
    Ok(Some(format!("{}; {whom}", archives.join("; "))))
}

/// Copies that should have been erased: of every subject of which the log says so.
pub async fn remaining_copies(app: &App) -> Result<Vec<String>, Problem> {
    let subjects = erased(app).await?;
    if subjects.is_empty() {
        return Ok(vec![]);
    }
    let copies = Copies::of(app, &installs(&subjects)).await?;
    let mut found = remaining(app, &copies, &subjects).await?;
    found.extend(missing(app, &copies, &subjects).await?);
    Ok(found)
}

/// The subjects of which the log says that no copy is left.
async fn erased(app: &App) -> Result<Vec<SubjectId>, Problem> {
    let erased = shred::without_copies(&app.pool).await?;
    Ok(erased.iter().filter_map(|id| id.parse().ok()).collect())
}

async fn remaining(
    app: &App,
    copies: &Copies,
    subjects: &[SubjectId],
) -> Result<Vec<String>, Problem> {
    let mut found = vec![];
    let are_clean = numbers(app, copies, None).await?.iter().all(|(number, _)| *number == 0);
    for install in installs(subjects).into_iter().filter(|_| !are_clean) {
        let of_one = numbers(app, copies, Some(install)).await?.into_iter();
        found.extend(of_one.filter(|(number, _)| *number > 0).map(|(number, what)| {
            format!("{number} {what} of {install} remain after its erasure: `stead subjects shred {install}` again")
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

/// Numbers of copies of an install's data, or of all, by kind.
async fn numbers(
    app: &App,
    copies: &Copies,
    of: Option<InstallId>,
) -> Result<[(i64, &'static str); 4], Problem> {
    let (executions, digests) = (copies.executions(of), copies.digests(of));
    let logs = app.logs.not_erased(&executions).await?;
    let blobs = blob::not_erased(&app.pool, &digests, &executions).await?;
    let uploads = "select count(*) from blob_upload where execution = any($1)";
    let uploads = sqlx::query_scalar(uploads).bind(executions).fetch_one(&app.pool).await?;
    let letters = dead_letters(app, copies).await?.into_iter();
    let reasons = letters.filter(|(_, install)| of.is_none_or(|of| of == *install)).count();
    Ok([
        (logs, "job logs"),
        (blobs, "manifests and plan summaries"),
        (uploads, "uploads"),
        (i64::try_from(reasons).unwrap_or(i64::MAX), "dead letters"),
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

/// Why something that happened there could not be reacted to, in words.
async fn unparked(app: &App, copies: &Copies) -> Result<(), Problem> {
    for (position, _) in dead_letters(app, copies).await? {
        let reason = "update log_parked set reason = $2 where position = $1";
        sqlx::query(reason).bind(position).bind(ERASED).execute(&app.pool).await?;
    }
    Ok(())
}

/// Positions of dead letters of these installs that have a reason, as far as their events can be read.
async fn dead_letters(app: &App, copies: &Copies) -> Result<Vec<(i64, InstallId)>, Problem> {
    let parked = "select position from log_parked where reason <> $1";
    let parked: Vec<i64> = sqlx::query_scalar(parked).bind(ERASED).fetch_all(&app.pool).await?;
    let mut of_copies = vec![];
    for position in parked {
        let event = match app.log().event(position.max(0).cast_unsigned()).await {
            Err(LogError::Archived { .. }) => continue,
            event => event?,
        };
        let install = event.and_then(|event| copies.install_of(&event.stream.aggregate_id));
        of_copies.extend(install.map(|install| (position, install)));
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
