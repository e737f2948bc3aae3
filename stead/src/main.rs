//! `stead`: runs and maintains the server, and calls its Control API.
mod archive;
mod backup;
mod build_runner;
mod database_args;
mod keys;
mod migrate;
mod plugins;
mod serve;
mod up;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cli::{ClientCommand, failure, settings::Settings};

/// Memory allocator of the server. While ten thousand runners connect, the server needs several
/// times the memory of ten thousand open long polls. glibc does not return this memory, because
/// each page keeps a few live objects. jemalloc returns it within seconds, in a background thread.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Run your app in your customers' cloud accounts, without access to them
#[derive(Debug, Parser)]
#[command(name = "stead", version, after_help = failure::EXIT_CODES, max_term_width = 100)]
struct Stead {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(Box<up::Up>),
    Serve(Box<serve::Serve>),
    Migrate(migrate::Migrate),
    /// List and rotate the signing keys of the server
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Create, test and restore backups of a server
    #[command(subcommand)]
    Backup(backup::Backup),
    /// Copy closed partitions of the log to files, verify the files, and drop the copied rows
    #[command(subcommand)]
    Archive(archive::Archive),
    #[command(flatten)]
    Client(ClientCommand),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Stead { settings, command } = match Stead::try_parse() {
        Ok(text) => text,
        Err(error) => return failure::report_usage(&error),
    };
    match command {
        Command::Up(up) => up::run(*up, settings.screen().output).await,
        Command::Serve(serve) => serve::run(*serve, settings.screen().output).await,
        Command::Migrate(migrate) => migrate::run(migrate, settings.screen().output).await,
        Command::Keys(keys) => keys::run(keys, settings.screen()).map_or_else(
            |failure| failure.report(settings.screen().output),
            |()| ExitCode::SUCCESS,
        ),
        Command::Backup(backup) => backup::run(backup, settings.screen()).await,
        Command::Archive(archive) => archive::run(archive, settings.screen()).await,
        Command::Client(command) => cli::run(command, &settings, Stead::command()).await,
    }
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod help;
#[cfg(test)]
mod tampering;
