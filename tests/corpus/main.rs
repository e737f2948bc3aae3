//! Runs real app directories through their complete lifecycle, with the product's programs only.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed app panics")]
#![allow(clippy::disallowed_methods, reason = "the harness starts processes and threads")]

mod api_proxy;
mod app;
mod available;
mod caretaker;
mod chart_repositories;
mod cluster;
mod drift;
mod http;
mod images;
mod installed;
mod journey;
mod manifests;
mod older_versions;
mod pods;
mod report;
mod rules;
mod schedule;
mod schema;
mod second_version;
mod session;
mod sources;
mod stand_in;
mod web;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;

/// Take each app directory from git to everything up, a second version, drift, teardown, and a
/// second install
#[derive(Debug, Clone, Parser)]
#[command(
    name = "scripts/corpus",
    after_help = "\
Each app is `up`, `up with substitutions: …`, `waits for …` or `FAILED`. The exit code is 1 if an app
failed. tests/corpus/substitutions.toml contains what the command substitutes, and why.

The apps need git, Terraform, and the engines of scripts/test-tools. A cluster is used by one app at
a time."
)]
struct Args {
    /// Directory of app directories
    #[arg(long, env = "CORPUS_APPS")]
    apps: PathBuf,
    /// Directory with the modules and charts of the apps: OWNER/REPO/DIRECTORY
    #[arg(long, env = "CORPUS_REPOS")]
    repos: PathBuf,
    /// Maximum number of concurrent apps
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Timeout of each app, in seconds
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// Directory for the logs of apps that failed
    #[arg(long, default_value = "target/corpus")]
    logs: PathBuf,
    /// File for the results, as JSON
    #[arg(long)]
    results: Option<PathBuf>,
    /// Keep the working directories
    #[arg(long)]
    keep: bool,
    /// Print each app's progress
    #[arg(long, short)]
    verbose: bool,
    /// Runs one app in this directory, and writes its report to `report.json` there
    #[arg(long, hide = true)]
    one: Option<PathBuf>,
    /// Names of the apps; all by default
    names: Vec<String>,
}

fn main() -> ExitCode {
    let _first = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    match &args.one {
        None => schedule::all(&args),
        Some(work) => {
            let name = args.names.first().unwrap();
            let place = journey::Place {
                app: args.apps.join(name),
                repos: args.repos.clone(),
                work: work.clone(),
                stead: installed::stead(work.parent().unwrap()),
                logs: args.logs.join(name),
                timeout: Duration::from_secs(args.timeout),
                keep: args.keep,
            };
            let report = report::of_app(&place);
            std::fs::write(work.join("report.json"), report.to_string()).unwrap();
            ExitCode::SUCCESS
        }
    }
}
