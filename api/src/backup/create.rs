//! Creation of a backup while the server runs.
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::decider::Timestamp;
use event_log::{
    HeadSnapshot, LogError,
    archive::{self, ArchiveRecord, EVENTS, INDEX, MANIFEST},
};
use nix::fcntl::{Flock, FlockArg};
use sqlx::{Executor as _, PgConnection, Row as _};

use super::{
    ARCHIVES, BackupError, DUMP, File, KEYS, Manifest, PARTIAL, Progress, REGISTRY, at, files,
    manifest, pack,
};
use crate::{
    auth::OWNER_TOKEN,
    keys::{self, wrapping},
    postgres::{Access, Tools},
};

/// Interval between progress messages of the dump.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout for table locks.
const LOCK_TIMEOUT: &str = "30s";

/// Creates a backup of a data directory, the archives of its log, and its database. `out` appears
/// only when the backup is complete.
///
/// # Errors
/// [`BackupError`].
pub async fn create(
    (data, archives): (&Path, &Path),
    access: &Access,
    out: &Path,
    now: Timestamp,
    progress: Progress<'_>,
) -> Result<Manifest, BackupError> {
    let draft = Draft::begin(out)?;
    let SnapshotParts { head, postgres, archived, keys: mut files_copied } =
        database(&draft, data, access, progress).await?;
    // Signs with the copied keys, which are available to a restore.
    let keys = keys::load(&draft.path.join(KEYS))?;
    files_copied.push(measure_file(&draft.path, DUMP)?);
    // Copied after the snapshot, so that the copy has every artifact that an event in the snapshot
    // names.
    files_copied.extend(draft.registry(data, progress)?);
    files_copied.extend(draft.archives(archives, &archived, progress)?);
    let token = data.join(OWNER_TOKEN);
    if token.is_file() {
        files_copied.push(files::copy(&token, &draft.path.join(OWNER_TOKEN), OWNER_TOKEN)?);
    }
    let HeadSnapshot { checkpoint, format, recorded_at } = head;
    let manifest = Manifest {
        format: Manifest::format(),
        program: manifest::program(),
        postgres,
        log_format: format,
        created_at: now,
        log_id: checkpoint.log_id.clone(),
        position: checkpoint.size,
        epoch: checkpoint.epoch,
        recorded_at,
        checkpoint: checkpoint.sign(keys.checkpoints()),
        files: files_copied,
    };
    manifest.write(&draft.path)?;
    draft.finish(out, progress)?;
    Ok(manifest)
}

/// Parts of a backup that belong to one snapshot of the database: the head, the archives of events
/// without rows, and the keys.
struct SnapshotParts {
    head: HeadSnapshot,
    postgres: u32,
    archived: Vec<ArchiveRecord>,
    keys: Vec<File>,
}

/// Writes the dump of one snapshot, and copies the keys that the data in the dump needs.
async fn database(
    draft: &Draft,
    data: &Path,
    access: &Access,
    progress: Progress<'_>,
) -> Result<SnapshotParts, BackupError> {
    let dump = &draft.path.join(DUMP);
    let mut holder = access.connect().await?;
    // The locks are held until the end. Otherwise the dump could miss a projection table that is
    // swapped after the snapshot.
    lock_tables(&mut holder).await?;
    let mut reader = access.connect().await?;
    let (tools, postgres) = Tools::of(&mut reader).await?;
    reader.execute("begin isolation level repeatable read, read only").await?;
    let snapshot: String =
        sqlx::query_scalar("select pg_export_snapshot()").fetch_one(&mut reader).await?;
    let head = event_log::head_snapshot(&mut reader).await?;
    let mut archived = archive::list(&mut reader).await?;
    archived.retain(|archive| archive.dropped_at.is_some());
    // Copied after the snapshot, so every key that wraps data in the snapshot is among the current
    // and former keys.
    let keys = draft.keys(data)?;
    wrapping::load(&draft.path.join(KEYS))?.check_all(&mut reader).await?;
    // Created before pg_dump opens it, because pg_dump would create a file that other users can
    // read.
    files::new(dump)?;
    let running = tools.start("pg_dump", access, |command| {
        command.args(["--format=custom", "--compress=1", "--no-owner", "--no-privileges"]);
        command.arg(format!("--schema={}", event_log::connect::SCHEMA));
        command.arg(format!("--snapshot={snapshot}")).arg("--file").arg(dump);
    })?;
    let mut ended = std::pin::pin!(running.end());
    let mut progress_ticks = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            done = &mut ended => break done?,
            _ = progress_ticks.tick() => {
                let written = fs::metadata(dump).map_or(0, |metadata| metadata.len());
                progress(format!("database: {} written", indicatif::HumanBytes(written)));
            }
        }
    }
    // The snapshot lasts as long as the transaction.
    reader.execute("rollback").await?;
    holder.execute("rollback").await?;
    files::sync(dump)?;
    Ok(SnapshotParts { head, postgres, archived, keys })
}

