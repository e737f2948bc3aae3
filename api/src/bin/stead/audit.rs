//! `stead audit`: what happened, as of when, and the proof that nobody rewrote it.
mod doctor;
mod events;
mod verify;

use std::{path::PathBuf, str::FromStr};

use chrono::{DateTime, Utc};
use clap::Subcommand;
use schemas::control::audit::{AsOfQuery, ProofQuery};

use crate::{
    failure::Failure,
    render::{moment, write},
    settings::{Desk, Settings},
};

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Print events: a table, or one JSON document per line with -o ndjson
    #[command(after_help = "\
Examples:
  stead audit events --install acme
  stead audit events --stream run/run_01JD… -o ndjson
  stead audit events --type run.approved --since 2026-11-20T00:00:00Z
  stead audit events --actor prn_01JD…
  stead audit events --follow")]
    Events(events::Events),
    /// Fold the events of one thing up to a position or a moment, and print its state
    #[command(after_help = "\
Examples:
  stead audit replay --install acme --at 2026-11-20T12:00:00Z
  stead audit replay --install acme --at 1841
  stead audit replay --stream run/run_01JD…")]
    Replay {
        /// An install's name or id
        #[arg(long, conflicts_with = "stream", required_unless_present = "stream")]
        install: Option<String>,
        /// Any stream: `<aggregate type>/<aggregate id>`
        #[arg(long)]
        stream: Option<String>,
        /// As of a position or a moment (RFC 3339); without it as of now
        #[arg(long, value_name = "TIME|POSITION")]
        at: Option<At>,
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

/// A position or a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The position itself is included.
    Position(u64),
    /// What was recorded at the moment is included.
    Time(DateTime<Utc>),
}

impl At {
    /// As a query has them.
    pub fn parts(self) -> (Option<u64>, Option<DateTime<Utc>>) {
        match self {
            At::Position(position) => (Some(position), None),
            At::Time(time) => (None, Some(time)),
        }
    }
}

impl FromStr for At {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(position) = text.parse() {
            return Ok(At::Position(position));
        }
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| {
            format!("{text:?} is neither a position nor a moment like 2026-11-20T12:00:00Z")
        })?;
        Ok(At::Time(time.with_timezone(&Utc)))
    }
}

pub async fn run(verb: Audit, settings: &Settings) -> Result<(), Failure> {
    match verb {
        Audit::Events(ask) => events::print(&settings.desk()?, ask).await,
        Audit::Replay { install, stream, at } => {
            let stream = stream.or_else(|| install.map(|i| format!("install/{i}")));
            replay(&settings.desk()?, stream.unwrap_or_default(), at).await
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
        "{} as of position {} ({recorded}), from {} events:",
        then.stream, then.position, then.sequence
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
            "  root  {} over {} events, signed:\n\n",
            hex::encode(checkpoint.root),
            checkpoint.size
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
