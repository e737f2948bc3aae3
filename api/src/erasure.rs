//! Erasure of all copies of a subject's data that the server can reach, after its key was deleted.
//! `docs/security.md` lists the copies that it cannot reach. The erasure is idempotent.
//!
//! ```text
//! fence ─▶ copies (from the log) ─▶ marks ─▶ barrier ─▶ delete ─▶ rebuild ─▶ check for remaining copies
//! ```
//!
//! The log is read once for the copies of all subjects, and once by the rebuild. If an archive
//! cannot be read, the erasure of subjects whose copies the archive may reference stays incomplete.
//! Only rows of installs that are newer than the archive are rebuilt, stream by stream.
//!
//! The copies come from the log and never from a projection, which may lag. From the fence on, the
//! database rejects writes of other servers that are based on earlier reads.

mod copies;

use domain::{
    decider::Decider as _,
    erasure::ERASED,
    ids::{InstallId, PrincipalId},
    install::Install,
    subject::SubjectId,
};
use event_log::{
    LogError, blob,
    encryption::{data, shred},
    upload,
};
use projections::RebuildError;

use self::copies::Copies;
use crate::{
    auth::names,
    problem::{Code, Problem},
    sensitive,
    state::App,
    state_versions, wrapped_seeds,
};

/// Tables to which a concurrent writer could still write copies. States have locks of their own,
/// because storing a large one may take longer than the others can wait.
const WRITABLE_TABLES: [&str; 9] = [
    "log_snapshot",
    "log_command",
    "job_log",
    "blob",
    "blob_upload",
    "principal_name",
    "subject_data",
    "sensitive_value",
    "wrapped_seed",
];

/// Result of an erasure.
pub(crate) struct Outcome {
    /// Subjects without remaining copies.
    pub erased: Vec<SubjectId>,
    /// Message about the subjects whose erasure is incomplete.
    pub incomplete: Option<String>,
}

/// Erases the copies of these subjects together. The keys of these subjects are already deleted.
///
/// # Errors
/// The problem of the step that failed. The caller must retry.
pub(crate) async fn erase(app: &App, subjects: &[SubjectId]) -> Result<Outcome, Problem> {
    let ids: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    shred::raise_fence(&app.pool, &ids).await?;
    // Includes subjects that were erased earlier, so that a plan summary that only erased installs
    // share is deleted too.
    let before = erased_subjects(app).await?;
    let all: Vec<SubjectId> = before.iter().chain(subjects).copied().collect();
    let mut copies = Copies::of(app, &installs(&all)).await?;
    let (executions, digests) = (copies.executions(None), deletable(app, &copies).await?);
    app.logs.mark_erased(&executions).await?;
    shred::wait_for_writers(app.owner(), &WRITABLE_TABLES)
        .await
        .map_err(|error| owner_problem(error.into()))?;
    // Snapshots contain decrypted data. They are created again when needed.
    sqlx::query("delete from log_snapshot").execute(&app.pool).await?;
    // Without a stored response, a repeated command gets its response from the log, in which the
    // data is no longer readable.
    let sql = "update log_command set response = null where response is not null";
    sqlx::query(sql).execute(&app.pool).await?;
    app.logs.erase(&executions).await?;
    upload::erase(&app.pool, &executions).await?;
    let all_ids: Vec<String> = all.iter().map(ToString::to_string).collect();
    data::erase(&app.pool, &all_ids).await?;
    sensitive::erase(&app.pool, &all_ids).await?;
    wrapped_seeds::erase(&app.pool, &all_ids).await?;
    state_versions::erase(&app.pool, &all_ids).await?;
    clear_dead_letter_reasons(app, &copies).await?;
    let blobs = blob::Erased { subjects: &all_ids, digests: &digests, executions: &executions };
    blob::erase(app.owner(), blobs).await.map_err(|error| owner_problem(error.into()))?;
    for principal in principals(&all) {
        names::remove(&app.pool, principal).await?;
    }
    if let Some(last) = copies.missing_until() {
        return erase_newer(app, copies, subjects, last).await;
    }
    projections::erase::erase(app.owner_source()).await.map_err(owner_problem)?;
    vacuum(app).await;
    copies.read_new_events(app).await?;
    match remaining(app, &copies, &all).await?.as_slice() {
        [] => Ok(Outcome { erased: subjects.to_vec(), incomplete: None }),
        some => Err(Problem::new(
            Code::Unavailable,
            format!("erasure is incomplete: {}; the server retries it", some.join("; ")),
        )),
    }
}