/// Locks all tables against schema changes. Rows can still change.
async fn lock_tables(holder: &mut PgConnection) -> Result<(), BackupError> {
    holder.execute(&*format!("begin; set local lock_timeout = '{LOCK_TIMEOUT}'")).await?;
    let tables = "select format('%I.%I', n.nspname, c.relname) as name from pg_class c \
                  join pg_namespace n on n.oid = c.relnamespace \
                  where n.nspname = $1 and c.relkind in ('r', 'p') order by c.oid";
    let rows = sqlx::query(tables).bind(event_log::connect::SCHEMA).fetch_all(&mut *holder).await?;
    let names: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get("name")).collect();
    let names = names?;
    if names.is_empty() {
        return Err(event_log::LogError::NoLog.into());
    }
    let lock = format!("lock table {} in access share mode", names.join(", "));
    holder.execute(&*lock).await?;
    Ok(())
}

fn measure_file(backup: &Path, name: &str) -> Result<File, BackupError> {
    files::measure(&backup.join(name), name, |_| Ok(()))
}

/// Directory of an incomplete backup. Deletes the directory when dropped, unless `finish` has
/// renamed it.
struct Draft {
    path: PathBuf,
    /// Lock against a second backup to the same path. The kernel releases the lock when the process
    /// ends.
    _held: Flock<fs::File>,
}

impl Draft {
    fn begin(out: &Path) -> Result<Draft, BackupError> {
        let path_text = || out.display().to_string();
        if fs::symlink_metadata(out).is_ok() {
            return Err(BackupError::Exists { path: path_text() });
        }
        let name = out.file_name().ok_or_else(|| BackupError::Exists { path: path_text() })?;
        if files::is_partial(out) {
            return Err(BackupError::Reserved { path: path_text() });
        }
        let mut name = name.to_os_string();
        name.push(PARTIAL);
        let path = out.with_file_name(name);
        files::private_directory(&path)?;
        let open = fs::File::open(&path).map_err(at(&path))?;
        let held = Flock::lock(open, FlockArg::LockExclusiveNonblock)
            .map_err(|_| BackupError::Busy { path: path_text() })?;
        // Removes the files of an interrupted backup.
        for entry in fs::read_dir(&path).map_err(at(&path))? {
            let entry_path = entry.map_err(at(&path))?.path();
            let removed = if entry_path.is_dir() {
                fs::remove_dir_all(&entry_path)
            } else {
                fs::remove_file(&entry_path)
            };
            removed.map_err(at(&entry_path))?;
        }
        Ok(Draft { path, _held: held })
    }

    /// Copies the current keys before the former keys. A key that is replaced meanwhile is then
    /// copied once or twice, but never missing.
    fn keys(&self, data: &Path) -> Result<Vec<File>, BackupError> {
        let from = data.join(KEYS);
        keys::read(&from)?;
        let mut copied_files = Vec::new();
        for inner in files::list_files(&from)? {
            copied_files.push(self.copy(&from, KEYS, &inner)?);
        }
        Ok(copied_files)
    }

