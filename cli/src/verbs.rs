//! Everything that talks to a server: one file per noun.
use std::process::ExitCode;

use clap::{Command, Subcommand};

use crate::{
    apps, audit, builds, failure::Failure, installs, jobs, login, projections, runners, runs,
    settings::Settings, subjects, templates, tokens,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Apps and their config versions
    #[command(subcommand)]
    Apps(apps::Apps),
    /// Builds: from sources to artifacts
    #[command(subcommand)]
    Builds(builds::Builds),
    /// Installs: copies of an app in customers' accounts
    #[command(subcommand)]
    Installs(installs::Installs),
    /// Runs: what is being done to an install, and the plans that wait for a word
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Jobs: units of work, and their logs
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    /// Runners: the agents in the accounts, and the build runners
    #[command(subcommand)]
    Runners(runners::Runners),
    /// The log: events, states of then, proofs
    #[command(subcommand)]
    Audit(audit::Audit),
    /// The read side: how far it is, rebuild, verify
    #[command(subcommand)]
    Projections(projections::Projections),
    /// Templates: what they give over a state, and what they read; asks no server
    #[command(subcommand)]
    Templates(templates::Templates),
    /// Tokens: who may do what
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// Subjects: whose data is kept, and its end
    #[command(subcommand)]
    Subjects(subjects::Subjects),
    Login(login::Login),
    /// Forget the kept server and token
    #[command(after_help = "Example:\n  stead logout")]
    Logout,
    /// Say who the token belongs to
    #[command(after_help = "Example:\n  stead whoami")]
    Whoami,
    /// Print the completions of a shell
    #[command(after_help = "Example:\n  stead completions bash > /etc/bash_completion.d/stead")]
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Do it. `command` is the whole command line, for the completions.
pub(crate) async fn run(verb: Verb, settings: &Settings, mut command: Command) -> ExitCode {
    let done = match verb {
        Verb::Apps(verb) => apps::run(verb, settings).await,
        Verb::Builds(verb) => builds::run(verb, settings).await,
        Verb::Installs(verb) => installs::run(verb, settings).await,
        Verb::Runs(verb) => runs::run(verb, settings).await,
        Verb::Jobs(verb) => jobs::run(verb, settings).await,
        Verb::Runners(verb) => runners::run(verb, settings).await,
        Verb::Audit(verb) => audit::run(verb, settings).await,
        Verb::Projections(verb) => projections::run(verb, settings).await,
        Verb::Templates(verb) => templates::run(verb, settings),
        Verb::Tokens(verb) => tokens::run(verb, settings).await,
        Verb::Subjects(verb) => subjects::run(verb, settings).await,
        Verb::Login(login::Login {}) => login::run(settings).await,
        Verb::Logout => login::logout(settings),
        Verb::Whoami => login::whoami(settings).await,
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "stead", &mut text);
            crate::render::write(&String::from_utf8_lossy(&text))
        }
    };
    done.map_or_else(
        |failure: Failure| failure.report(settings.screen().output),
        |()| ExitCode::SUCCESS,
    )
}
