//! A backup comes back: for good, or to see whether it would.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use api::{
    backup::{self, BackupError, Kept, Progress, Restored, Source},
    postgres::{Access, DataLock, Embedded, RESTORING},
};
use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::{picture, refused};
use crate::{failure::Failure, place::Place, render::Screen, serve::Told};

#[derive(Debug, Args)]
pub struct Restore {
    /// Path of the backup
    #[arg(long, value_name = "DIR|FILE")]
    from: PathBuf,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    against: Against,
}

#[derive(Debug, Args)]
pub struct Drill {
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

/// What came back, and how far it reaches.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it is now. A drill's is gone.
    pub data: Option<PathBuf>,
    pub log_id: String,
    /// The last position that is there,
    pub position: u64,
    /// and when it was recorded: the recovery point.
    #[serde(with = "schemas::moment")]
    pub recorded_at: DateTime<Utc>,
    pub root: String,
    /// Number of published checkpoints that the log agrees with.
    pub checkpoints: u64,
    pub witnessed: Vec<backup::Reached>,
    /// Positions of reports that their runner did not sign.
    pub forged_reports: Vec<u64>,
    pub took_ms: u64,
    /// What `stead migrate --raise-epoch` takes.
    pub next_epoch: u64,
    /// The private Postgres, as the owner of the tables.
    pub database_owner_url: Option<String>,
}

pub async fn restore(ask: Restore, screen: &Screen) -> Result<(), Failure> {
    let (since, told, data) = (Instant::now(), Told::listen()?, ask.place.data()?);
    let held = DataLock::take_empty(&data).map_err(|error| refused(error.into()))?;
    let bar = screen.spinner("restore");
    let progress = |said: String| bar.set_message(said);
    let url = ask.place.database_owner_url.as_deref();
    let filled = fill(&ask.from, &data, url, &ask.against, told, &progress).await;
    bar.finish_and_clear();
    let report = match filled {
        Ok(filled) => filled.report(Some(data.clone()), since),
        Err(failure) => {
            // It was empty: what is in it now is of no use to anybody.
            emptied(&data);
            if url.is_some() {
                screen.remark(
                    "If the database was filled already, drop it: nobody may serve from it.",
                );
            }
            return Err(failure);
        }
    };
    held.restored(&data).map_err(|error| refused(error.into()))?;
    screen.one(&report, |_| picture::restored(&report))
}

pub async fn drill(ask: Drill, screen: &Screen) -> Result<(), Failure> {
    let (since, told) = (Instant::now(), Told::listen()?);
    let place = ask.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let place = std::path::absolute(place)?;
    let room = tempfile::Builder::new().prefix("stead-drill-").tempdir_in(&place);
    let room =
        room.map_err(|error| Failure::Usage(format!("--work-dir {}: {error}", place.display())))?;
    // Postgres has to get through, as whoever it runs.
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o711))?;
    let data = room.path().join("data");
    let _held = DataLock::take_empty(&data).map_err(|error| refused(error.into()))?;
    let bar = screen.spinner("drill");
    let progress = |said: String| bar.set_message(said);
    let filled = fill(&ask.from, &data, None, &ask.against, told, &progress).await;
    bar.finish_and_clear();
    let report = filled?.report(None, since);
    room.close()?;
    screen.one(&report, |_| picture::drilled(&report, &ask.from))
}

/// A data directory that is filled.
struct Filled {
    source: Source,
    restored: Restored,
    owner_url: Option<String>,
}

impl Filled {
    fn report(self, data: Option<PathBuf>, since: Instant) -> Report {
        let Filled { source, restored, owner_url } = self;
        Report {
            database_owner_url: owner_url.filter(|_| data.is_some()),
            data,
            log_id: source.manifest.log_id,
            position: source.manifest.position,
            recorded_at: source.manifest.recorded_at,
            root: hex::encode(source.checkpoint.root),
            checkpoints: restored.seals,
            witnessed: restored.witnessed,
            forged_reports: restored.forged,
            took_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            next_epoch: restored.next_epoch,
        }
    }
}

/// Everything into an empty data directory that is held; no Postgres is left running.
async fn fill(
    from: &Path,
    data: &Path,
    url: Option<&str>,
    against: &Against,
    told: Told,
    progress: Progress<'_>,
) -> Result<Filled, Failure> {
    let source = Source::open(from, &data.join(RESTORING), progress).map_err(refused)?;
    let kept: Result<Vec<Kept>, _> =
        against.against.iter().map(|path| Kept::read(path, &source)).collect();
    let kept = kept.map_err(refused)?;
    backup::put_files(&source, data, progress).map_err(refused)?;
    let (postgres, access) = match url {
        Some(url) => (None, Access::of_url(url).map_err(|error| refused(error.into()))?),
        None => {
            progress("starting Postgres".into());
            let postgres = Embedded::start_for_owner(data).await;
            let postgres = postgres.map_err(|error| refused(error.into()))?;
            let access = Access::of(postgres.owner());
            (Some(postgres), access)
        }
    };
    let restored = tokio::select! {
        restored = backup::fill_database(&source, &access, &kept, progress) => restored.map_err(refused),
        () = told.heard() => Err(Failure::Usage("stopped; nothing was restored".into())),
    };
    let mut owner_url = None;
    if let Some(postgres) = postgres {
        owner_url = Some(postgres.urls().1);
        let stopped = postgres.stop().await;
        stopped.map_err(|error| refused(BackupError::from(error)))?;
    }
    Ok(Filled { source, restored: restored?, owner_url })
}

/// Remove what is in a directory, as well as it goes; its lock is still held.
fn emptied(data: &Path) {
    for entry in fs::read_dir(data).into_iter().flatten().flatten() {
        let path = entry.path();
        // The sign that it is not whole goes last, with what is left.
        if path.file_name().is_some_and(|name| name == RESTORING) {
            continue;
        }
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
    if fs::read_dir(data).is_ok_and(|left| left.count() == 1) {
        let _ = fs::remove_dir_all(data.join(RESTORING));
    }
}