    fn registry(&self, data: &Path, progress: Progress<'_>) -> Result<Vec<File>, BackupError> {
        let from = data.join(REGISTRY);
        let inner = if from.is_dir() { files::list_files(&from)? } else { Vec::new() };
        let mut copied_files = Vec::new();
        for (n, path) in inner.iter().enumerate() {
            progress(format!("registry: file {} of {}", n + 1, inner.len()));
            copied_files.push(self.copy(&from, REGISTRY, path)?);
        }
        Ok(copied_files)
    }

    /// Copies the archives whose events have no rows in the dump. Archives never change.
    fn archives(
        &self,
        from: &Path,
        archived: &[ArchiveRecord],
        progress: Progress<'_>,
    ) -> Result<Vec<File>, BackupError> {
        let mut copied_files = Vec::new();
        for (n, archive) in archived.iter().enumerate() {
            progress(format!("archive {} of {}", n + 1, archived.len()));
            let inner = archive.directory(Path::new(""));
            let unreadable = |why: String| LogError::Archived {
                first: archive.first,
                last: archive.last,
                path: from.join(&inner).display().to_string(),
                why,
            };
            let take = |name: &str| {
                let file = self.copy(from, ARCHIVES, &inner.join(name));
                file.map_err(|why| unreadable(why.to_string()))
            };
            let manifest = take(MANIFEST)?;
            let digest = format!("sha256:{}", hex::encode(archive.manifest_sha256));
            if manifest.digest != digest {
                return Err(unreadable(
                    "its manifest differs from the one that the database records".into(),
                )
                .into());
            }
            // A backup with a damaged archive must not replace an intact backup.
            let copied = self.path.join(ARCHIVES).join(&inner).join(MANIFEST);
            let manifest_copy = fs::read(&copied).map_err(at(&copied))?;
            let manifest_copy: archive::Manifest = serde_json::from_slice(&manifest_copy)
                .map_err(|why| unreadable(why.to_string()))?;
            for name in [EVENTS, INDEX] {
                let file = take(name)?;
                let digest = file.digest.strip_prefix("sha256:").unwrap_or_default();
                let is_made = |measured: &archive::ArchiveFile| {
                    measured.name == name
                        && measured.bytes == file.bytes
                        && measured.sha256 == digest
                };
                if !manifest_copy.files.iter().any(is_made) {
                    let why = format!("its file {name} does not match its manifest");
                    return Err(unreadable(why).into());
                }
                copied_files.push(file);
            }
            copied_files.push(manifest);
        }
        Ok(copied_files)
    }

    fn copy(&self, from: &Path, under: &str, inner: &Path) -> Result<File, BackupError> {
        let name = Path::new(under).join(inner);
        let name_text = name.to_str().ok_or_else(|| {
            at(&from.join(inner))(std::io::Error::other("its name is not valid UTF-8"))
        })?;
        files::copy(&from.join(inner), &self.path.join(&name), name_text)
    }

    /// Syncs the complete backup, packs it if `out` names a tar file, and moves it to `out`.
    fn finish(self, out: &Path, progress: Progress<'_>) -> Result<(), BackupError> {
        for directory in pack::directories(&self.path)? {
            files::sync(&directory)?;
        }
        if pack::is_file(out) {
            progress(format!("packing {}", out.display()));
            let packed = self.path.join(".packed");
            pack::pack(&self.path, &packed)?;
            fs::rename(&packed, out).map_err(at(out))?;
        } else {
            fs::rename(&self.path, out).map_err(at(out))?;
        }
        match out.parent().filter(|above| !above.as_os_str().is_empty()) {
            Some(above) => files::sync(above),
            None => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a success, the directory was renamed or packed into `out`. After a failure, its
        // copies of the keys must not remain.
        let _ = fs::remove_dir_all(&self.path);
    }
}
