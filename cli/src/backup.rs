//! `stead backup`: everything of a server that must come back, in its data directory and in its database.
pub(crate) mod picture;
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

use crate::{failure::Failure, place::Place, render::Screen, serve::Told};

#[derive(Debug, Subcommand)]
pub(crate) enum Backup {
    /// Make a backup, also while the server runs
    #[command(after_help = "\
It has the database, the keys that the server signs with, the artifacts and the first owner's token: who has it can \
be the server. Every file is made with mode 0600; keep it like the keys. It is there whole, or not at all.

Run it as the server's user, or as root. Without DATABASE_OWNER_URL the private Postgres of the data directory is \
meant. A name that ends in .tar makes one file, for which twice the room is needed.

Examples:
  stead backup create --out /backups/2026-11-21
  DATABASE_OWNER_URL=postgres://owner@db/stead stead backup create --out today.tar")]
    Create(Create),
    /// Restore a backup into an empty directory, and verify it
    #[command(after_help = "\
Every byte is compared with the backup's manifest before anything is restored, and the whole log is read again after \
it: it must be the one of the checkpoint that was signed when the backup was made. With --against also what a runner \
kept (<runner data>/checkpoint) is compared: it says which positions are missing.

With DATABASE_OWNER_URL the database goes there, into an empty one, and only the rest into the directory.

As root: everything is given to the owner of the directory, so make it for the user that runs the server.

Examples:
  stead backup restore --from /backups/2026-11-21 --data /var/lib/stead
  stead backup restore --from today.tar --data ./data --against checkpoint-of-acme")]
    Restore(restore::Restore),
    /// Restore a backup elsewhere, verify it, say how far it reaches, and remove it
    #[command(after_help = "\
Nothing of a server is touched: a private Postgres is started in a temporary directory, and both are gone afterwards.

Examples:
  stead backup drill --from /backups/2026-11-21
  stead backup drill --from today.tar --against checkpoint-of-acme --in /var/tmp")]
    Drill(restore::Drill),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    place: Place,
    /// Where the backup goes: a directory that is not there yet, or a file that ends in .tar
    #[arg(long, value_name = "DIR|FILE")]
    out: PathBuf,
    /// Where archives of the log are [default: archives in the data directory]
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
    let (told, data) = (Told::listen()?, ask.place.data()?);
    let bar = screen.spinner("backup");
    let progress = |said: String| bar.set_message(said);
    // What is given up in the middle takes with it what it has copied: keys, too.
    let made = tokio::select! {
        made = made(&ask, &data, &progress) => made.map_err(refused),
        () = told.heard() => Err(Failure::Usage("stopped; no backup was made".into())),
    };
    bar.finish_and_clear();
    let manifest = made?;
    screen.one(&manifest, |_| picture::made(&manifest, &ask.out))
}

async fn made(ask: &Create, data: &Path, progress: Progress<'_>) -> Result<Manifest, BackupError> {
    let now = api::state::system_clock()();
    let archives = archives_directory(data, ask.archives.as_deref());
    let make = async |access: Access| {
        backup::create((data, &archives), &access, &ask.out, now, progress).await
    };
    ask.place.owned(data, make).await
}

/// A backup that is not what it was is bad work, not a wrong command.
fn refused(error: BackupError) -> Failure {
    if error.is_bad_backup() {
        Failure::Outcome(error.to_string())
    } else {
        Failure::Usage(error.to_string())
    }
}
