//! `stead plugins`: publish the executables of component types.
use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemas::control::plugins::{Plugin, PluginPublished, PublishPlugin};
use serde_json::json;

use crate::{
    failure::Failure,
    render::{Screen, Table, moment, size},
    settings::{CommandContext, PageArgs, Settings},
};

pub(crate) mod describe;
pub mod key;
pub mod pack;

#[derive(Debug, Subcommand)]
pub(crate) enum Plugins {
    /// Sign the executables of a plugin, and publish them
    #[command(after_help = "\
Examples:
  stead plugins push --key publisher.key ./stead-plugin-vault
  stead plugins push --key publisher.key ./amd64/stead-plugin-vault ./arm64/stead-plugin-vault
  stead plugins push --key publisher.key linux/arm64=./plugin.sh linux/amd64=./plugin.sh

Config versions that you publish from now on use the plugin for components of its type. The executable for this host \
reports name and version. The key stays on this host. A published version never changes. A \
repeated push restores missing and corrupt blobs of the server.")]
    Push(Push),
    /// List plugins
    #[command(after_help = "Example:\n  stead plugins list")]
    List(PageArgs),
    /// Show a plugin with its versions, newest first
    #[command(after_help = "Example:\n  stead plugins show vault")]
    Show {
        /// Name of the plugin
        plugin: String,
    },
    /// Create the key of a publisher, and print its public key
    #[command(after_help = "\
Example:
  stead plugins keygen publisher.key

Keep the file secret. Customers trust the public key: stead-runner --plugin-publisher KEY, or in the policy \
plugin_publishers = [\"KEY\"].")]
    Keygen {
        /// File to create
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Key file of the publisher, from `stead plugins keygen`
    #[arg(long, env = "STEAD_PLUGIN_KEY", value_name = "FILE", hide_env_values = true)]
    key: PathBuf,
    /// Executables of one plugin, one per platform [default platform: that of the executable, else
    /// of this host]
    #[arg(required = true, value_name = "[OS/ARCH=]PATH", value_parser = pack::executable)]
    executables: Vec<pack::Executable>,
}

pub(crate) async fn run(verb: Plugins, settings: &Settings) -> Result<(), Failure> {
    match verb {
        Plugins::Push(args) => push(&settings.context()?, args).await,
        Plugins::List(part) => list(&settings.context()?, part).await,
        Plugins::Show { plugin } => {
            let context = settings.context()?;
            let plugin = context.client.plugin(&plugin).await?;
            context.screen.print_one(&plugin, |screen| text(&plugin, screen))
        }
        Plugins::Keygen { file } => keygen(&file, settings),
    }
}

async fn push(context: &CommandContext, args: Push) -> Result<(), Failure> {
    let key = key::read(&args.key).map_err(|error| {
        Failure::Usage(format!(
            "cannot read the key {}: {error}\n  try: stead plugins keygen {}",
            args.key.display(),
            args.key.display()
        ))
    })?;
    let packed = pack::pack(&args.executables, &key).await?;
    // A repeated push restores missing and corrupt blobs of the server.
    let spinner = context.screen.spinner("uploading");
    for (digest, bytes) in &packed.blobs {
        context.client.store_plugin_blob(&packed.name, digest, bytes.clone()).await?;
    }
    spinner.finish_and_clear();
    let body = PublishPlugin { digest: packed.digest, publisher: packed.publisher };
    let published = context.client.publish_plugin(&packed.name, &body).await?;
    context.screen.print_one(&published, |_| published_text(&published))
}

fn published_text(published: &PluginPublished) -> String {
    let PluginPublished { name, version, digest, platforms, publisher, unchanged, .. } = published;
    let platforms = platforms.join(", ");
    let what = format!("{name} {version} for {platforms} ({digest})");
    let result = if *unchanged {
        format!("No changes: {what} is already published.")
    } else {
        format!("Published {what}.")
    };
    format!(
        "{result}\nPublisher {publisher}. A customer trusts it with \
         stead-runner --plugin-publisher, or with plugin_publishers in the policy.\n"
    )
}

async fn list(context: &CommandContext, part: PageArgs) -> Result<(), Failure> {
    let page = context.client.plugins(&part.listing()).await?;
    context.screen.print_list(
        &page.items,
        "No plugins. Publish one: stead plugins push",
        |_| {
            let mut table = Table::new(["name", "version", "platforms", "size", "published"]);
            for plugin in &page.items {
                let Some(newest) = plugin.versions.first() else { continue };
                table.row([
                    plugin.name.clone(),
                    newest.version.clone(),
                    newest.platforms.join(", "),
                    size(newest.size_bytes),
                    moment(&newest.published_at),
                ]);
            }
            table
        },
    )?;
    context.more(page.next.as_deref());
    Ok(())
}

fn text(plugin: &Plugin, screen: &Screen) -> String {
    let mut table =
        Table::new(["version", "platforms", "size", "published", "publisher", "digest"]);
    for version in &plugin.versions {
        table.row([
            version.version.clone(),
            version.platforms.join(", "),
            size(version.size_bytes),
            moment(&version.published_at),
            version.publisher.clone(),
            version.digest.to_string(),
        ]);
    }
    format!("{}\n\n{}", plugin.name, table.text(screen))
}

fn keygen(file: &std::path::Path, settings: &Settings) -> Result<(), Failure> {
    let key = key::create(file).map_err(|error| {
        Failure::Usage(format!(
            "cannot create the key {}: {error}; choose a new file in an existing directory",
            file.display()
        ))
    })?;
    let public = key::public(&key);
    settings.screen().print_one(&json!({ "publisher": public, "file": file }), |_| {
        format!("Created the key {}\nPublisher {public}\n", file.display())
    })
}
