//! `stead audit`: events, past states, proofs and verification.
mod aggregate_args;
mod check;
pub(crate) mod diff;
mod doctor;
mod events;
mod export;
pub(crate) mod keys;
pub(crate) mod ocsf;
mod prove;
mod verify;

use clap::Subcommand;
use schemas::control::audit::AsOfQuery;

use crate::{
    failure::Failure,
    point_in_time::PointInTime,
    render::{count, moment, write},
    settings::{CommandContext, Settings},
};
use aggregate_args::AggregateArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Print events: a table, or one JSON document per line with -o ndjson
    #[command(after_help = "\
Examples:
  stead audit events --install acme
  stead audit events --stream run/run_01JD… -o ndjson
  stead audit events --stream app/shop
  stead audit events --type run.approved --since tuesday
  stead audit events --actor prn_01JD…
  stead audit events --follow")]
    Events(events::Events),
    /// Print the state of one stream at a position or time
    #[command(after_help = "\
Examples:
  stead audit replay --install acme --at 2026-11-20T12:00:00Z
  stead audit replay --install acme --at 1841
  stead audit replay --run run_01JD… --at '2h ago'
  stead audit replay --stream name/install/acme

`stead projections show` prints the rows of a projection at an earlier time.")]
    Replay {
        #[command(flatten)]
        which: Box<AggregateArgs>,
        /// Position or time: RFC 3339, a date, `2h ago`, `tuesday` [default: now]
        #[arg(long, value_name = "TIME|POSITION")]
        at: Option<PointInTime>,
    },
    /// Show the changes of one stream, or of every install, between two points, with requests,
    /// approvals and jobs
    #[command(after_help = "\
Examples:
  stead audit diff --install acme --from tuesday
  stead audit diff --install acme --from 2026-11-20 --to 2026-11-21
  stead audit diff --run run_01JD… --from 0
  stead audit diff --app shop --from '3d ago' -o json
  stead audit diff --from yesterday --to today      every install that changed

A day or a weekday means its start in UTC. A weekday means its most recent occurrence, which can be today.

For an install or a run, the output groups the history by run. For other aggregates, it lists events.")]
    Diff {
        #[command(flatten)]
        which: Box<AggregateArgs>,
        /// Changes after this position or time: RFC 3339, a date, `2h ago`, `tuesday`
        #[arg(long, value_name = "TIME|POSITION")]
        from: PointInTime,
        /// Changes up to this position or time, inclusive [default: now]
        #[arg(long, value_name = "TIME|POSITION")]
        to: Option<PointInTime>,
        #[command(flatten)]
        page: diff::InstallPageArgs,
    },
    /// Verify the log: recompute leaves, chain and tree, compare with the signed checkpoint, and
    /// check the runners' signatures of their reports
    #[command(after_help = "\
Examples:
  stead audit verify
  stead audit verify --against kept-checkpoint.txt
  stead audit verify --export log.ndjson --against kept-checkpoint.txt \\
    --key stead/01JD…+9f2c1a07+AZ…

With --against, the command also proves that the log continues an earlier checkpoint. Each runner stores the last \
checkpoint that it accepted; `stead-runner witness` prints that checkpoint. With --export, the command needs no server.")]
    Verify(verify::Verify),
    /// Let the server check all stored events and projection rows, read-only
    #[command(after_help = "\
Example:
  stead audit doctor

The result is a statement of the server about itself. `stead audit verify` verifies the log independently.")]
    Doctor,
    /// Write a proof bundle of an event, of a stream, or of an install with its runs, jobs and
    /// builds
    #[command(after_help = "\
Examples:
  stead audit prove 1841 --out approval.json          an event, by position
  stead audit prove evt_01JD… --out approval.json     an event, by id
  stead audit prove job_01JD… --out job.json          all events of a job
  stead audit prove acme --since kept-checkpoint.txt --out acme.json
  stead audit prove acme --with-names --with-reasons --out acme.json
  stead audit prove run/run_01JD… --hashes-only --out run.json

