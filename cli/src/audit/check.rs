//! `stead audit check`: verifies a proof in a file, without a server.
mod install;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use crate::client::{ProvenHistory, proven_history, sanitize, take_exported_line};
use chrono::{DateTime, Utc};
use clap::Args;
use proof::{
    bundle::{
        Bundle, BundleError, Complete, Content, MAX_BYTES, StreamProven, Subject, VerifiedBundle,
    },
    key::TrustedKey,
    range::{self, Head, Range},
};
use serde::Serialize;

use super::{keys::parse_trusted_keys, print_result};
use crate::{failure::Failure, render::moment, settings::Settings};

/// Maximum length of an exported line in bytes. An event has at most 64 KiB before JSON escapes.
const LINE_BYTES: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// File of `stead audit prove` or `stead audit export`
    file: PathBuf,
    /// Trusted checkpoint key: a verifier key, 64 hexadecimal digits, or a fingerprint; may be
    /// repeated
    #[arg(long, required = true)]
    key: Vec<String>,
    /// Earlier signed checkpoint; the check fails unless the log of the file continues it
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Fail unless the file proves that no event of its subject is missing, up to its checkpoint
    #[arg(long)]
    require_complete: bool,
}

/// Result of a check: the proven statements, and those that the file does not prove.
#[derive(Debug, Serialize)]
pub(crate) struct CheckReport {
    subject: String,
    log: String,
    size: u64,
    root: String,
    signer: String,
    /// Completeness of the subject. `None` if the subject is one event.
    complete: Option<bool>,
    /// Each stream of the subject with its number of events and its completeness.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    streams: Vec<StreamReport>,
    /// History of an install. Absent if the file has another subject, or has hashes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<ProvenHistory>,
    proven: Vec<String>,
    not_proven: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StreamReport {
    stream: String,
    events: u64,
    complete: bool,
}

pub(crate) fn run(settings: &Settings, args: &Check) -> Result<(), Failure> {
    let keys = parse_trusted_keys(&args.key)?;
    let read = |path: &PathBuf| {
        fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("cannot read the checkpoint {}: {error}", path.display()))
        })
    };
    let checkpoint = args.checkpoint.as_ref().map(read).transpose()?;
    let report = checked(&args.file, &keys, checkpoint.as_deref())?;
    if args.require_complete && report.complete != Some(true) {
        let (file, subject) = (args.file.display(), sanitize(&report.subject));
        let why = match report.complete {
            Some(_) if report.streams.len() > 1 => {
                "does not prove that each of its streams is complete: it was made with --other-entries none or \
                 --hashes-only, or the log is too long"
            }
            Some(_) => {
                "was made with --other-entries none: it does not prove that its last event is the last of the stream"
            }
            None => {
                "contains one event: only a bundle of a stream, or an export, can prove that no event is missing"
            }
        };
        return Err(Failure::Outcome(format!("{file} is valid, but {why} ({subject})")));
    }
    let screen = settings.screen();
    let history = report.history.as_ref().map(|history| install::text(history, &screen));
    let text = format!(
        "{} is valid.\n{}{}",
        args.file.display(),
        history.unwrap_or_default(),
        report.proofs()
    );
    print_result(&screen, &serde_json::json!(report), &text)
}

fn checked(
    path: &Path,
    keys: &[TrustedKey],
    checkpoint: Option<&str>,
) -> Result<CheckReport, Failure> {
    let no_file = |error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    let wrong = |error: BundleError| {
        let message = sanitize(&format!("{}: {error}", path.display()));
        if error.is_useless() { Failure::Usage(message) } else { Failure::Outcome(message) }
    };
    let mut file = BufReader::new(File::open(path).map_err(no_file)?);
    let mut first = Vec::new();
    // The limit allows the final newline, and one byte that shows that the file is too long.
    let limit = MAX_BYTES as u64 + 2;
    file.by_ref().take(limit).read_until(b'\n', &mut first).map_err(no_file)?;
    let is_range = first.starts_with(format!("{{\"format\":\"{}\"", range::FORMAT).as_bytes());
    if !is_range {
        file.take(limit).read_to_end(&mut first).map_err(no_file)?;
        let bundle = Bundle::read(&first).map_err(wrong)?;
        let proven = bundle.check(keys, checkpoint).map_err(wrong)?;
        let history = history(&bundle)?;
        return Ok(bundle_report(&bundle, &proven, history));
    }
    let head = Head::read(first.strip_suffix(b"\n").unwrap_or(&first)).map_err(wrong)?;
    let mut range = Range::begin(head, keys, checkpoint).map_err(wrong)?;
    loop {
        let mut line = Vec::new();
        file.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).map_err(no_file)?;
        if line.is_empty() {
            break;
        }
        take_exported_line(&mut range, line.strip_suffix(b"\n").unwrap_or(&line)).map_err(wrong)?;
    }
    range.end().map(|proven| range_report(&proven)).map_err(wrong)
}

/// Returns the history in a bundle of an install.
pub(crate) fn history(bundle: &Bundle) -> Result<Option<ProvenHistory>, Failure> {
    proven_history(bundle).map_err(|error| Failure::Outcome(sanitize(&error.to_string())))
}

