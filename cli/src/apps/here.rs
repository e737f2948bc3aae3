//! What can be done with an app directory without a server.
use std::path::PathBuf;

use clap::Subcommand;

use super::{Source, check, init};
use crate::{failure::Failure, settings::Settings};

#[derive(Debug, Subcommand)]
pub(crate) enum Here {
    /// Write a small app with a word on everything in it
    #[command(after_help = "Example:\n  stead apps init ./shop && stead apps sync ./shop")]
    Init {
        /// The directory to write to
        dir: PathBuf,
    },
    /// Check an app directory here, without a server
    #[command(after_help = "\
Examples:
  stead apps validate ./shop
  stead apps validate ./shop --output sarif > shop.sarif
Exit code 2 when something has to be corrected; warnings alone give 0, with --strict 2 too.")]
    Validate {
        #[command(flatten)]
        source: Source,
        /// Take warnings as errors
        #[arg(long)]
        strict: bool,
    },
    /// Show what an app directory says: components and their order, inputs, actions, templates
    #[command(after_help = "\
Examples:
  stead apps inspect ./shop
  stead apps inspect ./shop --output json")]
    Inspect(Source),
}

pub(crate) async fn run(verb: Here, settings: &Settings) -> Result<(), Failure> {
    match verb {
        Here::Init { dir } => init::run(&dir, settings),
        Here::Validate { source, strict } => check::validate(&source, strict, settings).await,
        Here::Inspect(source) => check::inspected(&source, settings).await,
    }
}
