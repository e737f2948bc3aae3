//! `stead audit`: what happened, as of when, and the proof that nobody rewrote it.
mod check;
pub(crate) mod diff;
mod doctor;
mod events;
mod export;
pub(crate) mod keys;
pub(crate) mod ocsf;
mod prove;
mod verify;
mod which;

use clap::Subcommand;
use schemas::control::audit::AsOfQuery;

use crate::{
    failure::Failure,
    render::{count, moment, write},
    settings::{Desk, Settings},
    when::At,
};
use which::Which;

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
    /// Fold the events of one thing up to a position or a moment, and print its state
    #[command(after_help = "\
Examples:
  stead audit replay --install acme --at 2026-11-20T12:00:00Z
  stead audit replay --install acme --at 1841
  stead audit replay --run run_01JD… --at '2h ago'
  stead audit replay --stream name/install/acme
The rows of a projection as of then: stead projections show")]
    Replay {
        #[command(flatten)]
        which: Box<Which>,
        /// As of a position or a moment: RFC 3339, a day, `2h ago`, `tuesday`; without it as of now
        #[arg(long, value_name = "TIME|POSITION")]
        at: Option<At>,
    },
    /// What changed of one thing, or of every install, between two points: who asked, who approved, what ran
    #[command(after_help = "\
Examples:
  stead audit diff --install acme --from tuesday
  stead audit diff --install acme --from 2026-11-20 --to 2026-11-21
  stead audit diff --run run_01JD… --from 0
  stead audit diff --app shop --from '3d ago' -o json
  stead audit diff --from yesterday --to today      every install of which something changed
A day, also a weekday, means its beginning in UTC; a weekday is the last one.
Of an install or a run, what happened is told by run; of another thing, event by event.")]
    Diff {
        #[command(flatten)]
        which: Box<Which>,
        /// Since a position or a moment: RFC 3339, a day, `2h ago`, `tuesday`
        #[arg(long, value_name = "TIME|POSITION")]
        from: At,
        /// Up to a position or a moment; without it up to now
        #[arg(long, value_name = "TIME|POSITION")]
        to: Option<At>,
        #[command(flatten)]
        page: diff::Page,
    },
    /// Compute every leaf, the chain and the tree again, compare with the signed checkpoint, and hold what runners reported
    /// against what they signed
    #[command(after_help = "\
Examples:
  stead audit verify
  stead audit verify --against kept-checkpoint.txt     also proves that nothing before it was rewritten
  stead audit verify --export log.ndjson --against kept-checkpoint.txt --key stead/01JD…+9f2c1a07+AZ…    without a server
A checkpoint is in every claim; a runner keeps the last one: `stead-runner witness` prints it.")]
    Verify(verify::Verify),
    /// Have the server run its log through today's code, without writing: leaves, chain, tree, stream versions, head,
    /// checkpoints, every event, every row of every projection
    #[command(after_help = "\
Example:
  stead audit doctor
It is the server's own word. For one that need not be believed: stead audit verify")]
    Doctor,
    /// Write a file that proves an event, all events of a job, or an install with its runs, jobs and builds
    #[command(after_help = "\
Examples:
  stead audit prove 1841 --out approval.json                 one event, by its position
  stead audit prove evt_01JD… --out approval.json            or by its id
  stead audit prove job_01JD… --out job.json                 a job, and that none of its events is missing
  stead audit prove acme --since kept-checkpoint.txt --out acme.json      an install with its runs, jobs and builds
  stead audit prove acme --with-names --with-reasons --out acme.json      with who the principals are, and why
  stead audit prove run/run_01JD… --hashes --out run.json    any stream, without what its events say
install/acme is the install's own stream alone. That a stream is complete is shown by the entries of other streams after it: whose they are, of which type and when,
never what they say. --alone leaves them out. docs/audit.md has the format and what it proves.")]
    Prove(prove::Prove),
    /// Check a proof or an export, with nothing but a key: no server, no database; of an install, print its history
    #[command(after_help = "\
Examples:
  stead audit check acme.json --key stead/01JD…+9f2c1a07+AZ…
  stead audit check acme.json --key sha256:4f… --checkpoint kept-checkpoint.txt
  stead audit check log.ndjson --key stead/01JD…+9f2c1a07+AZ…
The key: `stead-runner witness key` at the customer, `stead keys list` at the vendor. Compare them.
Ends with 0 if all of it holds, 1 with the first thing that does not, 2 if the file is no proof.")]
    Check(check::Check),
    /// Write every event of a part of the log, one per line, with what proves that none is missing
    #[command(after_help = "\
Examples:
  stead audit export --out log.ndjson                             everything
  stead audit export --from 1000 --to 2000 --out part.ndjson      positions, both included
  stead audit export --from 2026-07-01T00:00:00Z --to 2026-10-01T00:00:00Z --out quarter.ndjson
The first line has the signed checkpoint and the proofs; `stead audit check` reads it.")]
    Export(export::Export),
    /// Print a signed checkpoint of now: keep it where the vendor cannot change it
    #[command(after_help = "Example:\n  stead audit checkpoint > kept-checkpoint.txt")]
    Checkpoint,
}

pub(crate) async fn run(verb: Audit, settings: &Settings) -> Result<(), Failure> {
    match verb {
        Audit::Events(ask) => events::print(&settings.desk()?, ask).await,
        Audit::Replay { which, at } => {
            let stream = which.stream().ok_or_else(|| {
                Failure::Usage(
                    "nothing is named to replay\n  try: --install NAME, --run ID or --stream TYPE/ID".into(),
                )
            })?;
            replay(&settings.desk()?, stream, at).await
        }
        Audit::Diff { which, from, to, page } => {
            diff::run(&settings.desk()?, which.stream(), (from, to), page).await
        }
        Audit::Verify(ask) => verify::run(settings, ask).await,
        Audit::Doctor => doctor::run(&settings.desk()?).await,
        Audit::Prove(ask) => prove::run(&settings.desk()?, ask).await,
        Audit::Check(ask) => check::run(settings, &ask),
        Audit::Export(ask) => export::run(&settings.desk()?, ask).await,
        Audit::Checkpoint => {
            let checkpoint = settings.desk()?.client.checkpoint().await?;
            settings.screen().one(&checkpoint, |_| checkpoint.note.clone())
        }
    }
}

async fn replay(desk: &Desk, stream: String, at: Option<At>) -> Result<(), Failure> {
    let (position, time) = at.map_or((None, None), At::parts);
    let then = desk.client.as_of(&AsOfQuery { stream, position, time, min_position: None }).await?;
    let recorded = then.recorded_at.as_ref().map(moment).unwrap_or_default();
    desk.screen.remark(&format!(
        "{} as of position {} ({recorded}), from {}:",
        then.stream,
        then.position,
        count(then.sequence, "event")
    ));
    desk.screen.one(&then, |_| {
        let text = serde_json::to_string_pretty(&then.state).unwrap_or_default();
        format!("{text}\n")
    })
}

/// Tell how a verification ended, for people or programs.
fn tell(desk: &crate::render::Screen, said: &serde_json::Value, text: &str) -> Result<(), Failure> {
    match desk.output {
        crate::render::Output::Table => write(text),
        crate::render::Output::Json | crate::render::Output::Ndjson => {
            desk.one(said, |_| String::new())
        }
    }
}
