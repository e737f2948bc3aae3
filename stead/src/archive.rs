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
use sqlx::postgres::PgPoolOptions;

use crate::database_args::DatabaseArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Archive {
    /// Write every closed partition of the log to an archive; the server may run
    #[command(after_help = "\
A partition is closed when the log continues after it, all projections and policies have processed it, and a published \
checkpoint covers it. The rows and the written files are both verified against that checkpoint. No row is dropped.

Without DATABASE_OWNER_URL, uses the private Postgres of the data directory. Run this as the server's user.

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
Without a directory, verifies all archives that the database lists. With a directory, verifies that archive without a \
database, with the keys of --key.

Examples:
  stead archive verify
  stead archive verify /mnt/tape/1-10240000 --key stead/01J…+5f0c…+AS…")]
    Verify(Verify),
    /// Drop archived rows from the database; they are then read from the archives
    #[command(after_help = "\
Verifies files and rows again first, from the oldest range on. Servers keep running. This cannot be undone: back up the \
archives first.

Example:
  stead archive drop --through 10240000")]
    Drop(Drop),
}

/// Database of the log, and the directory of its archives.
#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    place: DatabaseArgs,
    /// Directory of the archives [default: archives in the data directory]
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
    /// Trusted checkpoint key: a verifier key, or 64 hexadecimal digits
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

/// Errors of the archive commands.
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
            // The data differs from what was published. The other errors concern the command or its
            // environment.
            ArchiveCommandError::Archive(
                ArchiveError::Corrupt { .. }
                | ArchiveError::Signer { .. }
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
        Archive::Create(ask) => create(ask, &screen).await,
        Archive::List(ask) => list(ask, &screen).await,
        Archive::Verify(ask) => verify(ask, &screen).await,
        Archive::Drop(ask) => discard(ask, &screen).await,
    };
    done.map_or_else(|failure| failure.report(screen.output), |()| ExitCode::SUCCESS)
}

impl ArchiveArgs {
    /// Runs `work` on the log and its archives, as the owner of the tables.
    async fn as_owner<T>(
        &self,
        work: impl AsyncFnOnce(&sqlx::PgPool, &Archives) -> Result<T, ArchiveError>,
    ) -> Result<T, Failure> {
        let data = self.place.data()?;
        let archives = Archives::at(archives_directory(&data, self.archives.as_deref()));
        let done = self.place.as_owner(&data, async |access: Access| {
            let pool = PgPoolOptions::new().max_connections(4).connect_with(access.options);
            let pool = pool.await.map_err(ArchiveError::from)?;
            let done = work(&pool, &archives).await;
            pool.close().await;
            Ok::<T, ArchiveCommandError>(done?)
        });
        Ok(done.await?)
    }
}

async fn create(ask: Create, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |said: String| bar.set_message(said);
    let made = ask.of.as_owner(async |pool, archives| {
        archives::create(pool, archives, ask.through, &progress).await
    });
    let made = made.await;
    bar.finish_and_clear();
    let made = made?;
    screen.print_one(&made, |_| output::made(&made))
}

async fn list(ask: ArchiveArgs, screen: &Screen) -> Result<(), Failure> {
    let shown = ask.as_owner(async |pool, archives| archives::list(pool, archives).await).await?;
    screen.print_one(&shown, |screen| output::list(&shown, screen))
}

async fn verify(ask: Verify, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |said: String| bar.set_message(said);
    let read = match &ask.directory {
        Some(directory) => verify_directory(directory, &ask.key),
        None => {
            let read = ask
                .of
                .as_owner(async |pool, archives| archives::verify(pool, archives, &progress).await);
            read.await
        }
    };
    bar.finish_and_clear();
    let read = read?;
    screen.print_one(&read, |_| output::read(&read))
}

/// Verifies one archive without a database, with these trusted keys.
fn verify_directory(directory: &Path, keys: &[String]) -> Result<Vec<archives::Range>, Failure> {
    if keys.is_empty() {
        let said = "cannot verify the archive: no trusted key\n  try: --key with a checkpoint key of `stead keys list`";
        return Err(Failure::Usage(said.into()));
    }
    let checked = check(directory, &parse_trusted_keys(keys)?, &mut |_| {});
    let (manifest, proven) = checked.map_err(ArchiveCommandError::from)?;
    Ok(vec![archives::Range { first: proven.from, last: proven.to, bytes: manifest.bytes() }])
}

async fn discard(ask: Drop, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |said: String| bar.set_message(said);
    let dropped = ask.of.as_owner(async |pool, archives| {
        archives::discard(pool, archives, ask.through, &progress).await
    });
    let dropped = dropped.await;
    bar.finish_and_clear();
    let dropped = dropped?;
    screen.print_one(&dropped, |_| output::dropped(&dropped))
}
