//! Commands on an app directory that need no server.
use std::path::PathBuf;

use clap::Subcommand;

use super::{Source, check, init};
use crate::{failure::Failure, settings::Settings};

#[derive(Debug, Subcommand)]
pub(crate) enum LocalCommand {
    /// Write a minimal app with comments
    #[command(after_help = "Example:\n  stead apps init ./shop && stead apps sync ./shop")]
    Init {
        /// Directory to create
        dir: PathBuf,
    },
    /// Validate an app directory, without a server
    #[command(after_help = "\
Examples:
  stead apps validate ./shop
  stead apps validate ./shop --output sarif > shop.sarif

The exit code is 2 if there are errors, or with --strict also if there are warnings.")]
    Validate {
        #[command(flatten)]
        source: Source,
        /// Treat warnings as errors
        #[arg(long)]
        strict: bool,
    },
    /// Show the content of an app directory: components in deploy order, inputs, actions,
    /// templates
    #[command(after_help = "\
Examples:
  stead apps inspect ./shop
  stead apps inspect ./shop --output json")]
    Inspect(Source),
}

pub(crate) async fn run(verb: LocalCommand, settings: &Settings) -> Result<(), Failure> {
    match verb {
        LocalCommand::Init { dir } => init::run(&dir, settings),
        LocalCommand::Validate { source, strict } => {
            check::validate(&source, strict, settings).await
        }
        LocalCommand::Inspect(source) => check::inspected(&source, settings).await,
    }
}
