//! `stead backup`: backups of the data directory and the database, restores and restore drills.
pub(crate) mod output;
pub(crate) mod restore;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use api::{
    backup::{self, BackupError, Manifest, Progress},
    postgres::Access,
    server::archives_directory,
};
use clap::{Args, Subcommand};
use cli::{failure::Failure, render::Screen};

use crate::{database_args::DatabaseArgs, serve::StopSignals};

#[derive(Debug, Subcommand)]
pub(crate) enum Backup {
    /// Create a backup; the server may run
    #[command(after_help = "\
A backup contains the database, the signing keys of the server, the artifacts and the first owner's token. A party that \
has it can impersonate the server: protect it like the keys. Every file has mode 0600. The backup appears under its name \
only when it is complete.

Run the command as the server's user, or as root. Without DATABASE_OWNER_URL, it uses the private Postgres of the data \
directory. If the name ends in .tar, the backup is one file. This needs twice the space.

Examples:
  stead backup create --out /backups/2026-11-21
  DATABASE_OWNER_URL=postgres://owner@db/stead stead backup create --out today.tar")]
    Create(Create),
    /// Restore a backup into an empty directory and verify it
    #[command(after_help = "\
Checks every byte against the backup's manifest first, and verifies the whole restored log against the checkpoint of \
the backup. --against compares with a runner's checkpoint (<runner data>/checkpoint) and lists missing positions.

With DATABASE_OWNER_URL, restores into that database, which must be empty, and the rest into the directory.

As root, restored files belong to the owner of the directory: create it for the user that runs the server.

Examples:
  stead backup restore --from /backups/2026-11-21 --data /var/lib/stead
  stead backup restore --from today.tar --data ./data --against checkpoint-of-acme")]
    Restore(restore::Restore),
    /// Test a backup: restore it to a temporary place, verify it, print its recovery point, and delete it
    #[command(after_help = "\
Does not touch the server: starts a private Postgres in a temporary directory, and deletes both afterwards.

Examples:
  stead backup drill --from /backups/2026-11-21
  stead backup drill --from today.tar --against checkpoint-of-acme --work-dir /var/tmp")]
    Drill(restore::Drill),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    place: DatabaseArgs,
    /// Path of the backup: a new directory, or a new file that ends in .tar
    #[arg(long, value_name = "DIR|FILE")]
    out: PathBuf,
    /// Directory of the archives [default: archives in the data directory]
    #[arg(long, env = "STEAD_ARCHIVES", value_name = "DIR")]
    archives: Option<PathBuf>,
}

pub(crate) async fn run(verb: Backup, screen: Screen) -> ExitCode {
    let done = match verb {
        Backup::Create(ask) => create(ask, &screen).await,
        Backup::Restore(ask) => restore::restore(ask, &screen).await,
        Backup::Drill(ask) => restore::drill(ask, &screen).await,
    };
    done.map_or_else(|failure| failure.report(screen.output), |()| ExitCode::SUCCESS)
}

async fn create(ask: Create, screen: &Screen) -> Result<(), Failure> {
    let (told, data) = (StopSignals::listen()?, ask.place.data()?);
    let bar = screen.spinner("backup");
    let progress = |said: String| bar.set_message(said);
    // A stopped backup removes its partial copy, which contains keys.
    let made = tokio::select! {
        made = made(&ask, &data, &progress) => made.map_err(to_failure),
        () = told.received() => Err(Failure::Usage("backup stopped: no backup was created".into())),
    };
    bar.finish_and_clear();
    let manifest = made?;
    screen.print_one(&manifest, |_| output::made(&manifest, &ask.out))
}

async fn made(ask: &Create, data: &Path, progress: Progress<'_>) -> Result<Manifest, BackupError> {
    let now = api::clock::system_clock()();
    let archives = archives_directory(data, ask.archives.as_deref());
    let make = async |access: Access| {
        backup::create((data, &archives), &access, &ask.out, now, progress).await
    };
    ask.place.as_owner(data, make).await
}

/// Maps an invalid backup to a failed operation, and other errors to wrong usage.
fn to_failure(error: BackupError) -> Failure {
    if error.is_bad_backup() {
        Failure::Outcome(error.to_string())
    } else {
        Failure::Usage(error.to_string())
    }
}
