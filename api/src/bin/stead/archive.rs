//! `stead archive`: older ranges of the log in files, and their rows out of the database.
pub mod picture;

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
use event_log::{
    Archives,
    archive::{ArchiveError, check},
};
use sqlx::postgres::PgPoolOptions;

use crate::{audit::keys::believed, failure::Failure, place::Place, render::Screen};

#[derive(Debug, Subcommand)]
pub enum Archive {
    /// Write every closed partition of the log into an archive, also while the server runs
    #[command(after_help = "\
A partition is closed when the log goes on after it, every view and policy is beyond it, and a published checkpoint \
covers it. What is read from the database, and what is read back from the files, must lead to that checkpoint. Nothing \
is dropped.

Without DATABASE_OWNER_URL the private Postgres of the data directory is meant. Run it as the server's user.

Examples:
  stead archive create
  stead archive create --through 10240000
  DATABASE_OWNER_URL=postgres://owner@db/stead stead archive create --archives /srv/stead-archives")]
    Create(Create),
    /// List the archives: which ranges, and whether the database still has their rows
    #[command(after_help = "Example:\n  stead archive list")]
    List(Where),
    /// Read archives back: every byte, every hash, up to the signed checkpoint
    #[command(after_help = "\
Without a directory all archives that the database names are read. With one it is read by itself, without a database, \
under the keys that are named.

Examples:
  stead archive verify
  stead archive verify /mnt/tape/1-10240000 --key stead/01J…+5f0c…+AS…")]
    Verify(Verify),
    /// Drop the rows of archives from the database: they are read from the files from then on
    #[command(after_help = "\
Files and rows are proven once more before it, range by range from the oldest. Servers go on working. It cannot be \
undone: have the archives in a backup first.

Example:
  stead archive drop --through 10240000")]
    Drop(Drop),
}

/// Whose log, and where its archives are.
#[derive(Debug, Args)]
pub struct Where {
    #[command(flatten)]
    place: Place,
    /// Where archives are [default: archives in the data directory]
    #[arg(long, env = "STEAD_ARCHIVES", value_name = "DIR")]
    archives: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    of: Where,
    /// Only partitions that end at or before this position
    #[arg(long, value_name = "POSITION")]
    through: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    of: Where,
    /// One archive, by itself
    directory: Option<PathBuf>,
    /// A key of checkpoints that you believe: the whole verifier key, or 64 hexadecimal digits
    #[arg(long, value_name = "KEY", requires = "directory")]
    key: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Drop {
    #[command(flatten)]
    of: Where,
    /// Archives that end at or before this position
    #[arg(long, value_name = "POSITION")]
    through: u64,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
enum Undone {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Postgres(#[from] EmbeddedError),
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl From<Undone> for Failure {
    fn from(error: Undone) -> Failure {
        match &error {
            // What is there is not what was written.
            Undone::Archive(
                ArchiveError::Spoiled { .. }
                | ArchiveError::Signer { .. }
                | ArchiveError::Rows { .. },
            ) => Failure::Outcome(error.to_string()),
            Undone::Archive(
                ArchiveError::Open { .. }
                | ArchiveError::Format { .. }
                | ArchiveError::Unknown(_)
                | ArchiveError::Order { .. }
                | ArchiveError::Busy { .. }
                | ArchiveError::NotOwner(_)
                | ArchiveError::Log(_)
                | ArchiveError::Io { .. },
            )
            | Undone::Postgres(_)
            | Undone::Lock(_) => Failure::Usage(error.to_string()),
        }
    }
}

pub async fn run(verb: Archive, screen: Screen) -> ExitCode {
    let done = match verb {
        Archive::Create(ask) => create(ask, &screen).await,
        Archive::List(ask) => list(ask, &screen).await,
        Archive::Verify(ask) => verify(ask, &screen).await,
        Archive::Drop(ask) => discard(ask, &screen).await,
    };
    done.map_or_else(|failure| failure.report(screen.output), |()| ExitCode::SUCCESS)
}

impl Where {
    /// Work on the log and its archives, as the owner of the tables.
    async fn owned<T>(
        &self,
        work: impl AsyncFnOnce(&sqlx::PgPool, &Archives) -> Result<T, ArchiveError>,
    ) -> Result<T, Failure> {
        let data = self.place.data()?;
        let archives = Archives::at(archives_directory(&data, self.archives.as_deref()));
        let done = self.place.owned(&data, async |access: Access| {
            let pool = PgPoolOptions::new().max_connections(4).connect_with(access.options);
            let pool = pool.await.map_err(ArchiveError::from)?;
            let done = work(&pool, &archives).await;
            pool.close().await;
            Ok::<T, Undone>(done?)
        });
        Ok(done.await?)
    }
}

async fn create(ask: Create, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |said: String| bar.set_message(said);
    let made = ask.of.owned(async |pool, archives| {
        archives::create(pool, archives, ask.through, &progress).await
    });
    let made = made.await;
    bar.finish_and_clear();
    let made = made?;
    screen.one(&made, |_| picture::made(&made))
}

async fn list(ask: Where, screen: &Screen) -> Result<(), Failure> {
    let shown = ask.owned(async |pool, archives| archives::list(pool, archives).await).await?;
    screen.one(&shown, |screen| picture::list(&shown, screen))
}

async fn verify(ask: Verify, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |said: String| bar.set_message(said);
    let read = match &ask.directory {
        Some(directory) => alone(directory, &ask.key),
        None => {
            let read = ask
                .of
                .owned(async |pool, archives| archives::verify(pool, archives, &progress).await);
            read.await
        }
    };
    bar.finish_and_clear();
    let read = read?;
    screen.one(&read, |_| picture::read(&read))
}

/// One archive by itself, under keys that somebody believes.
fn alone(directory: &Path, keys: &[String]) -> Result<Vec<archives::Range>, Failure> {
    if keys.is_empty() {
        let said = "say with --key whose checkpoint is believed: `stead keys list` shows the log's";
        return Err(Failure::Usage(said.into()));
    }
    let checked = check(directory, &believed(keys)?, &mut |_| {});
    let (manifest, proven) = checked.map_err(Undone::from)?;
    Ok(vec![archives::Range { first: proven.from, last: proven.to, bytes: manifest.bytes() }])
}

async fn discard(ask: Drop, screen: &Screen) -> Result<(), Failure> {
    let bar = screen.spinner("archive");
    let progress = |said: String| bar.set_message(said);
    let dropped = ask.of.owned(async |pool, archives| {
        archives::discard(pool, archives, ask.through, &progress).await
    });
    let dropped = dropped.await;
    bar.finish_and_clear();
    let dropped = dropped?;
    screen.one(&dropped, |_| picture::dropped(&dropped))
}
