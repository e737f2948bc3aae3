//! `stead projections`: the read side, rebuilt and verified while the server runs.
use api::client::{harmless, server_events};
use clap::Subcommand;
use futures::{StreamExt, pin_mut};
use schemas::control::projections::{Progress, RebuildQuery};

use crate::{
    failure::Failure,
    render::{Output, Table},
    settings::{Desk, Settings},
};

#[derive(Debug, Subcommand)]
pub enum Projections {
    /// List projections and how far they are
    #[command(after_help = "Example:\n  stead projections list")]
    List,
    /// Replay the log into fresh tables and swap them in
    #[command(after_help = "\
Examples:
  stead projections rebuild jobs
  stead projections rebuild --all --parallel 4     reads the log once for all of them
It may be killed at any time: the next one goes on where it was.")]
    Rebuild {
        /// Its name, or `all`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// All of them
        #[arg(long)]
        all: bool,
        /// How many workers share the streams
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
        parallel: u32,
    },
    /// Go back to the rows that were in use before the last rebuild, brought up to date
    #[command(after_help = "Example:\n  stead projections rollback jobs")]
    Rollback {
        /// Its name
        name: String,
    },
    /// Replay the log beside the tables in use and compare every row
    #[command(after_help = "Example:\n  stead projections verify all")]
    Verify {
        /// Its name, or `all`
        name: String,
    },
}

pub async fn run(verb: Projections, settings: &Settings) -> Result<(), Failure> {
    let desk = settings.desk()?;
    match verb {
        Projections::List => list(&desk).await,
        Projections::Rebuild { name, parallel, .. } => {
            let how = RebuildQuery { parallel: Some(parallel) };
            let name = name.unwrap_or_else(|| "all".into());
            over(&desk, &follow(&desk, &name, "rebuild", &how).await?, "rebuild")
        }
        Projections::Rollback { name } => over(
            &desk,
            &follow(&desk, &name, "rollback", &RebuildQuery::default()).await?,
            "rollback",
        ),
        Projections::Verify { name } => verify(&desk, &name).await,
    }
}

async fn list(desk: &Desk) -> Result<(), Failure> {
    let page = desk.client.projections().await?;
    desk.screen.many(&page.items, "No projections.", |_| {
        let mut table =
            Table::new(["PROJECTION", "CLASS", "VERSION", "POSITION", "BEHIND", "PARKED"]);
        for p in &page.items {
            table.row([
                p.name.clone(),
                p.class.clone(),
                p.version.to_string(),
                p.position.to_string(),
                p.lag.to_string(),
                p.parked.map_or_else(String::new, |parked| parked.to_string()),
            ]);
        }
        table
    })
}

async fn verify(desk: &Desk, name: &str) -> Result<(), Failure> {
    let names = match name {
        "all" => {
            let all = desk.client.projections().await?.items.into_iter();
            all.filter(|p| p.class != "policy").map(|p| p.name).collect()
        }
        one => vec![one.to_owned()],
    };
    let mut ended = Vec::new();
    for name in names {
        ended.extend(follow(desk, &name, "verify", &RebuildQuery::default()).await?);
    }
    over(desk, &ended, "verify")
}

fn over(desk: &Desk, ended: &[Progress], verb: &str) -> Result<(), Failure> {
    if desk.screen.output == Output::Json {
        desk.screen.one(&ended, |_| String::new())?;
    }
    let is_bad = |last: &&Progress| last.state != "done" || !last.differences.is_empty();
    let bad: Vec<_> = ended.iter().filter(is_bad).map(|last| last.projection.as_str()).collect();
    if bad.is_empty() {
        return Ok(());
    }
    Err(Failure::Outcome(format!("{verb} ended badly for {}", bad.join(", "))))
}

/// Draw the progress until it is over; what is over, each as its line.
async fn follow(
    desk: &Desk,
    name: &str,
    verb: &str,
    how: &RebuildQuery,
) -> Result<Vec<Progress>, Failure> {
    let events = server_events(desk.client.work_on_projection(name, verb, how).await?);
    pin_mut!(events);
    let bar = desk.screen.bar(0, name);
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
            "the server stopped while it worked on {name}; what was not swapped is as it was, try again"
        )));
    }
    for last in &ended {
        match desk.screen.output {
            Output::Table | Output::Ndjson => desk.screen.one(last, |_| said(last, verb))?,
            // One document, at the end.
            Output::Json => {}
        }
    }
    Ok(ended)
}

fn said(last: &Progress, verb: &str) -> String {
    let mut text = match (last.state.as_str(), verb) {
        ("done", "verify") if last.differences.is_empty() => {
            format!("{}: identical after {} events", last.projection, last.events)
        }
        ("done", "verify") => {
            format!("{}: {} rows differ", last.projection, last.differences.len())
        }
        ("done", "rollback") => {
            format!("{}: back to the earlier rows, with {} events", last.projection, last.events)
        }
        ("done", _) => format!("{}: rebuilt from {} events", last.projection, last.events),
        (_, _) => {
            format!(
                "{}: failed: {}",
                last.projection,
                last.detail.as_deref().unwrap_or("no reason")
            )
        }
    };
    if let Some(rows) = last.rows {
        text += &format!(", {rows} rows");
    }
    text.push('\n');
    for difference in &last.differences {
        text += &format!("  {}\n", harmless(difference));
    }
    text
}
