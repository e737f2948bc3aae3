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
    /// Create a backup; the server can keep running
    #[command(after_help = "\
A backup contains the database, the signing keys of the server, the artifacts, and owner.token if that file exists. A \
party that has the backup can impersonate the server: protect the backup like the keys. Every file has mode 0600. The backup \
appears under its name only when it is complete.

Run the command as the server's user, or as root. Without DATABASE_OWNER_URL, it uses the private Postgres of the data \
directory. If the name ends in .tar, the backup is one file, and its creation needs twice the space.

Examples:
  stead backup create --out /backups/2026-11-21
  DATABASE_OWNER_URL=postgres://owner@db/stead stead backup create --out today.tar")]
    Create(Create),
    /// Restore a backup into an empty directory and verify it
    #[command(after_help = "\
The command first checks every byte against the manifest of the backup. Then it verifies the whole restored log against \
the checkpoint of the backup. With --against, it also compares the log with a runner's checkpoint \
(<runner data>/checkpoint), and lists missing positions.

DATABASE_OWNER_URL selects another database, which must be empty. The other files go to the data directory.

If you run the command as root, first create the data directory and make the server's user its owner: the restored files get that owner.

Examples:
  stead backup restore --from /backups/2026-11-21 --data /var/lib/stead
  stead backup restore --from today.tar --data ./data --against checkpoint-of-acme")]
    Restore(restore::Restore),
    /// Test a backup: restore a temporary copy, verify it, and print its recovery point
    #[command(after_help = "\
The drill does not use the server. It starts a private Postgres in a temporary directory, and deletes both at its end.

Examples:
  stead backup drill --from /backups/2026-11-21
  stead backup drill --from today.tar --against checkpoint-of-acme --work-dir /var/tmp")]
    Drill(restore::Drill),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Path of the backup: a new directory, or a new file that ends in .tar
    #[arg(long, value_name = "DIR|FILE")]
    out: PathBuf,
    /// Directory of the archives [default: `archives` in the data directory]
    #[arg(long, env = "STEAD_ARCHIVES", value_name = "DIR")]
    archives: Option<PathBuf>,
}

pub(crate) async fn run(verb: Backup, screen: Screen) -> ExitCode {
    let done = match verb {
        Backup::Create(args) => create(args, &screen).await,
        Backup::Restore(args) => restore::restore(args, &screen).await,
        Backup::Drill(args) => restore::drill(args, &screen).await,
    };
    done.map_or_else(|failure| failure.report(screen.output), |()| ExitCode::SUCCESS)
}

async fn create(args: Create, screen: &Screen) -> Result<(), Failure> {
    let (stop, data) = (StopSignals::listen()?, args.database.data()?);
    let bar = screen.spinner("backup");
    let progress = |message: String| bar.set_message(message);
    // A stopped backup removes its partial copy, which contains keys.
    let created = tokio::select! {
        created = create_backup(&args, &data, &progress) => created.map_err(to_failure),
        () = stop.received() => Err(Failure::Usage("backup stopped: no backup was created".into())),
    };
    bar.finish_and_clear();
    let manifest = created?;
    screen.print_one(&manifest, |_| output::created(&manifest, &args.out))
}

async fn create_backup(
    args: &Create,
    data: &Path,
    progress: Progress<'_>,
) -> Result<Manifest, BackupError> {
    let now = api::system_clock()();
    let archives = archives_directory(data, args.archives.as_deref());
    let make = async |access: Access| {
        backup::create((data, &archives), &access, &args.out, now, progress).await
    };
    args.database.as_owner(data, make).await
}

/// Maps an invalid backup to a failed operation, and other errors to wrong usage.
fn to_failure(error: BackupError) -> Failure {
    if error.is_bad_backup() {
        Failure::Outcome(error.to_string())
    } else {
        Failure::Usage(error.to_string())
    }
}
