//! Restores a backup to a data directory and a database, and verifies the result.
use std::{collections::BTreeSet, path::Path};

use event_log::{Archives, EventLog, Options, verify};
use sqlx::PgConnection;

use super::{
    ARCHIVES, BackupError, Coverage, KEYS, Progress, REGISTRY, Source, WitnessCheckpoint, files,
};
use crate::{
    auth::OWNER_TOKEN,
    postgres::{Access, Tools},
};

/// Result of restoring and verifying a log.
#[derive(Debug, Clone)]
pub struct Restored {
    /// Number of published checkpoints that the log matches.
    pub checkpoints: u64,
    /// Comparison with the checkpoints of witnesses.
    pub witnessed: Vec<Coverage>,
    /// Positions of forged reports, which the backup contains like all other events.
    pub forged: Vec<u64>,
    /// Epoch for the restored log: one more than the highest epoch in the backup and in the
    /// checkpoints of witnesses.
    pub next_epoch: u64,
}

/// Copies all files of a backup except the dump and the manifest into a data directory.
///
/// # Errors
/// [`BackupError`].
pub fn restore_files(
    source: &Source,
    data: &Path,
    progress: Progress<'_>,
) -> Result<(), BackupError> {
    let names = [KEYS, REGISTRY, ARCHIVES, OWNER_TOKEN];
    let is_selected = |path: &str| names.iter().any(|name| path.split('/').next() == Some(name));
    let selected: Vec<_> =
        source.manifest.files.iter().filter(|file| is_selected(&file.path)).collect();
    for (n, file) in selected.iter().enumerate() {
        progress(format!("restoring file {} of {}", n + 1, selected.len()));
        files::copy(&source.path(&file.path), &data.join(&file.path), &file.path)?;
    }
    // The user that runs the server must be able to write to the registry.
    files::set_owner(data, &names)?;
    // The marker of the restore is removed later: after a power failure, no name may be missing.
    let directories: BTreeSet<_> = selected
        .iter()
        .flat_map(|file| Path::new(&file.path).ancestors().skip(1))
        .map(|directory| data.join(directory))
        .collect();
    directories.iter().try_for_each(|directory| files::sync(directory))
}

/// Restores the dump into an empty database and verifies the whole log. The log must match the
/// checkpoint of the manifest and the published checkpoints. Also compares the log with the
/// checkpoints of witnesses.
///
/// # Errors
///
/// [`BackupError`].
pub async fn restore_database(
    source: &Source,
    access: &Access,
    witnesses: &[WitnessCheckpoint],
    progress: Progress<'_>,
) -> Result<Restored, BackupError> {
    let mut connection = access.connect().await?;
    let (tools, major) = Tools::of(&mut connection).await?;
    if major < source.manifest.postgres {
        let (made_by, ours) = (source.manifest.postgres.to_string(), major.to_string());
        return Err(BackupError::Newer { what: "Postgres", made_by, ours });
    }
    is_empty(&mut connection).await?;
    progress("restoring the database".into());
    let running = tools.start("pg_restore", access, |command| {
        let database = access.options.get_database().unwrap_or(access.options.get_username());
        // A failed restore leaves the database empty.
        command.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]);
        command.arg(format!("--dbname={database}")).arg(source.dump());
    })?;
    running.end().await?;
    let pool = event_log::pool().max_connections(4).connect_with(access.options.clone()).await?;
    let position = source.manifest.position;
    let archives = Archives::at(source.path(ARCHIVES));
    let log_source = event_log::Source::new(&pool, &archives, &source.wrapping()?);
    let verified = verify::verify(log_source.clone(), 0, |checked| {
        progress(format!("verifying event {checked} of {position}"));
    });
    let verified = verified.await?;
    if (verified.size, verified.root) != (source.checkpoint.size, source.checkpoint.root) {
        let difference = if verified.size == source.checkpoint.size {
            "its root differs from the root of the checkpoint".to_owned()
        } else {
            format!("it has {} events, but the checkpoint has {position}", verified.size)
        };
        return Err(BackupError::LogMismatch(difference));
    }
    // Grants privileges, which a dump does not contain, and creates tables that an older dump
    // lacks.
    crate::server::prepare(log_source.clone()).await?;
    let forged = verified.reported.wrong.iter().map(|wrong| wrong.position).collect();
    let restored = compare_checkpoints(source, log_source, witnesses).await;
    pool.close().await;
    Ok(Restored { forged, ..restored? })
}

async fn compare_checkpoints(
    source: &Source,
    log_source: event_log::Source,
    witnesses: &[WitnessCheckpoint],
) -> Result<Restored, BackupError> {
    let event_log::Source { pool, archives, keys } = log_source;
    let options = Options { archives, keys, poll_interval: None, ..Options::default() };
    let log = EventLog::open(pool, options).await?;
    if log.log_id() != source.checkpoint.log_id {
        return Err(BackupError::LogMismatch(format!("its id is {}", log.log_id())));
    }
    let checkpoints = log.verify_checkpoints(&source.keys.seal_keys()).await?;
    let mut witnessed = Vec::new();
    for witness in witnesses {
        witnessed.push(witness.compare(&log).await?);
    }
    let epochs = witnessed.iter().map(|reached| reached.epoch).chain([source.manifest.epoch]);
    let next_epoch = epochs.max().unwrap_or(0) + 1;
    Ok(Restored { checkpoints, witnessed, forged: vec![], next_epoch })
}

/// Rejects a database that contains a relation or the schema of the log, because it may be in use.
async fn is_empty(connection: &mut PgConnection) -> Result<(), BackupError> {
    let any = "select n.nspname || '.' || c.relname from pg_class c \
               join pg_namespace n on n.oid = c.relnamespace \
               where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' \
               and not exists (select 1 from pg_depend d where d.objid = c.oid and d.deptype = 'e') \
               union all select nspname from pg_namespace where nspname = $1 limit 1";
    let found: Option<String> =
        sqlx::query_scalar(any).bind(event_log::connect::SCHEMA).fetch_optional(connection).await?;
    found.map_or(Ok(()), |found| Err(BackupError::NotEmpty { found }))
}
