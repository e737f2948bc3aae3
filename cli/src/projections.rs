//! `stead projections`: lists, rebuilds and verifies projections while the server runs.
mod show;

use crate::client::{sanitize, server_events};
use clap::Subcommand;
use futures::{StreamExt, pin_mut};
use schemas::control::projections::{Progress, RebuildQuery};

use crate::{
    failure::Failure,
    point_in_time::PointInTime,
    render::{Output, Table, count},
    settings::{CommandContext, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Projections {
    /// List projections with their position and lag
    #[command(after_help = "Example:\n  stead projections list")]
    List,
    /// Show the rows of a projection, now or at an earlier time
    #[command(after_help = "\
Examples:
  stead projections show installs --as-of 'tuesday'
  stead projections show jobs --key job_01JD… --as-of 1841
  stead projections show runs --as-of '2h ago' -o ndjson

The server computes the rows from the log, not from the table of the projection. A key is the id of an aggregate. \
The key of a config version is `<app id>/<version>`, and the key of a token is `<principal id>/<token id>`.")]
    Show {
        /// Name of the projection
        name: String,
        /// Only the row with this key
        #[arg(long)]
        key: Option<String>,
        /// Position or time: RFC 3339, a date, `2h ago`, `tuesday` [default: now]
        #[arg(long, value_name = "TIME|POSITION")]
        as_of: Option<PointInTime>,
    },
    /// Rebuild projections from the log, then swap the tables
    #[command(after_help = "\
Examples:
  stead projections rebuild jobs
  stead projections rebuild --all --parallel 4     reads the log once for all projections
  stead projections rebuild jobs --as-of tuesday   into a separate table

To continue an interrupted rebuild, run the command again.

--as-of creates the table projection_NAME_at_POSITION. `stead projections drop` drops this table.")]
    Rebuild {
        /// Name of the projection, or `all`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// All projections
        #[arg(long)]
        all: bool,
        /// Number of workers that share the streams (1 to 16)
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
        parallel: u32,
        /// Position or time to rebuild up to, in a separate table: RFC 3339, a date, `2h ago`,
        /// `tuesday`
        #[arg(long, value_name = "TIME|POSITION", conflicts_with_all = ["all", "parallel"])]
        as_of: Option<PointInTime>,
    },
    /// Drop a table that a rebuild with --as-of created
    #[command(after_help = "\
Example:
  stead projections drop jobs --as-of 1841

`stead projections list` shows the positions.")]
    Drop {
        /// Name of the projection
        name: String,
        /// Position up to which the table was rebuilt
        #[arg(long, value_name = "POSITION")]
        as_of: u64,
    },
    /// Roll back the last rebuild: update the former table from the log, then swap the tables
    #[command(after_help = "Example:\n  stead projections rollback jobs")]
    Rollback {
        /// Name of the projection
        name: String,
    },
    /// Verify projections: replay the log and compare every row
    #[command(after_help = "\
Examples:
  stead projections verify jobs
  stead projections verify --all")]
    Verify {
        /// Name of the projection, or `all`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// All projections
        #[arg(long)]
        all: bool,
    },
}

/// Name that selects every projection.
const ALL: &str = "all";

pub(crate) async fn run(verb: Projections, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Projections::List => list(&context).await,
        Projections::Rebuild { name, parallel, as_of, .. } => {
            let (as_of_position, as_of_time) = as_of.map_or((None, None), PointInTime::parts);
            let query = RebuildQuery { parallel: Some(parallel), as_of_position, as_of_time };
            let name = name.unwrap_or_else(|| ALL.into());
            print_result(&context, &follow(&context, &name, "rebuild", &query).await?, "rebuild")
        }
        Projections::Rollback { name } => print_result(
            &context,
            &follow(&context, &name, "rollback", &RebuildQuery::default()).await?,
            "rollback",
        ),
        Projections::Drop { name, as_of } => {
            let done = context.client.drop_as_of_table(&name, as_of).await?;
            let table = format!("{name} as of {as_of}");
            context.screen.print_one(&done, |_| match done.changed {
                true => format!("{table}: dropped\n"),
                false => format!("{table}: not found\n"),
            })
        }
        Projections::Show { name, key, as_of } => show::run(&context, &name, key, as_of).await,
        Projections::Verify { name, .. } => verify(&context, name.as_deref().unwrap_or(ALL)).await,
    }
}

async fn list(context: &CommandContext) -> Result<(), Failure> {
    let page = context.client.projections().await?;
    context.screen.print_list(&page.items, "No projections.", |_| {
        let mut table = Table::new([
            "PROJECTION",
            "CLASS",
            "VERSION",
            "POSITION",
            "LAG",
            "DEAD LETTERS",
            "AS OF",
        ]);
        for p in &page.items {
            table.row([
                p.name.clone(),
                p.class.clone(),
                p.version.to_string(),
                p.position.to_string(),
                p.lag.to_string(),
                p.dead_letters.map_or_else(String::new, |parked| parked.to_string()),
                p.as_of_positions.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            ]);
        }
        table
    })
}

async fn verify(context: &CommandContext, name: &str) -> Result<(), Failure> {
    let names = match name {
        ALL => {
            let projections = context.client.projections().await?.items.into_iter();
            projections.filter(|p| p.class != "policy").map(|p| p.name).collect()
        }
        one => vec![one.to_owned()],
    };
    let mut ended = Vec::new();
    for name in names {
        ended.extend(follow(context, &name, "verify", &RebuildQuery::default()).await?);
    }
    print_result(context, &ended, "verify")
}

fn print_result(context: &CommandContext, ended: &[Progress], verb: &str) -> Result<(), Failure> {
    if context.screen.output == Output::Json {
        context.screen.print_one(&ended, |_| String::new())?;
    }
    let is_bad = |last: &&Progress| last.state != "done" || !last.differences.is_empty();
    let bad: Vec<_> = ended.iter().filter(is_bad).map(|last| last.projection.as_str()).collect();
    if bad.is_empty() {
        return Ok(());
    }
    Err(Failure::Outcome(format!("{verb} failed for {}", bad.join(", "))))
}

/// Shows the progress until the work ends. Returns the last progress of each projection.
async fn follow(
    context: &CommandContext,
    name: &str,
    verb: &str,
    query: &RebuildQuery,
) -> Result<Vec<Progress>, Failure> {
    let events = server_events(context.client.work_on_projection(name, verb, query).await?);
    pin_mut!(events);
    let bar = context.screen.bar(0, name);
    let mut ended: Vec<Progress> = Vec::new();
    while let Some(event) = events.next().await {
        let progress: Progress = serde_json::from_str(&event?.data)?;
        if matches!(progress.state.as_str(), "done" | "failed") {
            ended.push(progress);
        } else if progress.total > 0 {
            bar.set_length(progress.total);
            bar.set_position(progress.events);
        }
    }
    bar.finish_and_clear();
    if ended.last().is_none_or(|last| last.projection != name) {
        return Err(Failure::Unreachable(format!(
            "cannot show the result of `stead projections {verb} {name}`: the connection to the server was lost; run the command again"
        )));
    }
    for last in &ended {
        match context.screen.output {
            Output::Table | Output::Ndjson => {
                context.screen.print_one(last, |_| progress_text(last, verb))?
            }
            // JSON output is one document, printed at the end.
            Output::Json => {}
        }
    }
    Ok(ended)
}

fn progress_text(last: &Progress, verb: &str) -> String {
    let mut text = match (last.state.as_str(), verb) {
        ("done", "verify") if last.differences.is_empty() => {
            format!("{}: identical after {}", last.projection, count(last.events, "event"))
        }
        ("done", "verify") => {
            let rows = last.differences.len() as u64;
            let differ = if rows == 1 { "differs" } else { "differ" };
            format!("{}: {} {differ}", last.projection, count(rows, "row"))
        }
        ("done", "rollback") => {
            format!(
                "{}: restored the earlier rows, and replayed {}",
                last.projection,
                count(last.events, "event")
            )
        }
        ("done", _) if last.table.is_some() => format!(
            "{}: {} as of position {}",
            last.projection,
            last.table.as_deref().unwrap_or_default(),
            last.events
        ),
        ("done", _) => format!("{}: rebuilt from {}", last.projection, count(last.events, "event")),
        (_, _) => {
            format!(
                "{}: failed: {}",
                last.projection,
                last.detail.as_deref().unwrap_or("no reason given")
            )
        }
    };
    if let Some(rows) = last.rows {
        text += &format!(", {}", count(rows, "row"));
    }
    text.push('\n');
    for difference in &last.differences {
        text += &format!("  {}\n", sanitize(difference));
    }
    text
}
