//! `stead migrate`: creates and migrates the tables, as their owner.
use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use cli::render::Output;
use event_log::{Archives, Source, partitions};

use crate::serve::{data_directory, finish};

/// Create and migrate the tables of an existing database (DATABASE_OWNER_URL)
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  DATABASE_OWNER_URL=postgres://owner@db/stead stead migrate
  stead migrate --raise-epoch 3    after a restore; see docs/operations.md")]
pub(crate) struct Migrate {
    /// Database URL of the role that owns the tables
    #[arg(long, env = "DATABASE_OWNER_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) database_owner_url: String,
    /// Set the epoch of the log after a restore: one more than the highest epoch in the runners'
    /// checkpoints
    #[arg(long, value_name = "N")]
    pub(crate) raise_epoch: Option<u32>,
    /// Directory of the archives, if any; rebuilds of projections read the archives
    #[arg(long, env = "STEAD_ARCHIVES", value_name = "DIR")]
    pub(crate) archives: Option<PathBuf>,
    /// Positions per partition of the log, rounded up to blocks of 256
    #[arg(long, value_name = "POSITIONS", default_value_t = partitions::SIZE)]
    pub(crate) partition_events: u64,
    /// The server's data directory: rebuilds of projections need its keys [default: as for `stead
    /// serve`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// Migrates the tables, and prints the changes.
pub(crate) async fn run(migrate: Migrate, output: Output) -> ExitCode {
    finish(migrate.migrate(output).await, output)
}

impl Migrate {
    async fn migrate(self, output: Output) -> anyhow::Result<()> {
        let pool = event_log::connect(&self.database_owner_url, 4).await?;
        let archives = self.archives.as_ref().map(Archives::at).unwrap_or_default();
        let keys = match data_directory(self.data.as_ref()) {
            Ok(data) => api::keys::wrapping::load(&data.join("keys"))?,
            Err(error) if self.data.is_some() => return Err(error),
            Err(_) => event_log::KeyRing::default(),
        };
        let ran = api::server::prepare(Source::new(&pool, &archives, &keys)).await?;
        let today = api::system_clock()().date_naive();
        let days =
            api::job_log_days::create_missing(&pool, today, api::job_log_days::MIGRATE_AHEAD)
                .await?;
        let ranges =
            partitions::create_missing(&pool, self.partition_events, partitions::FAR_AHEAD).await?;
        if let Some(epoch) = self.raise_epoch {
            api::server::raise_epoch(&pool, epoch).await?;
        }
        let role = event_log::migrate::APPLICATION_ROLE;
        let has_role = event_log::migrate::has_application_role(&pool).await?;
        pool.close().await;
        if output != Output::Table {
            let last = days.last();
            println!(
                "{}",
                serde_json::json!({"ran": ran, "epoch": self.raise_epoch, "job_log_days": days.len(), "job_log_until": last, "log_until": ranges.last().map(|last| last.last), "application_role": has_role})
            );
            return Ok(());
        }
        if let Some(epoch) = self.raise_epoch {
            println!("Set the epoch of the log to {epoch}");
        }
        if let Some(last) = days.last() {
            println!("Created {} daily partitions for job logs, up to {last}", days.len());
        }
        if let Some(last) = ranges.last() {
            println!(
                "Created {} partitions of the log, up to position {}",
                ranges.len(),
                last.last
            );
        }
        if ran.is_empty() && days.is_empty() && ranges.is_empty() && self.raise_epoch.is_none() {
            println!("No changes: the tables are up to date");
        }
        for name in ran {
            println!("Applied {name}");
        }
        if !has_role {
            eprintln!(
                "warning: the role {role} does not exist; servers use it to read and append events without the right to change them\n  \
                 try: create role {role} login password '…', then run this command again"
            );
        }
        Ok(())
    }
}
