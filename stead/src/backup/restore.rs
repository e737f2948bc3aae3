//! `stead backup restore` and `stead backup drill`.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use api::{
    backup::{self, BackupError, Progress, Restored, Source, WitnessCheckpoint},
    postgres::{Access, DataLock, Embedded, RESTORING},
};
use chrono::{DateTime, Utc};
use clap::Args;
use cli::{failure::Failure, render::Screen};
use serde::Serialize;

use super::{output, to_failure};
use crate::{database_args::DatabaseArgs, serve::StopSignals};

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Path of the backup
    #[arg(long, value_name = "DIR|FILE")]
    from: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    against: Against,
}

#[derive(Debug, Args)]
pub(crate) struct Drill {
    /// Path of the backup
    #[arg(long, value_name = "DIR|FILE")]
    from: PathBuf,
    /// Directory with free space for the restored copy [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    #[command(flatten)]
    against: Against,
}

#[derive(Debug, Args)]
struct Against {
    /// Signed checkpoint of a witness, for example of a runner; may be repeated
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
}

/// Result of a restore, with its recovery point.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Data directory. `None` after a drill, which removes the directory.
    pub(crate) data: Option<PathBuf>,
    pub(crate) log_id: String,
    /// Last restored position.
    pub(crate) position: u64,
    /// Time of the last restored position, the recovery point.
    #[serde(with = "schemas::moment")]
    pub(crate) recorded_at: DateTime<Utc>,
    pub(crate) root: String,
    /// Number of published checkpoints that the log agrees with.
    pub(crate) checkpoints: u64,
    pub(crate) witnessed: Vec<backup::Coverage>,
    /// Positions of reports that their runner did not sign.
    pub(crate) forged_reports: Vec<u64>,
    pub(crate) took_ms: u64,
    /// Value for `stead migrate --raise-epoch`.
    pub(crate) next_epoch: u64,
    /// Database URL of the role that owns the tables, in the private Postgres.
    pub(crate) database_owner_url: Option<String>,
}

pub(crate) async fn restore(args: Restore, screen: &Screen) -> Result<(), Failure> {
    let (since, stop, data) = (Instant::now(), StopSignals::listen()?, args.database.data()?);
    let lock = DataLock::take_empty(&data).map_err(|error| to_failure(error.into()))?;
    let bar = screen.spinner("restore");
    let progress = |message: String| bar.set_message(message);
    let url = args.database.database_owner_url.as_deref();
    let filled = fill(&args.from, &data, url, &args.against, stop, &progress).await;
    bar.finish_and_clear();
    let report = match filled {
        Ok(filled) => filled.report(Some(data.clone()), since),
        Err(failure) => {
            // The directory was empty before, and a partial restore is useless.
            remove_contents(&data);
            if url.is_some() {
                screen.remark(
                    "Drop the database, if it already contains data: no server may use it.",
                );
            }
            return Err(failure);
        }
    };
    lock.restored(&data).map_err(|error| to_failure(error.into()))?;
    screen.print_one(&report, |_| output::restored(&report))
}

pub(crate) async fn drill(args: Drill, screen: &Screen) -> Result<(), Failure> {
    let (since, stop) = (Instant::now(), StopSignals::listen()?);
    let parent = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let parent = std::path::absolute(parent)?;
    let scratch = tempfile::Builder::new().prefix("stead-drill-").tempdir_in(&parent);
    let scratch = scratch.map_err(|error| {
        Failure::Usage(format!(
            "cannot create a temporary directory in {}: {error}\n  try: another --work-dir",
            parent.display()
        ))
    })?;
    // Postgres may run as another user, and must be able to enter the directory.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711))?;
    let data = scratch.path().join("data");
    let _held = DataLock::take_empty(&data).map_err(|error| to_failure(error.into()))?;
    let bar = screen.spinner("drill");
    let progress = |message: String| bar.set_message(message);
    let filled = fill(&args.from, &data, None, &args.against, stop, &progress).await;
    bar.finish_and_clear();
    let report = filled?.report(None, since);
    scratch.close()?;
    screen.print_one(&report, |_| output::drilled(&report, &args.from))
}

struct RestoredData {
    source: Source,
    restored: Restored,
    owner_url: Option<String>,
}

impl RestoredData {
    fn report(self, data: Option<PathBuf>, since: Instant) -> Report {
        let RestoredData { source, restored, owner_url } = self;
        Report {
            database_owner_url: owner_url.filter(|_| data.is_some()),
            data,
            log_id: source.manifest.log_id,
            position: source.manifest.position,
            recorded_at: source.manifest.recorded_at,
            root: hex::encode(source.checkpoint.root),
            checkpoints: restored.checkpoints,
            witnessed: restored.witnessed,
            forged_reports: restored.forged,
            took_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            next_epoch: restored.next_epoch,
        }
    }
}

/// Restores a backup into an empty, locked data directory. Leaves no Postgres running.
async fn fill(
    from: &Path,
    data: &Path,
    url: Option<&str>,
    against: &Against,
    stop: StopSignals,
    progress: Progress<'_>,
) -> Result<RestoredData, Failure> {
    let source = Source::open(from, &data.join(RESTORING), progress).map_err(to_failure)?;
    let checkpoints: Result<Vec<WitnessCheckpoint>, _> =
        against.against.iter().map(|path| WitnessCheckpoint::read(path, &source)).collect();
    let checkpoints = checkpoints.map_err(to_failure)?;
    backup::restore_files(&source, data, progress).map_err(to_failure)?;
    let (postgres, access) = match url {
        Some(url) => (None, Access::of_url(url).map_err(|error| to_failure(error.into()))?),
        None => {
            progress("starting Postgres".into());
            let postgres = Embedded::start_for_owner(data).await;
            let postgres = postgres.map_err(|error| to_failure(error.into()))?;
            let access = Access::of(postgres.owner());
            (Some(postgres), access)
        }
    };
    let restored = tokio::select! {
        restored = backup::restore_database(&source, &access, &checkpoints, progress) => restored.map_err(to_failure),
        () = stop.received() => Err(Failure::Usage("restore stopped: nothing was restored".into())),
    };
    let mut owner_url = None;
    if let Some(postgres) = postgres {
        owner_url = Some(postgres.urls().1);
        let stopped = postgres.stop().await;
        stopped.map_err(|error| to_failure(BackupError::from(error)))?;
    }
    Ok(RestoredData { source, restored: restored?, owner_url })
}

/// Removes the contents of a directory as far as possible. The caller holds the lock of the
/// directory.
fn remove_contents(data: &Path) {
    for entry in fs::read_dir(data).into_iter().flatten().flatten() {
        let path = entry.path();
        // Removes the marker of an incomplete restore last, when nothing else is left.
        if path.file_name().is_some_and(|name| name == RESTORING) {
            continue;
        }
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
    if fs::read_dir(data).is_ok_and(|entries| entries.count() == 1) {
        let _ = fs::remove_dir_all(data.join(RESTORING));
    }
}
