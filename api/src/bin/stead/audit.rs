//! `stead audit`: what happened, as of when, and the proof that nobody rewrote it.
pub mod diff;
mod doctor;
mod events;
mod verify;
mod which;

use std::path::PathBuf;

use clap::Subcommand;
use schemas::control::audit::{AsOfQuery, ProofQuery};

use crate::{
    failure::Failure,
    render::{count, moment, write},
    settings::{Desk, Settings},
    when::At,
};
use which::Which;

#[derive(Debug, Subcommand)]
pub enum Audit {
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
        which: Which,
        /// As of a position or a moment: RFC 3339, a day, `2h ago`, `tuesday`; without it as of now
        #[arg(long, value_name = "TIME|POSITION")]
        at: Option<At>,
    },
    /// What changed between two points, and what happened meanwhile: who asked, who approved, what ran
    #[command(after_help = "\
Examples:
  stead audit diff --install acme --from tuesday
  stead audit diff --install acme --from 2026-11-20 --to 2026-11-21
  stead audit diff --run run_01JD… --from 0
  stead audit diff --app shop --from '3d ago' -o json
A day, also a weekday, means its beginning in UTC; a weekday is the last one.
Of an install or a run, what happened is told by run; of another thing, event by event.")]
    Diff {
        #[command(flatten)]
        which: Which,
        /// Since a position or a moment: RFC 3339, a day, `2h ago`, `tuesday`
        #[arg(long, value_name = "TIME|POSITION")]
        from: At,
        /// Up to a position or a moment; without it up to now
        #[arg(long, value_name = "TIME|POSITION")]
        to: Option<At>,
    },
    /// Compute every leaf, the chain and the tree again, and compare with the signed checkpoint
    #[command(after_help = "\
Examples:
  stead audit verify
  stead audit verify --against kept-checkpoint.txt     also proves that nothing before it was rewritten
  stead audit verify --export log.ndjson --against kept-checkpoint.txt --key 9f2c…    without a server
A checkpoint is in every claim; a runner keeps the last one: `stead-runner journal` shows it.")]
    Verify(verify::Verify),
    /// Have the server run its log through today's code, without writing: leaves, chain, tree, stream versions, head,
    /// checkpoints, every event, every row of every projection
    #[command(after_help = "\
Example:
  stead audit doctor
It is the server's own word. For one that need not be believed: stead audit verify")]
    Doctor,
    /// Prove that one event is in the log
    #[command(after_help = "Example:\n  stead audit prove 1841")]
    Prove {
        /// The event's position
        position: u64,
    },
    /// Write all events, one per line, with what an offline verification needs
    #[command(after_help = "Example:\n  stead audit export --to log.ndjson")]
    Export {
        /// The file; without it standard output
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Print a signed checkpoint of now: keep it where the vendor cannot change it
    #[command(after_help = "Example:\n  stead audit checkpoint > kept-checkpoint.txt")]
    Checkpoint,
}

pub async fn run(verb: Audit, settings: &Settings) -> Result<(), Failure> {
    match verb {
        Audit::Events(ask) => events::print(&settings.desk()?, ask).await,
        Audit::Replay { which, at } => replay(&settings.desk()?, which.stream(), at).await,
        Audit::Diff { which, from, to } => {
            diff::run(&settings.desk()?, which.stream(), from, to).await
        }
        Audit::Verify(ask) => verify::run(settings, ask).await,
        Audit::Doctor => doctor::run(&settings.desk()?).await,
        Audit::Prove { position } => prove(&settings.desk()?, position).await,
        Audit::Export { to } => events::export(&settings.desk()?, to).await,
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

async fn prove(desk: &Desk, position: u64) -> Result<(), Failure> {
    let query = ProofQuery { position: Some(position), consistent_with: None };
    let proof = desk.client.proof(&query).await?;
    let checkpoint =
        verify::open(&proof.checkpoint.note, std::slice::from_ref(&proof.checkpoint.key))?;
    verify::included(&proof, position, &checkpoint)?;
    desk.screen.one(&proof, |_| {
        let mut text = format!("Position {position} is in the log of {}.\n", checkpoint.origin());
        text += &format!("  leaf  {}\n", proof.leaf.as_deref().unwrap_or_default());
        for hash in &proof.hashes {
            text += &format!("        {hash}\n");
        }
        text += &format!(
            "  root  {} over {}, signed:\n\n",
            hex::encode(checkpoint.root),
            count(checkpoint.size, "event")
        );
        text + &proof.checkpoint.note
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
