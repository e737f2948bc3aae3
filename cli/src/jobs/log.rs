//! `stead jobs logs`: prints or follows a job log. Following resumes after a lost connection.
use std::time::Duration;

use crate::client::{ClientError, lines, sanitize, server_events};
use clap::Args;
use domain::ids::JobId;
use futures::{StreamExt, pin_mut};
use schemas::control::jobs::{Job, LogRecord};

use super::find;
use crate::{
    failure::Failure,
    render::{Output, Tone, write},
    settings::CommandContext,
};

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Id of the job or build
    job: String,
    /// Follow the log until it is finalized
    #[arg(long, short)]
    follow: bool,
    /// Number of the attempt [default: the newest]
    #[arg(long)]
    attempt: Option<u32>,
    /// Print the time since the start of the execution before each line
    #[arg(long, short)]
    timestamps: bool,
}

pub(crate) async fn print(context: &CommandContext, args: Logs) -> Result<(), Failure> {
    let job = find(context, &args.job).await?;
    let attempt = match args.attempt {
        Some(attempt) => attempt,
        None => first_attempt(context, job, args.follow).await?,
    };
    let mut printer = Printer { context, timestamps: args.timestamps, last: 0, open: false };
    if args.follow {
        return follow(context, job, attempt, &mut printer).await;
    }
    let records = lines(context.client.log(job, attempt, 0).await?);
    pin_mut!(records);
    while let Some(record) = records.next().await {
        printer.record(&record?)?;
    }
    Ok(())
}

/// Returns the newest attempt. With `wait`, waits for the first one and shows the reason of the
/// wait.
async fn first_attempt(context: &CommandContext, id: JobId, wait: bool) -> Result<u32, Failure> {
    let bar = context.screen.spinner("");
    loop {
        let job = context.client.job(id).await?;
        if let Some(newest) = job.attempts.last() {
            bar.finish_and_clear();
            return Ok(newest.attempt);
        }
        if !wait || job.ended_at.is_some() {
            return Err(never_ran(&job));
        }
        bar.set_message(job.waiting.map_or("waiting for a runner".into(), |w| w.detail));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn never_ran(job: &Job) -> Failure {
    let why = job.waiting.as_ref().map(|w| format!(": {}", w.detail)).unwrap_or_default();
    let state = job.state.replace('_', " ");
    Failure::NotFound(format!(
        "cannot print the log of {}: the job is {state} and has no log{why}\n  try: `stead jobs logs -f {}` waits for the log if the job has not ended",
        job.id, job.id
    ))
}

/// Follows the log until it is finalized. Resumes after the last record if the connection breaks.
async fn follow(
    context: &CommandContext,
    job: JobId,
    attempt: u32,
    printer: &mut Printer<'_>,
) -> Result<(), Failure> {
    loop {
        match context.client.follow_log(job, attempt, printer.last).await {
            Ok(response) => {
                let events = server_events(response);
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    match (event.event.as_str(), event.data.as_str()) {
                        ("end", "finalized") => return Ok(()),
                        // The token is no longer valid. The next request returns that error.
                        ("end", _) => break,
                        (_, record) => printer.record(record)?,
                    }
                }
            }
            Err(ClientError::Unreachable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

struct Printer<'d> {
    context: &'d CommandContext,
    timestamps: bool,
    last: u64,
    /// True if the next record continues the current line.
    open: bool,
}

impl Printer<'_> {
    fn record(&mut self, text: &str) -> Result<(), Failure> {
        let record: LogRecord = serde_json::from_str(text)?;
        if record.n <= self.last {
            return Ok(());
        }
        self.last = record.n;
        match self.context.screen.output {
            Output::Json | Output::Ndjson => write(&format!("{text}\n")),
            Output::Table => self.line(&record),
        }
    }

    fn line(&mut self, record: &LogRecord) -> Result<(), Failure> {
        let mut text = String::new();
        if self.timestamps && !self.open {
            let seconds = record.t / 1_000_000;
            let stamp =
                format!("{:>3}:{:02}.{:03} ", seconds / 60, seconds % 60, record.t / 1000 % 1000);
            text += &self.context.screen.paint(Tone::Faint, &stamp);
        }
        text += &match record.s.as_str() {
            "x" => self.context.screen.paint(Tone::Faint, &sanitize(&record.m)),
            _ => sanitize(&record.m),
        };
        self.open = record.c;
        if !record.c {
            text.push('\n');
        }
        write(&text)
    }
}
