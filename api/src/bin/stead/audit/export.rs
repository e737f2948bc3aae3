//! A part of the log in a file.
use std::{
    fs::OpenOptions,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use api::client::lines;
use clap::Args;
use futures::{StreamExt, pin_mut};
use proof::range::Head;
use schemas::control::bundles::RangeQuery;

use super::At;
use crate::{failure::Failure, settings::Desk};

#[derive(Debug, Args)]
pub struct Export {
    /// From this position or moment on (RFC 3339)
    #[arg(long, value_name = "TIME|POSITION")]
    from: Option<At>,
    /// Up to this position, which is included, or this moment, which is not
    #[arg(long, value_name = "TIME|POSITION")]
    to: Option<At>,
    /// The file; without it standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Write the lines as they come, with a bar.
pub async fn run(desk: &Desk, ask: Export) -> Result<(), Failure> {
    let (from, since) = ask.from.map_or((None, None), At::parts);
    let (to, until) = ask.to.map_or((None, None), At::parts);
    let query = RangeQuery { from, to, since, until, min_position: None };
    let lines = lines(desk.client.range(&query).await?);
    pin_mut!(lines);
    let first = lines.next().await.ok_or_else(cut)??;
    let head = Head::read(first.as_bytes()).map_err(|error| Failure::Outcome(error.to_string()))?;
    let all = head.count();
    let bar = desk.screen.bar(all, "export");
    let mut out: Box<dyn Write> = match &ask.out {
        Some(path) => Box::new(BufWriter::new(created(path)?)),
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    writeln!(out, "{first}")?;
    let mut count = 0u64;
    while let Some(event) = lines.next().await {
        writeln!(out, "{}", event?)?;
        count += 1;
        bar.set_position(count);
    }
    out.flush()?;
    bar.finish_and_clear();
    if count != all {
        return Err(cut());
    }
    if let Some(path) = ask.out {
        let (from, to, path) = (head.from, head.to, path.display());
        desk.screen.remark(&format!(
            "{count} events, positions {from} to {to}, are in {path}.\nTo check it anywhere: stead audit check {path} \
             --key {}",
            head.signer
        ));
    }
    Ok(())
}

fn cut() -> Failure {
    Failure::Unreachable("the export broke off before its end; try again".into())
}

/// A file that was not there: what was kept is never written over.
pub fn created(path: &Path) -> Result<std::fs::File, Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.map_err(|error| Failure::Usage(format!("{} cannot be made: {error}", path.display())))
}
