//! `stead projections`: the read side, rebuilt and verified while the server runs.
use api::client::{harmless, server_events};
use clap::Subcommand;
use futures::{StreamExt, pin_mut};
use schemas::control::projections::Progress;

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
  stead projections rebuild all")]
    Rebuild {
        /// Its name, or `all`
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
        Projections::Rebuild { name } => work(&desk, &name, "rebuild").await,
        Projections::Verify { name } => work(&desk, &name, "verify").await,
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

async fn work(desk: &Desk, name: &str, verb: &str) -> Result<(), Failure> {
    let names = match name {
        "all" => {
            let all = desk.client.projections().await?.items.into_iter();
            all.filter(|p| p.class != "policy").map(|p| p.name).collect()
        }
        one => vec![one.to_owned()],
    };
    let (mut bad, mut all) = (Vec::new(), Vec::new());
    for one in names {
        let last = follow(desk, &one, verb).await?;
        if last.state != "done" || !last.differences.is_empty() {
            bad.push(one);
        }
        match desk.screen.output {
            Output::Table | Output::Ndjson => desk.screen.one(&last, |_| said(&last, verb))?,
            // One document, at the end.
            Output::Json => all.push(last),
        }
    }
    if desk.screen.output == Output::Json {
        desk.screen.one(&all, |_| String::new())?;
    }
    if bad.is_empty() {
        return Ok(());
    }
    Err(Failure::Outcome(format!("{verb} ended badly for {}", bad.join(", "))))
}

/// Draw the progress until it is over; the last word.
async fn follow(desk: &Desk, name: &str, verb: &str) -> Result<Progress, Failure> {
    let events = server_events(desk.client.work_on_projection(name, verb).await?);
    pin_mut!(events);
    let bar = desk.screen.bar(0, name);
    let mut last: Option<Progress> = None;
    while let Some(event) = events.next().await {
        let progress: Progress = serde_json::from_str(&event?.data)?;
        bar.set_length(progress.total);
        bar.set_position(progress.events);
        last = Some(progress);
    }
    bar.finish_and_clear();
    let last = last.filter(|p| matches!(p.state.as_str(), "done" | "failed"));
    last.ok_or_else(|| {
        Failure::Unreachable(format!(
            "the server stopped while it worked on {name}; nothing was swapped, try again"
        ))
    })
}

fn said(last: &Progress, verb: &str) -> String {
    let mut text = match (last.state.as_str(), verb) {
        ("done", "verify") if last.differences.is_empty() => {
            format!("{}: identical after {} events", last.projection, last.events)
        }
        ("done", "verify") => {
            format!("{}: {} rows differ", last.projection, last.differences.len())
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