The name or id of an install selects the install with its runs, jobs and builds. install/acme selects only the \
install's own stream.

By default, the bundle of a stream also has an entry for every position after the last event of the stream. These \
entries prove that the stream did not continue. They show stream, type and time of each event, but not its content. \
--other-entries none omits them. docs/audit.md describes the format and the guarantees.")]
    Prove(prove::Prove),
    /// Check a proof bundle or an export offline, with a key only; prints the history of an install
    #[command(after_help = "\
Examples:
  stead audit check acme.json --key stead/01JD…+9f2c1a07+AZ…
  stead audit check acme.json --key sha256:4f… --checkpoint kept-checkpoint.txt
  stead audit check log.ndjson --key stead/01JD…+9f2c1a07+AZ…

Get the key from two sources and compare the results: `stead-runner witness key` at the customer, and `stead keys list` \
at the vendor.

The exit code is 0 if the file is valid, 1 if a check fails, and 2 if the file is neither a proof nor an export.")]
    Check(check::Check),
    /// Export a range of the log, one event per line, with proofs that no event is missing
    #[command(after_help = "\
Examples:
  stead audit export --out log.ndjson                             the whole log
  stead audit export --from 1000 --to 2000 --out part.ndjson      a range of positions
  stead audit export --from 2026-07-01T00:00:00Z --to 2026-10-01T00:00:00Z --out quarter.ndjson

The first line has the signed checkpoint and the proofs for `stead audit check`.")]
    Export(export::Export),
    /// Print a current signed checkpoint; store it where the vendor cannot change it
    #[command(after_help = "Example:\n  stead audit checkpoint > kept-checkpoint.txt")]
    Checkpoint,
}

pub(crate) async fn run(verb: Audit, settings: &Settings) -> Result<(), Failure> {
    match verb {
        Audit::Events(args) => events::print(&settings.context()?, args).await,
        Audit::Replay { which: aggregate, at } => {
            let stream = aggregate.stream().ok_or_else(|| {
                Failure::Usage(
                    "cannot replay: no aggregate is selected\n  try: --install NAME, --run ID or --stream TYPE/ID".into(),
                )
            })?;
            replay(&settings.context()?, stream, at).await
        }
        Audit::Diff { which: aggregate, from, to, page } => {
            diff::run(&settings.context()?, aggregate.stream(), (from, to), page).await
        }
        Audit::Verify(args) => verify::run(settings, args).await,
        Audit::Doctor => doctor::run(&settings.context()?).await,
        Audit::Prove(args) => prove::run(&settings.context()?, args).await,
        Audit::Check(args) => check::run(settings, &args),
        Audit::Export(args) => export::run(&settings.context()?, args).await,
        Audit::Checkpoint => {
            let checkpoint = settings.context()?.client.checkpoint().await?;
            settings.screen().print_one(&checkpoint, |_| checkpoint.note.clone())
        }
    }
}

async fn replay(
    context: &CommandContext,
    stream: String,
    at: Option<PointInTime>,
) -> Result<(), Failure> {
    let (position, time) = at.map_or((None, None), PointInTime::parts);
    let then =
        context.client.as_of(&AsOfQuery { stream, position, time, min_position: None }).await?;
    let recorded = then.recorded_at.as_ref().map(moment).unwrap_or_default();
    context.screen.remark(&format!(
        "{} as of position {} ({recorded}), from {}:",
        then.stream,
        then.position,
        count(then.sequence, "event")
    ));
    context.screen.print_one(&then, |_| {
        let text = serde_json::to_string_pretty(&then.state).unwrap_or_default();
        format!("{text}\n")
    })
}

/// Prints the result of a verification, as text or as JSON.
fn print_result(
    screen: &crate::render::Screen,
    result: &serde_json::Value,
    text: &str,
) -> Result<(), Failure> {
    match screen.output {
        crate::render::Output::Table => write(text),
        crate::render::Output::Json | crate::render::Output::Ndjson => {
            screen.print_one(result, |_| String::new())
        }
    }
}