/// Completes the erasure of installs that were created after the missing archives. These archives
/// cannot reference copies of such installs. The erasure of all other subjects stays incomplete.
async fn erase_newer(
    app: &App,
    mut copies: Copies,
    subjects: &[SubjectId],
    last: u64,
) -> Result<Outcome, Problem> {
    let younger = created_after(app, subjects, last).await?;
    let mut erased = vec![];
    if !younger.is_empty() {
        let streams = copies.streams(&younger);
        projections::erase::erase_streams(app.owner_source(), &streams)
            .await
            .map_err(owner_problem)?;
        vacuum(app).await;
        copies.read_new_events(app).await?;
    }
    for install in younger {
        let left = numbers(app, &copies, Some(install)).await?;
        if left.iter().all(|(number, _)| *number == 0) {
            erased.push(SubjectId::Install(install));
        }
    }
    let left = subjects.iter().filter(|subject| !erased.contains(subject));
    let left: Vec<String> = left.map(ToString::to_string).collect();
    let left = (!left.is_empty()).then(|| unreadable_archives(&copies, &left));
    Ok(Outcome { erased, incomplete: left })
}

/// Installs among these subjects that were created after a position.
async fn created_after(
    app: &App,
    subjects: &[SubjectId],
    last: u64,
) -> Result<Vec<InstallId>, Problem> {
    let ids: Vec<String> = installs(subjects).iter().map(ToString::to_string).collect();
    let younger = "select aggregate_id from log_stream where aggregate_id = any($1) \
         and aggregate_type = $2 and first_position > $3";
    let younger: Vec<String> = sqlx::query_scalar(younger)
        .bind(ids)
        .bind(Install::NAME)
        .bind(last.cast_signed())
        .fetch_all(&app.pool)
        .await?;
    Ok(younger.iter().filter_map(|id| id.parse().ok()).collect())
}

/// Returns a message about unreadable archives, and about the subjects whose copies they may
/// reference.
fn unreadable_archives(copies: &Copies, whom: &[String]) -> String {
    let why: Vec<&str> = copies.missing().iter().map(|missing| missing.why.as_str()).collect();
    format!(
        "{}; events in unreadable archives may reference copies of {}",
        why.join("; "),
        whom.join(", ")
    )
}

/// Digests of the manifests and plan summaries to delete. While an archive is missing, a summary
/// that was stored before the end of the archive is retained. Such a summary may also belong to
/// another install.
async fn deletable(app: &App, copies: &Copies) -> Result<Vec<String>, Problem> {
    let digests = copies.digests(None);
    let Some(last) = copies.missing_until() else { return Ok(digests) };
    let sql = "select digest from blob where digest = any($1) and (digest = any($2) or created_at > \
         (select recorded_at + interval '1 minute' from log_event where position = $3))";
    let deletable = sqlx::query_scalar(sql)
        .bind(digests)
        .bind(copies.manifests())
        .bind(last.saturating_add(1).cast_signed());
    Ok(deletable.fetch_all(&app.pool).await?)
}

/// Removes deleted rows from the disk. Only the owner of the tables may vacuum. For other roles,
/// autovacuum removes the rows later.
async fn vacuum(app: &App) {
    let tables = "subject_key, log_snapshot, log_command, principal_name, blob, blob_upload, subject_data, sensitive_value, state_version, wrapped_seed, job_log";
    if let Err(why) = projections::erase::vacuum(app.owner(), tables).await {
        tracing::warn!(error = %why, "Cannot vacuum; deleted rows stay on the disk until autovacuum");
    }
}

/// Remaining copies of every subject that is recorded as erased.
pub(crate) async fn remaining_copies(app: &App) -> Result<Vec<String>, Problem> {
    let subjects = erased_subjects(app).await?;
    if subjects.is_empty() {
        return Ok(vec![]);
    }
    let copies = Copies::of(app, &installs(&subjects)).await?;
    let mut found = remaining(app, &copies, &subjects).await?;
    if let Some(last) = copies.missing_until() {
        let younger = created_after(app, &subjects, last).await?;
        let is_older = |install: &InstallId| !younger.contains(install);
        let older = installs(&subjects).into_iter().filter(is_older);
        let older: Vec<String> = older.map(|install| install.to_string()).collect();
        found.extend((!older.is_empty()).then(|| unreadable_archives(&copies, &older)));
    }
    Ok(found)
}

