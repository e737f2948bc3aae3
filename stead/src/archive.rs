//! `stead archive`: copies closed log partitions to files, verifies them, and drops their rows.
pub(crate) mod output;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use api::{
    archives,
    postgres::{Access, EmbeddedError, LockError},
    server::archives_directory,
};
use clap::{Args, Subcommand};
use cli::{failure::Failure, parse_trusted_keys, render::Screen};
use event_log::{
    Archives,
    archive::{ArchiveError, check},
};

use crate::database_args::DatabaseArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Archive {
    /// Write every closed partition of the log to an archive; servers can keep running
    #[command(after_help = "\
A partition is closed when the log continues after it, all projections and policies have processed it, and a published \
checkpoint covers it. The command verifies the rows and the written files against that checkpoint. It drops no row.

Run the command as the server's user. Without DATABASE_OWNER_URL, it uses the private Postgres of the data directory.

Examples:
  stead archive create
  stead archive create --through 10240000
  DATABASE_OWNER_URL=postgres://owner@db/stead stead archive create --archives /srv/stead-archives")]
    Create(Create),
    /// List the archives with their ranges, and whether the database still has the rows
    #[command(after_help = "Example:\n  stead archive list")]
    List(ArchiveArgs),
    /// Verify archives: every byte and hash, up to the signed checkpoint
    #[command(after_help = "\
Without a directory, the command verifies all archives that the database lists. With a directory, it verifies that \
archive with the keys of --key, without a database.

Examples:
  stead archive verify
  stead archive verify /mnt/tape/1-10240000 --key stead/01J…+5f0c…+AS…")]
    Verify(Verify),
    /// Drop archived rows from the database; servers then read the events from the archives
    #[command(after_help = "\
The command first verifies the files and the rows again, starting with the oldest archive. Servers can keep running. A drop \
cannot be undone: back up the archives first.

Example:
  stead archive drop --through 10240000")]
    Drop(Drop),
}

/// Database of the log, and the directory of its archives.
#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Directory of the archives [default: `archives` in the data directory]
    #[arg(long, env = "STEAD_ARCHIVES", value_name = "DIR")]
    archives: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    of: ArchiveArgs,
    /// Archive only partitions that end at or before this position
    #[arg(long, value_name = "POSITION")]
    through: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    of: ArchiveArgs,
    /// Directory of one archive, verified without a database
    directory: Option<PathBuf>,
    /// Trusted checkpoint key: a verifier key, 64 hexadecimal digits, or a fingerprint; may be
    /// repeated
    #[arg(long, value_name = "KEY", requires = "directory")]
    key: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Drop {
    #[command(flatten)]
    of: ArchiveArgs,
    /// Drop the rows of archives that end at or before this position
    #[arg(long, value_name = "POSITION")]
    through: u64,
}

#[derive(Debug, thiserror::Error)]
enum ArchiveCommandError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Postgres(#[from] EmbeddedError),
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl From<ArchiveCommandError> for Failure {
    fn from(error: ArchiveCommandError) -> Failure {
        match &error {
            // Corrupt archives, untrusted signers and differing rows are failed verifications. The
            // other errors concern the command line or the environment.
            ArchiveCommandError::Archive(
                ArchiveError::Corrupt { .. }
                | ArchiveError::Signer { .. }
                | ArchiveError::NoSigner { .. }
                | ArchiveError::Rows { .. },
            ) => Failure::Outcome(error.to_string()),
            ArchiveCommandError::Archive(
                ArchiveError::NotClosed { .. }
                | ArchiveError::Format { .. }
                | ArchiveError::Unknown(_)
                | ArchiveError::Order { .. }
                | ArchiveError::Busy { .. }
                | ArchiveError::NotOwner(_)
                | ArchiveError::Log(_)
                | ArchiveError::Io { .. },
            )
            | ArchiveCommandError::Postgres(_)
            | ArchiveCommandError::Lock(_) => Failure::Usage(error.to_string()),
        }
    }
}

pub(crate) async fn run(verb: Archive, screen: Screen) -> ExitCode {
    let done = match verb {
        Archive::Create(args) => create(args, &screen).await,
        Archive::List(args) => list(args, &screen).await,
        Archive::Verify(args) => verify(args, &screen).await,
        Archive::Drop(args) => discard(args, &screen).await,
    };
    done.map_or_else(|failure| failure.report(screen.output), |()| ExitCode::SUCCESS)
}

impl ArchiveArgs {
    /// Runs `work` on the log and its archives, as the owner of the tables.
    async fn as_owner<T>(
        &self,
        work: impl AsyncFnOnce(&sqlx::PgPool, &Archives) -> Result<T, ArchiveError>,
    ) -> Result<T, Failure> {
        let data = self.database.data()?;
        let archives = Archives::at(archives_directory(&data, self.archives.as_deref()));
        let done = self.database.as_owner(&data, async |access: Access| {
            let pool = event_log::pool().max_connections(4).connect_with(access.options);
            let pool = pool.await.map_err(ArchiveError::from)?;
            let done = work(&pool, &archives).await;
            pool.close().await;
            Ok::<T, ArchiveCommandError>(done?)
        });
        Ok(done.await?)
    }
}

async fn create(args: Create, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |message: String| bar.set_message(message);
    let archived = args.of.as_owner(async |pool, archives| {
        archives::create(pool, archives, args.through, &progress).await
    });
    let archived = archived.await;
    bar.finish_and_clear();
    let archived = archived?;
    screen.print_one(&archived, |_| output::created(&archived))
}

async fn list(args: ArchiveArgs, screen: &Screen) -> Result<(), Failure> {
    let listed = args.as_owner(async |pool, archives| archives::list(pool, archives).await).await?;
    screen.print_one(&listed, |screen| output::list(&listed, screen))
}

async fn verify(args: Verify, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |message: String| bar.set_message(message);
    let report = match &args.directory {
        Some(directory) => verify_directory(directory, &args.key),
        None => {
            let report = args
                .of
                .as_owner(async |pool, archives| archives::verify(pool, archives, &progress).await);
            report.await
        }
    };
    bar.finish_and_clear();
    let report = report?;
    screen.print_one(&report, |_| output::verified(&report))
}

/// Verifies one archive with the trusted keys, without a database.
fn verify_directory(directory: &Path, keys: &[String]) -> Result<Vec<archives::Range>, Failure> {
    if keys.is_empty() {
        let message = "cannot verify the archive: no trusted key\n  try: --key with a checkpoint key of `stead keys list`";
        return Err(Failure::Usage(message.into()));
    }
    let checked = check(directory, &parse_trusted_keys(keys)?, &mut |_| {});
    let (manifest, proven) = checked.map_err(ArchiveCommandError::from)?;
    Ok(vec![archives::Range { first: proven.from, last: proven.to, bytes: manifest.bytes() }])
}

async fn discard(args: Drop, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |message: String| bar.set_message(message);
    let dropped = args.of.as_owner(async |pool, archives| {
        archives::discard(pool, archives, args.through, &progress).await
    });
    let dropped = dropped.await;
    bar.finish_and_clear();
    let dropped = dropped?;
    screen.print_one(&dropped, |_| output::dropped(&dropped))
}
