//! `stead builds`: builds of components into artifacts.
use clap::{Args, Subcommand};
use domain::{build::BuildFailure, ids::BuildId};
use schemas::control::builds::{Build, BuildsQuery};

use crate::{
    failure::Failure,
    jobs::failure_text,
    render::{Table, moment, moment_or_dash, size},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Builds {
    /// List builds, newest first
    #[command(after_help = "\
Examples:
  stead builds list
  stead builds list --app shop --state failed")]
    List(List),
    /// Show a build with its artifact, or the reason for its failure
    #[command(after_help = "Example:\n  stead builds show bld_01JD…")]
    Show {
        /// Id of the build
        build: BuildId,
    },
    /// Retry the failed builds of the newest config version, as a new config version
    #[command(after_help = "Example:\n  stead builds retry bld_01JD…")]
    Retry {
        /// Id of one of these failed builds, which selects the app
        build: BuildId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only builds of this app: name or id
    #[arg(long)]
    app: Option<String>,
    /// Only builds in this state: requested, resolving, queued, running, succeeded, failed
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    part: PageArgs,
}

pub(crate) async fn run(verb: Builds, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Builds::List(list) => self::list(&context, list).await,
        Builds::Show { build } => {
            let build = context.client.build(build).await?;
            context.screen.print_one(&build, |screen| show(&build, screen))
        }
        Builds::Retry { build } => {
            let retried = context.client.retry_build(build).await?;
            context.screen.print_one(&retried, |_| {
                let version = retried.version;
                let mut text = format!("Version {version} retries the failed builds:\n");
                for build in &retried.builds {
                    text += &format!("  building {}: {}\n", build.component, build.id);
                }
                text + &format!(
                    "Upgrade installs to it: stead installs upgrade NAME --to {version}\n"
                )
            })
        }
    }
}

async fn list(context: &CommandContext, list: List) -> Result<(), Failure> {
    let List { app, state, part: PageArgs { limit, cursor } } = list;
    let query = BuildsQuery { app, state, limit: Some(limit), cursor, ..BuildsQuery::default() };
    let page = context.client.builds(&query).await?;
    context.screen.print_list(&page.items, "No builds.", |screen| {
        let mut table = Table::new(["BUILD", "APP", "COMPONENT", "VERSION", "STATE", "REQUESTED"]);
        for build in &page.items {
            table.row([
                build.id.to_string(),
                build.app_name.clone(),
                build.component_name.clone(),
                build.config_version.to_string(),
                screen.state(&build.state),
                moment(&build.requested_at),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

pub(crate) fn show(build: &Build, screen: &crate::render::Screen) -> String {
    let mut text = format!(
        "{}  {} of {}, version {}: {}\n",
        build.id,
        build.component_name,
        build.app_name,
        build.config_version,
        screen.state(&build.state)
    );
    text += &format!("  type       {}\n", build.kind);
    if let Some(source) = &build.source {
        text += &format!("  source     {source}\n");
    }
    if let Some(git) = &build.git {
        text += &format!("  source     {} {} at {}\n", git.repo, git.directory, git.reference);
    }
    if let Some(commit) = &build.commit {
        text += &format!("  commit     {commit}\n");
    }
    if let Some(reused) = &build.reused_build {
        text += &format!("  reuses     artifact of {reused}\n");
    }
    text += &format!("  requested  {}\n", moment(&build.requested_at));
    if build.ended_at.is_some() {
        text += &format!("  ended      {}\n", moment_or_dash(build.ended_at.as_ref()));
    }
    if let Some(artifact) = &build.artifact {
        let (repository, digest) = (&artifact.repository, &artifact.digest);
        text += &format!("  artifact   {repository}@{digest} ({})\n", size(artifact.size_bytes));
    }
    if let Some(waiting) = &build.waiting {
        text += &format!("  waiting    {}\n", waiting.detail);
    }
    if let Some(reason) = &build.reason {
        let detail = build.detail.as_deref().unwrap_or_default();
        let reason = failure_text(reason, BuildFailure::text);
        text += &format!("  failed     {reason}: {detail}\n");
        text += &format!("  try        stead builds retry {}\n", build.id);
    }
    if let Some(job) = &build.job {
        text += &format!("  log        stead jobs logs {job}\n");
    }
    text
}