/// Subjects that the database records as erased.
async fn erased_subjects(app: &App) -> Result<Vec<SubjectId>, Problem> {
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
            format!("{number} {what} of {install} remain after its erasure; run `stead subjects shred {install} --reason …` again")
        }));
    }
    let ids: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    let left = data::not_erased(&app.pool, &ids).await?;
    if left > 0 {
        found.push(format!(
            "{left} plan details remain after their erasure; run `stead subjects shred ID --reason …` again with the id of an erased subject"
        ));
    }
    let seeds = wrapped_seeds::not_erased(&app.pool, &ids).await?;
    if seeds > 0 {
        found.push(format!(
            "{seeds} wrapped seeds remain after their erasure; run `stead subjects shred ID --reason …` again with the id of an erased subject"
        ));
    }
    let states = state_versions::not_erased(&app.pool, &ids).await?;
    if states > 0 {
        found.push(format!(
            "{states} states remain after their erasure; run `stead subjects shred ID --reason …` again with the id of an erased subject"
        ));
    }
    for principal in principals(subjects) {
        let names = "select count(*) from principal_name where principal = $1";
        let names: i64 =
            sqlx::query_scalar(names).bind(principal.to_string()).fetch_one(&app.pool).await?;
        if names > 0 {
            found.push(format!(
                "the name of {principal} remains after its erasure; run `stead subjects shred {principal} --reason …` again"
            ));
        }
    }
    for (table, what) in [
        ("log_command where response is not null and last_position", "cached responses"),
        ("log_snapshot where read_position", "snapshots"),
    ] {
        let count = format!("select count(*) from {table} <= (select max(fence) from subject_key)");
        let number: i64 = sqlx::query_scalar(&count).fetch_one(&app.pool).await?;
        if number > 0 {
            found.push(format!(
                "{number} {what} from before an erasure remain; run `stead subjects shred ID --reason …` again with the id of an erased subject"
            ));
        }
    }
    Ok(found)
}

/// Number of remaining copies of each kind. Counts the copies of the install `of`, or of all
/// installs in `copies` if `of` is `None`.
async fn numbers(
    app: &App,
    copies: &Copies,
    of: Option<InstallId>,
) -> Result<[(i64, &'static str); 5], Problem> {
    let (executions, digests) = (copies.executions(of), copies.digests(of));
    let logs = app.logs.not_erased(&executions).await?;
    let subjects: Vec<String> = copies.installs(of).iter().map(ToString::to_string).collect();
    let blobs = blob::Erased { subjects: &subjects, digests: &digests, executions: &executions };
    let blobs = blob::not_erased(&app.pool, blobs).await?;
    let uploads = "select count(*) from blob_upload where execution = any($1)";
    let uploads = sqlx::query_scalar(uploads).bind(executions).fetch_one(&app.pool).await?;
    let values = sensitive::not_erased(&app.pool, &subjects).await?;
    let letters = dead_letters(app, copies).await?.into_iter();
    let reasons = letters.filter(|(_, install)| of.is_none_or(|of| of == *install)).count();
    Ok([
        (logs, "job logs"),
        (blobs, "manifests and plan summaries"),
        (uploads, "uploads"),
        (values, "sensitive values"),
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

/// Replaces the reasons of dead letters, which may quote data of a subject.
async fn clear_dead_letter_reasons(app: &App, copies: &Copies) -> Result<(), Problem> {
    for (position, _) in dead_letters(app, copies).await? {
        let reason = "update log_dead_letter set reason = $2 where position = $1";
        sqlx::query(reason).bind(position).bind(ERASED).execute(&app.pool).await?;
    }
    Ok(())
}

/// Returns position and install of each dead letter of the installs in `copies` whose reason is not
/// erased. Skips dead letters whose events are in an unreadable archive.
async fn dead_letters(app: &App, copies: &Copies) -> Result<Vec<(i64, InstallId)>, Problem> {
    let dead_letters = "select position from log_dead_letter where reason <> $1";
    let dead_letters: Vec<i64> =
        sqlx::query_scalar(dead_letters).bind(ERASED).fetch_all(&app.pool).await?;
    let mut of_copies = vec![];
    for position in dead_letters {
        let event = match app.log().event(position.max(0).cast_unsigned()).await {
            Err(LogError::Archived { .. }) => continue,
            event => event?,
        };
        let install = event.and_then(|event| copies.install_of(&event.stream.aggregate_id));
        of_copies.extend(install.map(|install| (position, install)));
    }
    Ok(of_copies)
}

/// Converts the error of an operation that requires the owner of the tables.
fn owner_problem(error: RebuildError) -> Problem {
    match error {
        RebuildError::Log(error) => error.into(),
        error @ (RebuildError::NotOwner(_)
        | RebuildError::Busy(_)
        | RebuildError::Unknown(_)
        | RebuildError::TableExists { .. }
        | RebuildError::NoPreviousRows(_)
        | RebuildError::OtherVersion { .. }) => Problem::new(Code::Unavailable, error.to_string()),
    }
}
