//! `stead jobs`: jobs, their logs, and the resolution of unknown outcomes.
mod log;
mod signature;

use clap::{Args, Subcommand, ValueEnum};
use domain::{
    ids::{BuildId, ExecutionId, JobId, RunId},
    job::FailureReason,
};
use schemas::control::jobs::{self as wire, Cancel, Job, JobsQuery, Resolve, ResolveAs};
use serde::de::DeserializeOwned;

use crate::{
    failure::Failure,
    render::{Screen, Table, actor_text, moment, moment_or_dash, size},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// List jobs, newest first
    #[command(after_help = "\
Examples:
  stead jobs list
  stead jobs list --install acme --state outcome_unknown")]
    List(List),
    /// Show a job with its attempts, and the reason if it waits
    #[command(after_help = "Example:\n  stead jobs show job_01JD…")]
    Show {
        /// Id of the job
        job: JobId,
    },
    /// Print the log of a job; -f follows it
    #[command(after_help = "\
Examples:
  stead jobs logs job_01JD…
  stead jobs logs -f job_01JD…
  stead jobs logs bld_01JD…                 the log of a build
  stead jobs logs job_01JD… -o ndjson       records with number, time, stream, phase and line")]
    Logs(log::Logs),
    /// Cancel a job; a runner that has claimed it confirms the cancellation
    #[command(after_help = "Example:\n  stead jobs cancel job_01JD… --reason 'wrong input'")]
    Cancel {
        /// Id of the job
        job: JobId,
        /// Reason, recorded in the log
        #[arg(long)]
        reason: String,
        /// Shorten the grace period of the job to 5 seconds
        #[arg(long)]
        force: bool,
    },
    /// Resolve the unknown outcome of a job
    #[command(after_help = "\
Examples:
  stead jobs resolve job_01JD… --resolution succeeded --reason 'the bucket and its state exist'
  stead jobs resolve job_01JD… --resolution retry --reason 'host was lost before it started'")]
    Resolve {
        /// Id of the job
        job: JobId,
        /// Outcome to record
        #[arg(long, value_enum)]
        resolution: Resolution,
        /// Evidence for the decision, recorded in the log
        #[arg(long)]
        reason: String,
        /// Id of the execution [default: the newest of the job]
        #[arg(long)]
        execution: Option<ExecutionId>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Resolution {
    /// The work was done
    Succeeded,
    /// The work was not done
    Failed,
    /// The job is safe to repeat: run it again
    Retry,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only jobs of this install: name or id
    #[arg(long)]
    install: Option<String>,
    /// Only jobs of this run
    #[arg(long)]
    run: Option<RunId>,
    /// Only jobs in this state: queued, claimed, running, disconnected, outcome_unknown, succeeded,
    /// failed, cancelled, lost
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    part: PageArgs,
}

pub(crate) async fn run(verb: Jobs, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Jobs::List(list) => self::list(&context, list).await,
        Jobs::Show { job } => {
            let job = context.client.job(job).await?;
            context.screen.print_one(&job, |screen| show(&job, screen))
        }
        Jobs::Logs(logs) => log::print(&context, logs).await,
        Jobs::Cancel { job, reason, force } => {
            let done = context.client.cancel_job(job, &Cancel { reason, force }).await?;
            context.screen.print_one(&done, |_| match done.changed {
                true => format!(
                    "Requested the cancellation of {job}. Show its state: stead jobs show {job}\n"
                ),
                false => format!("No change: {job} is being cancelled already, or has finished\n"),
            })
        }
        Jobs::Resolve { job, resolution, reason, execution } => {
            let execution = match execution {
                Some(execution) => execution,
                None => newest(&context.client.job(job).await?)?,
            };
            let resolution = match resolution {
                Resolution::Succeeded => ResolveAs::Succeeded,
                Resolution::Failed => ResolveAs::Failed,
                Resolution::Retry => ResolveAs::Retry,
            };
            let resolve = Resolve { execution, resolution, reason };
            let done = context.client.resolve_job(job, &resolve).await?;
            context.screen.print_one(&done, |_| format!("Resolved {job}\n"))
        }
    }
}

/// Finds a job by its id, or by the id of its build.
async fn find(context: &CommandContext, text: &str) -> Result<JobId, Failure> {
    if let Ok(build) = text.parse::<BuildId>() {
        let build = context.client.build(build).await?;
        return build.job.ok_or_else(|| {
            Failure::NotFound(format!(
                "cannot find the job of {}: the build has no job yet\n  try: run the same command again in a few seconds",
                build.id
            ))
        });
    }
    text.parse().map_err(|e| Failure::Usage(format!("{e}\n  try: `stead jobs list`")))
}

fn newest(job: &Job) -> Result<ExecutionId, Failure> {
    let newest = job.attempts.last().map(|a| a.execution);
    newest.ok_or_else(|| {
        Failure::NotFound(format!(
            "cannot resolve {0}: the job was never started\n  try: `stead jobs cancel {0} --reason …`",
            job.id
        ))
    })
}

async fn list(context: &CommandContext, list: List) -> Result<(), Failure> {
    let List { install, run, state, part: PageArgs { limit, cursor } } = list;
    let limit = Some(limit);
    let query = JobsQuery { install, run, state, limit, cursor, ..JobsQuery::default() };
    let page = context.client.jobs(&query).await?;
    context.screen.print_list(&page.items, "No jobs.", |screen| {
        let mut table =
            Table::new(["JOB", "KIND", "NAME", "STATE", "ATTEMPT", "QUEUED", "WAITING FOR"]);
        for job in &page.items {
            let state = if job.cancelling { "cancelling" } else { &job.state };
            table.row([
                job.id.to_string(),
                job.kind.clone(),
                job.name.clone().unwrap_or_default(),
                screen.state(state),
                job.attempts.len().to_string(),
                moment(&job.queued_at),
                job.waiting.as_ref().map(|w| w.detail.clone()).unwrap_or_default(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

/// Formats the principal, time and reason of a resolution.
pub(crate) fn resolution(resolved: &wire::Resolution) -> String {
    let by = actor_text(&resolved.by, resolved.by_name.as_deref());
    format!("as {} by {by} {}: {}", resolved.resolution, moment(&resolved.at), resolved.reason)
}

/// Text of a failure code. A code of a later version is shown unchanged.
pub(crate) fn failure_text<F: DeserializeOwned>(code: &str, text: fn(F) -> &'static str) -> String {
    serde_json::from_value(code.into())
        .map_or_else(|_| code.replace('_', " "), |known| text(known).into())
}

pub(crate) fn show(job: &Job, screen: &Screen) -> String {
    let name = job.name.as_deref().unwrap_or_default();
    let mut text = format!("{}  {} {name}: {}\n", job.id, job.kind, screen.state(&job.state));
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            text += &format!("  {name:<9}  {value}\n");
        }
    };
    line("class", job.class.clone());
    line("manifest", job.manifest.to_string());
    line("run", job.run.map(|r| r.to_string()).unwrap_or_default());
    line("build", job.build.map(|b| b.to_string()).unwrap_or_default());
    line("queued", moment(&job.queued_at));
    line("ended", moment_or_dash(job.ended_at.as_ref()));
    let reason = job.reason.as_deref().map(|code| failure_text(code, FailureReason::text));
    line("reason", reason.unwrap_or_default());
    line("detail", job.detail.clone().unwrap_or_default());
    if let Some(resolved) = &job.resolution {
        line("resolved", resolution(resolved));
    }
    if let Some(waiting) = &job.waiting {
        line("waiting", format!("for {}: {}", waiting.on, waiting.detail));
    }
    if job.cancelling {
        line("cancel", "requested, not confirmed yet".into());
    }
    if job.state == "outcome_unknown" {
        line("try", format!("stead jobs resolve {} --resolution … --reason …", job.id));
    }
    for attempt in &job.attempts {
        text += &format!(
            "  attempt {}  {} on {}\n",
            attempt.attempt, attempt.execution, attempt.runner
        );
        let mut more = vec![format!("claimed {}", moment(&attempt.claimed_at))];
        more.extend(attempt.phase.as_ref().map(|p| format!("phase {p}")));
        more.extend(attempt.isolation.as_ref().map(|i| format!("isolation {}", i.text())));
        more.extend(attempt.exit_code.map(|c| format!("exit code {c}")));
        more.extend(attempt.signal.map(|s| format!("signal {s}")));
        more.extend(attempt.log.as_ref().map(|l| {
            let incomplete = if l.complete { "" } else { ", incomplete" };
            format!("log {}{incomplete}, {}", size(l.length_bytes), l.sha256)
        }));
        more.extend(attempt.warnings.iter().cloned());
        text += &format!("             {}\n", more.join(", "));
        if attempt.ended_at.is_some() {
            text += &format!("             {}\n", signature::signature_text(job, attempt));
        }
    }
    text
}
