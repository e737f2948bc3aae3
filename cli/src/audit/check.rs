//! A proof in a file, checked without anybody's help.
mod story;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use clap::Args;
use cli::client::{ProvenHistory, harmless, proven_history, take};
use proof::{
    bundle::{Bundle, BundleError, Complete, Content, MAX_BYTES, Proven, StreamProven, Subject},
    key::Believed,
    range::{self, Head, Range},
};
use serde::Serialize;

use super::{keys::believed, tell};
use crate::{failure::Failure, render::moment, settings::Settings};

/// A longer line is no event: one has at most 64 KiB, and escapes.
const LINE_BYTES: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// File of `stead audit prove` or `stead audit export`
    file: PathBuf,
    /// Trusted checkpoint key: a verifier key, 64 hexadecimal digits, or a fingerprint; may be repeated
    #[arg(long, required = true)]
    key: Vec<String>,
    /// Earlier signed checkpoint: the file must be of the same log
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Fail unless the file proves that no event of its subject is missing, up to its checkpoint
    #[arg(long)]
    require_complete: bool,
}

/// What holds, and what a reader might take for proven and is not.
#[derive(Debug, Serialize)]
pub(crate) struct Said {
    subject: String,
    log: String,
    size: u64,
    root: String,
    signer: String,
    /// Whether none of what was asked for is missing; none: one event was asked for.
    complete: Option<bool>,
    /// Each stream of the subject with its number of events and its completeness.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    streams: Vec<StreamSaid>,
    /// History of an install. Absent: the file is of something else, or has hashes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<ProvenHistory>,
    proven: Vec<String>,
    not_proven: Vec<String>,
}

/// One stream of the subject.
#[derive(Debug, Serialize)]
struct StreamSaid {
    stream: String,
    events: u64,
    complete: bool,
}

pub(crate) fn run(settings: &Settings, ask: &Check) -> Result<(), Failure> {
    let keys = believed(&ask.key)?;
    let read = |path: &PathBuf| {
        fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("the checkpoint {}: {error}", path.display())))
    };
    let kept = ask.checkpoint.as_ref().map(read).transpose()?;
    let said = checked(&ask.file, &keys, kept.as_deref())?;
    if ask.require_complete && said.complete != Some(true) {
        let (file, subject) = (ask.file.display(), harmless(&said.subject));
        let why = match said.complete {
            Some(_) if said.streams.len() > 1 => {
                "does not show that each stream in it is complete: it was created with --other-entries none or \
                 --hashes-only, or the log is too long"
            }
            Some(_) => {
                "was created with --other-entries none: it does not show that nothing came after its last event"
            }
            None => {
                "is of one event: only a bundle of a stream, and an export, show that none is missing"
            }
        };
        return Err(Failure::Outcome(format!("{file} holds, and {why} ({subject})")));
    }
    let screen = settings.screen();
    let history = said.history.as_ref().map(|history| story::text(history, &screen));
    let text =
        format!("{} holds.\n{}{}", ask.file.display(), history.unwrap_or_default(), said.proofs());
    tell(&screen, &serde_json::json!(said), &text)
}

