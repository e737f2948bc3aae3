//! `stead apps`: apps and their config versions.
mod check;
mod directory;
mod here;
mod init;
mod pack;
mod plugin;
mod remote;
mod text;

use std::{path::PathBuf, time::Duration};

use crate::client::{Client, ClientError};
use app_config::tree::PluginPin;
use clap::{Args, Subcommand};
use domain::ids::BuildId;
use schemas::control::{
    PageQuery,
    apps::{ConfigVersion, DiffQuery, SyncReport},
    builds::Build,
};

pub(crate) use text::{diff_text, ignored_settings_text};

use crate::{
    failure::Failure,
    render::{Table, actor_text, count, moment, moment_or_dash},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Apps {
    #[command(flatten)]
    Local(here::LocalCommand),
    /// Publish an app directory as the next config version, and build its new components
    #[command(after_help = "\
Examples:
  stead apps sync ./shop
  stead apps sync ./shop --dry-run
  stead apps sync ./shop --source acme/modules=../modules --wait
  stead apps sync ./shop --plugin files=./target/release/stead-plugin-files
  stead apps sync ./shop --resolve --wait

The build runner fetches the repositories of components from git. Each version resolves a branch or
tag to one commit. A sync of an unchanged directory publishes no version without --resolve.")]
    Sync(Sync),
    /// Compare an app directory with a config version, or two config versions
    #[command(after_help = "\
Examples:
  stead apps diff ./shop                  the directory and the newest version
  stead apps diff ./shop --against 3      the directory and version 3
  stead apps diff shop --from 1 --to 2    two published versions

After the changes, the command prints the impact on each install.")]
    Diff {
        #[command(flatten)]
        source: Source,
        /// Config version to compare the directory with [default: the newest]
        #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
        against: Option<u32>,
        /// Earlier config version; with --from or --to, DIR is the name of the app
        #[arg(long, value_name = "N")]
        from: Option<u32>,
        /// Later config version; with --from or --to, DIR is the name of the app
        #[arg(long, value_name = "N")]
        to: Option<u32>,
    },
    /// List apps
    #[command(after_help = "Example:\n  stead apps list")]
    List(PageArgs),
    /// Show an app with the components of its newest version, or the config of one version
    #[command(after_help = "\
Examples:
  stead apps show shop
  stead apps show shop --version 3    the config of version 3
  stead apps show shop --version 3 --output json")]
    Show {
        /// Name or id of the app
        app: String,
        /// Config version to print, instead of the app and its newest version
        #[arg(long = "version", value_name = "N")]
        config_version: Option<u32>,
    },
    /// List the config versions of an app, newest first
    #[command(after_help = "Example:\n  stead apps versions shop")]
    Versions {
        /// Name or id of the app
        app: String,
        #[command(flatten)]
        part: PageArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Source {
    /// App directory
    dir: PathBuf,
    /// Name of the app [default: name of the directory]
    #[arg(long)]
    name: Option<String>,
    /// Local path of a repository that components use, instead of a fetch from git; may be repeated
    #[arg(long = "source", value_name = "OWNER/NAME[@REF]=PATH", value_parser = pack::named_path)]
    repos: Vec<(String, PathBuf)>,
    /// Executable of a plugin that components use as their type; may be repeated
    #[arg(long = "plugin", value_name = "NAME=PATH", value_parser = pack::named_path)]
    plugins: Vec<(String, PathBuf)>,
    /// Download the files that the directory references by https:// URL, at most 1 MiB each, and
    /// add them to the bundle
    #[arg(long)]
    allow_remote: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Sync {
    #[command(flatten)]
    source: Source,
    /// Validate and show the changes without publishing
    #[arg(long)]
    dry_run: bool,
    /// Resolve the branches and tags of git repositories again, and publish a version even if the
    /// directory is unchanged
    #[arg(long, conflicts_with = "dry_run")]
    resolve: bool,
    /// Wait until the builds finish; exit code 1 if one fails
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(verb: Apps, settings: &Settings) -> Result<(), Failure> {
    let context = || settings.context();
    match verb {
        Apps::Local(verb) => here::run(verb, settings).await,
        Apps::Sync(args) => sync(&context()?, args).await,
        Apps::Diff { source, against, from: None, to: None } => {
            let context = context()?;
            let synced = send(&context, &source, SendMode::Compare(against)).await?;
            context.screen.print_one(&synced.diff, |screen| diff_text(&synced.diff, screen))
        }
        Apps::Diff { source, against: _, from, to } => {
            let (context, app) = (context()?, source.dir.to_string_lossy());
            let diff =
                context.client.diff(&app, &DiffQuery { from, to, ..DiffQuery::default() }).await?;
            context.screen.print_one(&diff, |screen| diff_text(&diff, screen))
        }
        Apps::List(part) => list(&context()?, part).await,
        Apps::Show { app, config_version: None } => show(&context()?, &app).await,
        Apps::Show { app, config_version: Some(version) } => {
            let context = context()?;
            let version_shown = context.client.version(&app, version).await?;
            context.screen.print_one(&version_shown.config, |screen| {
                check::config_text(&version_shown.config, screen)
            })
        }
        Apps::Versions { app, part } => versions(&context()?, &app, part).await,
    }
}

/// Purpose of an upload.
enum SendMode {
    Publish {
        /// True to resolve the git references of an unchanged directory again.
        resolve: bool,
    },
    /// Compares the directory with a version, or with the newest, and changes nothing.
    Compare(Option<u32>),
}

/// Returns the newest version of each published plugin.
async fn published_plugins(client: &Client) -> Result<Vec<PluginPin>, Failure> {
    let (mut pins, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageQuery { limit: Some(200), cursor, min_position: None };
        let page = client.plugins(&page).await?;
        for plugin in page.items {
            let Some(newest) = plugin.versions.into_iter().next() else { continue };
            let (name, version, digest) = (plugin.name, newest.version, newest.digest);
            pins.push(PluginPin { name, version, digest });
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(pins),
        }
    }
}

/// Packs and uploads the directory.
async fn send(
    context: &CommandContext,
    source: &Source,
    mode: SendMode,
) -> Result<SyncReport, Failure> {
    let packed = pack::pack(source, async || published_plugins(&context.client).await).await?;
    for warning in &packed.warnings {
        context.screen.remark(&text::warning(warning, &context.screen));
    }
    let size = crate::render::size(packed.bytes.len() as u64);
    let bar = context.screen.spinner(&format!("sending {} ({size})", packed.name));
    let sent = match mode {
        SendMode::Publish { resolve: false } => {
            context.client.sync(&packed.name, packed.bytes, false).await
        }
        SendMode::Publish { resolve: true } => {
            context.client.sync_and_resolve(&packed.name, packed.bytes).await
        }
        SendMode::Compare(version) => {
            context.client.sync_against(&packed.name, packed.bytes, version).await
        }
    };
    bar.finish_and_clear();
    Ok(sent?)
}

async fn sync(context: &CommandContext, args: Sync) -> Result<(), Failure> {
    let mode = match args.dry_run {
        true => SendMode::Compare(None),
        false => SendMode::Publish { resolve: args.resolve },
    };
    let synced = send(context, &args.source, mode).await?;
    context.screen.print_one(&synced, |screen| text::synced(&synced, screen))?;
    if args.wait && !synced.dry_run { wait(context, &synced).await } else { Ok(()) }
}

/// Waits until every build of the version has ended.
async fn wait(context: &CommandContext, synced: &SyncReport) -> Result<(), Failure> {
    let total = synced.builds.len();
    let bar = context.screen.bar(total as u64, "builds");
    let mut failed = vec![];
    for (ended, build) in (1..).zip(&synced.builds) {
        let build = wait_for_build(context, build.id).await?;
        bar.set_position(ended);
        if build.state != "succeeded" {
            failed.push(format!("{} (stead builds show {})", build.component_name, build.id));
        }
    }
    bar.finish_and_clear();
    if !failed.is_empty() {
        return Err(Failure::Outcome(format!("builds failed: {}", failed.join(", "))));
    }
    context.screen.remark(&format!("{} succeeded.", count(total as u64, "build")));
    Ok(())
}

async fn wait_for_build(context: &CommandContext, id: BuildId) -> Result<Build, Failure> {
    loop {
        let pause = match context.client.build(id).await {
            Ok(build) if build.ended_at.is_some() => return Ok(build),
            Ok(_) => Duration::from_millis(300),
            // The server may be restarting. The builds continue.
            Err(ClientError::Unreachable { .. }) => Duration::from_secs(1),
            Err(error) => return Err(error.into()),
        };
        tokio::time::sleep(pause).await;
    }
}

async fn list(context: &CommandContext, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.apps(&part.listing()).await?;
    context.screen.print_list(&page.items, "No apps. Publish one: stead apps sync DIR", |_| {
        let mut table = Table::new(["APP", "VERSION", "COMPONENTS", "INSTALLS", "PUBLISHED", "ID"]);
        for app in &page.items {
            table.row([
                app.name.clone(),
                app.version.to_string(),
                app.components.to_string(),
                app.installs.to_string(),
                moment_or_dash(app.published_at.as_ref()),
                app.id.to_string(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

async fn show(context: &CommandContext, name: &str) -> Result<(), Failure> {
    let app = context.client.app(name).await?;
    let newest = PageQuery { limit: Some(1), ..PageQuery::default() };
    let versions = context.client.versions(name, &newest).await?;
    context.screen.print_one(&app, |screen| {
        let mut text = format!("{}  {} at version {}\n", app.id, app.name, app.version);
        text += &format!("  installs   {}\n", app.installs);
        for version in &versions.items {
            text += &format!("  bundle     {}\n", version.bundle);
            let published = moment(&version.published_at);
            text += &format!("  published  {published} by {}\n", publisher(version));
            text += &text::sources(version, screen);
            text += "\n";
            let mut table = Table::new(["COMPONENT", "TYPE", "DEFINITION"]);
            for c in &version.components {
                table.row([c.name.clone(), c.kind.clone(), c.definition.to_string()]);
            }
            text += &table.text(screen);
        }
        text
    })
}

async fn versions(context: &CommandContext, app: &str, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.versions(app, &part.listing()).await?;
    context.screen.print_list(&page.items, "No versions.", |screen| {
        let header = ["VERSION", "STATE", "PUBLISHED", "BY", "COMPONENTS", "COMMITS", "BUNDLE"];
        let mut table = Table::new(header);
        for version in &page.items {
            table.row([
                version.version.to_string(),
                screen.state(&version.state),
                moment(&version.published_at),
                publisher(version),
                version.components.len().to_string(),
                text::commits(version),
                version.bundle.to_string(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

fn publisher(version: &ConfigVersion) -> String {
    actor_text(&version.published_by, version.published_by_name.as_deref())
}