impl CheckReport {
    /// Formats the proven and the unproven statements.
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

/// Describes the statements that a bundle proves.
pub(crate) fn bundle_report(
    bundle: &Bundle,
    proven: &VerifiedBundle,
    history: Option<ProvenHistory>,
) -> CheckReport {
    if let Subject::Streams(_) = bundle.subject {
        return install::install_report(bundle, proven, history);
    }
    let checkpoint = &proven.checkpoint;
    let (mut holds, mut open) = (vec![signed(&proven.signer.to_string(), checkpoint)], vec![]);
    let subject = sanitize(&bundle.subject.to_string());
    let last = bundle.events.last();
    let (last_at, count) = (last.map_or(0, |last| last.position), bundle.events.len());
    match (&bundle.subject, last) {
        (Subject::Position(_), Some(event)) => holds.push(format!(
            "position {} is {}, {} of {}/{}, recorded {}",
            event.position,
            sanitize(&event.event_type),
            event.event_id,
            sanitize(&event.aggregate_type),
            sanitize(&event.aggregate_id),
            recorded(event.recorded_at_us),
        )),
        (Subject::Position(_) | Subject::Stream(_) | Subject::Streams(_), _) => {
            holds.push(format!(
                "the log contains {} of {subject}, as shown: {}, the last at position {last_at}",
                events(count as u64),
                if count == 1 { "sequence 1".into() } else { format!("sequences 1 to {count}") },
            ))
        }
    }
    let size = checkpoint.size;
    match &proven.complete {
        Complete::NotApplicable => open.push("the other events of the same aggregate: prove its stream".into()),
        Complete::Unknown { last } => open.push(format!(
            "that {subject} has no event after position {last}: the file lacks the entries of other streams (--other-entries none)"
        )),
        Complete::FromSequences { from } => {
            holds.push(match from > &size {
                true => format!("no event of {subject} is missing: its last event is the last event of the log"),
                false => format!(
                    "no event of {subject} is missing: its sequences have no gap, and positions {from} to {size} belong to other streams"
                ),
            });
            open.push(format!(
                "that no sequence of {subject} was assigned twice before position {from}: the log guarantees it, and \
                 `stead audit verify`, or a bundle with --other-entries all, verifies it"
            ));
        }
        Complete::Whole => holds.push(format!(
            "no event of {subject} is missing: the file contains all {size} positions of the log"
        )),
    }
    if let Some(since) = &proven.since {
        holds.push(format!("the log only grew since the older checkpoint at {}", since.size));
    }
    added(bundle, &mut open);
    note_stored_checkpoint(proven.stored.as_ref().map(|stored| stored.size), &mut holds, &mut open);
    always(checkpoint.size, proven.other_signatures, &mut open);
    CheckReport {
        subject: sanitize(&bundle.subject.to_string()),
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
        Complete::NotApplicable => None,
        Complete::Unknown { .. } => Some(false),
        Complete::FromSequences { .. } | Complete::Whole => Some(true),
    }
}

fn streams(proven: &VerifiedBundle) -> Vec<StreamReport> {
    let report = |stream: &StreamProven| StreamReport {
        stream: sanitize(&stream.stream),
        events: stream.events,
        complete: is_complete(&stream.complete) == Some(true),
    };
    proven.streams.iter().map(report).collect()
}

/// Adds statements about content that the proof does not cover.
fn added(bundle: &Bundle, open: &mut Vec<String>) {
    if bundle.events.iter().any(|event| matches!(event.content, Content::Hashes { .. })) {
        open.push(
            "the contents of the events: the file has only hashes of payload and metadata".into(),
        );
    }
    if bundle.annotations.is_some() {
        open.push(
            "names and reasons: the server added them; the log contains no names, and only encrypted reasons".into(),
        );
    }
}

fn range_report(proven: &range::VerifiedRange) -> CheckReport {
    let checkpoint = &proven.checkpoint;
    let (from, to) = (proven.from, proven.to);
    let mut holds = vec![
        signed(&proven.signer.to_string(), checkpoint),
        format!(
            "the log contains positions {from} to {to}, as shown: {}, and none is missing",
            events(to + 1 - from)
        ),
    ];
    let mut open = vec![];
    if from > 1 {
        let entry =
            format!("the chain hash before position {from}: the checkpoint covers only the tree");
        open.push(entry);
    }
    note_stored_checkpoint(proven.stored.as_ref().map(|stored| stored.size), &mut holds, &mut open);
    always(checkpoint.size, proven.other_signatures, &mut open);
    CheckReport {
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
        "a log of {} ({}, epoch {}) is signed by {signer}",
        events(checkpoint.size),
        checkpoint.origin(),
        checkpoint.epoch
    )
}

fn events(count: u64) -> String {
    if count == 1 { "1 event".into() } else { format!("{count} events") }
}

fn note_stored_checkpoint(stored: Option<u64>, holds: &mut Vec<String>, open: &mut Vec<String>) {
    match stored {
        Some(size) => holds.push(format!("the log matches the stored checkpoint at {size}")),
        None => open.push(
            "that other parties see the same log: pass --checkpoint with a checkpoint that another party stored, for example a runner"
                .into(),
        ),
    }
}

fn always(size: u64, other_signatures: usize, open: &mut Vec<String>) {
    // The creator of a proof selects its checkpoint, which may be old.
    open.push(format!(
        "that the log ends at position {size}: a checkpoint has no date; compare it with a current checkpoint"
    ));
    open.push(
        "that the records are complete and true: times, actors and texts come from the server"
            .into(),
    );
    if other_signatures > 0 {
        open.push(format!("other signatures of the checkpoint: {other_signatures}"));
    }
}

fn recorded(at_us: i64) -> String {
    DateTime::<Utc>::from_timestamp_micros(at_us)
        .as_ref()
        .map_or("at an unknown time".into(), moment)
}