fn checked(path: &Path, keys: &[Believed], kept: Option<&str>) -> Result<Said, Failure> {
    let no_file = |error| Failure::Usage(format!("{}: {error}", path.display()));
    let wrong = |error: BundleError| {
        let said = harmless(&format!("{}: {error}", path.display()));
        if error.is_useless() { Failure::Usage(said) } else { Failure::Outcome(said) }
    };
    let mut file = BufReader::new(File::open(path).map_err(no_file)?);
    let mut first = Vec::new();
    // One byte more than is read at most: whoever is too long is told so.
    let limit = MAX_BYTES as u64 + 2;
    file.by_ref().take(limit).read_until(b'\n', &mut first).map_err(no_file)?;
    let is_range = first.starts_with(format!("{{\"format\":\"{}\"", range::FORMAT).as_bytes());
    if !is_range {
        file.take(limit).read_to_end(&mut first).map_err(no_file)?;
        let bundle = Bundle::read(&first).map_err(wrong)?;
        let proven = bundle.check(keys, kept).map_err(wrong)?;
        let history = history(&bundle)?;
        return Ok(said(&bundle, &proven, history));
    }
    let head = Head::read(first.strip_suffix(b"\n").unwrap_or(&first)).map_err(wrong)?;
    let mut range = Range::begin(head, keys, kept).map_err(wrong)?;
    loop {
        let mut line = Vec::new();
        file.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).map_err(no_file)?;
        if line.is_empty() {
            break;
        }
        take(&mut range, line.strip_suffix(b"\n").unwrap_or(&line)).map_err(wrong)?;
    }
    range.end().map(|proven| of_range(&proven)).map_err(wrong)
}

/// The history in a bundle, if it is of an install.
pub(crate) fn history(bundle: &Bundle) -> Result<Option<ProvenHistory>, Failure> {
    proven_history(bundle).map_err(|error| Failure::Outcome(harmless(&error.to_string())))
}

impl Said {
    /// Text on what is proven and what is not.
    pub(crate) fn proofs(&self) -> String {
        let mut text = String::from("Proven:\n");
        for line in &self.proven {
            text += &format!("  - {line}\n");
        }
        text += "Not proven:\n";
        for line in &self.not_proven {
            text += &format!("  - {line}\n");
        }
        text
    }
}

/// What a bundle proves, in plain words.
pub(crate) fn said(bundle: &Bundle, proven: &Proven, history: Option<ProvenHistory>) -> Said {
    if let Subject::Streams(_) = bundle.subject {
        return story::said(bundle, proven, history);
    }
    let checkpoint = &proven.checkpoint;
    let (mut holds, mut open) = (vec![signed(&proven.signer.to_string(), checkpoint)], vec![]);
    let subject = harmless(&bundle.subject.to_string());
    let last = bundle.events.last();
    let (last_at, count) = (last.map_or(0, |last| last.position), bundle.events.len());
    match (&bundle.subject, last) {
        (Subject::Position(_), Some(event)) => holds.push(format!(
            "position {} of it is {}, {} of {}/{}, recorded {}",
            event.position,
            harmless(&event.event_type),
            event.event_id,
            harmless(&event.aggregate_type),
            harmless(&event.aggregate_id),
            recorded(event.recorded_at_us),
        )),
        (Subject::Position(_) | Subject::Stream(_) | Subject::Streams(_), _) => {
            holds.push(format!(
                "in it, as they are here: {} of {subject}, {}, the last at position {last_at}",
                events(count as u64),
                if count == 1 { "sequence 1".into() } else { format!("sequences 1 to {count}") },
            ))
        }
    }
    let size = checkpoint.size;
    match &proven.complete {
        Complete::NotAsked => open.push("what else happened to the same thing: ask for its stream".into()),
        Complete::Unknown { last } => open.push(format!(
            "that nothing of {subject} came after position {last}: the entries of others were left out (--other-entries none)"
        )),
        Complete::FromSequences { from } => {
            holds.push(match from > &size {
                true => format!("none of {subject} is missing: the last of them is the log's last event"),
                false => format!(
                    "none of {subject} is missing: its sequences have no gap, and positions {from} to {size} \
                     are all here and of others"
                ),
            });
            open.push(format!(
                "that no sequence of {subject} was given twice before position {from}: that is the log's rule, \
                 which `stead audit verify`, or a bundle with --other-entries all, shows to be kept"
            ));
        }
        Complete::Whole => holds.push(format!(
            "none of {subject} is missing: all {size} positions of the log are here, and no other is of it"
        )),
    }
    if let Some(since) = &proven.since {
        holds.push(format!("the log only grew since the older checkpoint at {}", since.size));
    }
    added(bundle, &mut open);
    compared(proven.kept.as_ref().map(|kept| kept.size), &mut holds, &mut open);
    always(checkpoint.size, proven.other_signatures, &mut open);
    Said {
        subject: harmless(&bundle.subject.to_string()),
        streams: streams(proven),
        history,
        log: checkpoint.origin(),
        size,
        root: hex::encode(checkpoint.root),
        signer: proven.signer.to_string(),
        complete: is_complete(&proven.complete),
        proven: holds,
        not_proven: open,
    }
}

