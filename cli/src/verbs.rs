//! Commands of the client, one module per noun.
use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};

use crate::{
    apps, audit, builds, failure::Failure, installs, jobs, login, plugins, projections, runners,
    runs, settings::Settings, subjects, templates, tokens, webhooks,
};

/// A command of the client, for the command line of the program.
#[derive(Debug)]
pub struct ClientCommand(Verb);

// This impl is not derived: clap needs an enum, whose variants would make every argument type
// public.
impl FromArgMatches for ClientCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Verb::from_arg_matches(matches).map(ClientCommand)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for ClientCommand {
    fn augment_subcommands(command: Command) -> Command {
        Verb::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Verb::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Verb::has_subcommand(name)
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Manage apps and their config versions
    #[command(subcommand)]
    Apps(apps::Apps),
    /// List, show and retry builds of components
    #[command(subcommand)]
    Builds(builds::Builds),
    /// Publish plugins: executables that implement component types
    #[command(subcommand)]
    Plugins(plugins::Plugins),
    /// Manage installs: copies of an app in customers' cloud accounts
    #[command(subcommand)]
    Installs(installs::Installs),
    /// Follow, approve, cancel and retry runs: operations on installs
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Show, cancel and resolve jobs: units of work of a runner
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    /// Manage runners: agents in customers' accounts, and build runners
    #[command(subcommand)]
    Runners(runners::Runners),
    /// Query, prove and verify the audit log
    #[command(subcommand)]
    Audit(audit::Audit),
    /// List, query, rebuild and verify projections (read models)
    #[command(subcommand)]
    Projections(projections::Projections),
    /// Render and explain templates, without a server
    #[command(subcommand)]
    Templates(templates::Templates),
    /// Manage tokens, principals and their roles
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// Send messages about events to HTTP endpoints
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// Show and shred the personal data of data subjects
    #[command(subcommand)]
    Subjects(subjects::Subjects),
    Login(login::Login),
    /// Delete the stored server address and token
    #[command(after_help = "Example:\n  stead logout")]
    Logout,
    /// Show the principal and roles of the token
    #[command(after_help = "Example:\n  stead whoami")]
    Whoami,
    /// Print a shell completion script
    #[command(after_help = "Example:\n  stead completions bash > /etc/bash_completion.d/stead")]
    Completions {
        /// Name of the shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Runs a command. `program` is the complete definition of the command line, for the shell
/// completions.
pub async fn run(command: ClientCommand, settings: &Settings, mut program: Command) -> ExitCode {
    let done = match command.0 {
        Verb::Apps(verb) => apps::run(verb, settings).await,
        Verb::Builds(verb) => builds::run(verb, settings).await,
        Verb::Plugins(verb) => plugins::run(verb, settings).await,
        Verb::Installs(verb) => installs::run(verb, settings).await,
        Verb::Runs(verb) => runs::run(verb, settings).await,
        Verb::Jobs(verb) => jobs::run(verb, settings).await,
        Verb::Runners(verb) => runners::run(verb, settings).await,
        Verb::Audit(verb) => audit::run(verb, settings).await,
        Verb::Projections(verb) => projections::run(verb, settings).await,
        Verb::Templates(verb) => templates::run(verb, settings),
        Verb::Tokens(verb) => tokens::run(verb, settings).await,
        Verb::Webhooks(verb) => webhooks::run(verb, settings).await,
        Verb::Subjects(verb) => subjects::run(verb, settings).await,
        Verb::Login(login::Login {}) => login::run(settings).await,
        Verb::Logout => login::logout(settings),
        Verb::Whoami => login::whoami(settings).await,
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut program, "stead", &mut text);
            crate::render::write(&String::from_utf8_lossy(&text))
        }
    };
    done.map_or_else(
        |failure: Failure| failure.report(settings.screen().output),
        |()| ExitCode::SUCCESS,
    )
}