fn is_complete(complete: &Complete) -> Option<bool> {
    match complete {
        Complete::NotAsked => None,
        Complete::Unknown { .. } => Some(false),
        Complete::FromSequences { .. } | Complete::Whole => Some(true),
    }
}

fn streams(proven: &Proven) -> Vec<StreamSaid> {
    let said = |stream: &StreamProven| StreamSaid {
        stream: harmless(&stream.stream),
        events: stream.events,
        complete: is_complete(&stream.complete) == Some(true),
    };
    proven.streams.iter().map(said).collect()
}

/// Content of the file that is not covered by the proof.
fn added(bundle: &Bundle, open: &mut Vec<String>) {
    if bundle.events.iter().any(|event| matches!(event.content, Content::Hashes { .. })) {
        open.push("what the events say: only the hashes of payload and metadata are here".into());
    }
    if bundle.annotations.is_some() {
        open.push(
            "names and reasons: the server added them; the log has names nowhere and reasons encrypted".into(),
        );
    }
}

fn of_range(proven: &range::Proven) -> Said {
    let checkpoint = &proven.checkpoint;
    let (from, to) = (proven.from, proven.to);
    let mut holds = vec![
        signed(&proven.signer.to_string(), checkpoint),
        format!(
            "positions {from} to {to} of it, as they are here: {}, and none is missing",
            events(to + 1 - from)
        ),
    ];
    let mut open = vec![];
    if from > 1 {
        let said =
            format!("the chain's link before position {from}: the checkpoint covers the tree");
        open.push(said);
    }
    compared(proven.kept.as_ref().map(|kept| kept.size), &mut holds, &mut open);
    always(checkpoint.size, proven.other_signatures, &mut open);
    Said {
        subject: format!("positions {from} to {to}"),
        streams: vec![],
        history: None,
        log: checkpoint.origin(),
        size: checkpoint.size,
        root: hex::encode(checkpoint.root),
        signer: proven.signer.to_string(),
        complete: Some(true),
        proven: holds,
        not_proven: open,
    }
}

fn signed(signer: &str, checkpoint: &proof::checkpoint::Checkpoint) -> String {
    format!(
        "a log of {} events ({}, epoch {}) was signed by {signer}",
        checkpoint.size,
        checkpoint.origin(),
        checkpoint.epoch
    )
}

fn events(count: u64) -> String {
    if count == 1 { "1 event".into() } else { format!("{count} events") }
}

fn compared(kept: Option<u64>, holds: &mut Vec<String>, open: &mut Vec<String>) {
    match kept {
        Some(size) => holds.push(format!("it is the log of the kept checkpoint at {size}")),
        None => open.push(
            "that others were shown the same log: --checkpoint with one that somebody else kept, as a runner does"
                .into(),
        ),
    }
}

fn always(size: u64, other_signatures: usize, open: &mut Vec<String>) {
    // Whoever proves chooses the checkpoint, and it may be as old as they like.
    open.push(format!(
        "that nothing came after position {size}: a checkpoint has no date; compare with one of today"
    ));
    open.push(
        "that everything that happened was recorded, and is true: moments, actors and words are the server's".into(),
    );
    if other_signatures > 0 {
        open.push(format!("anything about {other_signatures} further signatures of a checkpoint"));
    }
}

fn recorded(at_us: i64) -> String {
    DateTime::<Utc>::from_timestamp_micros(at_us).as_ref().map_or("at no moment".into(), moment)
}
