//! `stead audit export`: writes a range of the log to a file.
use std::{
    fs::OpenOptions,
    io::{BufWriter, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::client::{ClientError, lines, sanitize, take_exported_line};
use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt, pin_mut};
use proof::{
    bundle::BundleError,
    key::TrustedKey,
    range::{Head, Range},
};
use schemas::control::{audit::EventRecord, bundles::RangeQuery};

use super::{PointInTime, ocsf};
use crate::{failure::Failure, settings::CommandContext};

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// From this position or time, inclusive: RFC 3339, a date, `2h ago`, `tuesday` [default: the
    /// first event]
    #[arg(long, value_name = "TIME|POSITION")]
    from: Option<PointInTime>,
    /// Up to this position (inclusive) or time (exclusive) [default: the last event]
    #[arg(long, value_name = "TIME|POSITION")]
    to: Option<PointInTime>,
    /// Format: `ndjson` for `stead audit check`, or `ocsf` for a SIEM, without proofs
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Unchanged events for `stead audit check`, after a first line with the proofs
    Ndjson,
    /// Events in the class Entity Management of OCSF 1.3.0 for a SIEM, without proofs
    Ocsf,
}

/// Writes the lines as they arrive, with a progress bar. Removes an incomplete or invalid file.
pub(crate) async fn run(context: &CommandContext, args: Export) -> Result<(), Failure> {
    let (from, since) = args.from.map_or((None, None), PointInTime::parts);
    let (to, until) = args.to.map_or((None, None), PointInTime::parts);
    let query = RangeQuery { from, to, since, until, min_position: None };
    let lines = lines(context.client.range(&query).await?);
    pin_mut!(lines);
    let first = lines.next().await.ok_or_else(incomplete)??;
    let head = Head::read(first.as_bytes()).map_err(wrong)?;
    let out: Box<dyn Write> = match &args.out {
        Some(path) => Box::new(created(path)?),
        None => Box::new(std::io::stdout()),
    };
    let written = written(context, (&first, head.clone()), lines, (args.format, out)).await;
    let Some(path) = args.out else { return written };
    if let Err(failure) = written {
        if let Err(error) = std::fs::remove_file(&path) {
            context.screen.remark(&format!(
                "cannot delete the incomplete export {}: {error}; delete it",
                path.display()
            ));
        }
        return Err(failure);
    }
    let (count, from, to, path) = (head.count(), head.from, head.to, path.display());
    let next = match args.format {
        Format::Ndjson => {
            format!("Verify the file offline: stead audit check {path} --key {}", head.signer)
        }
        Format::Ocsf => {
            "OCSF lines cannot be verified. Also store an export without --format.".into()
        }
    };
    context
        .screen
        .remark(&format!("Exported {count} events, positions {from} to {to}, to {path}\n{next}"));
    Ok(())
}

/// Writes the lines and verifies them with the key that the export names. The recipient decides
/// whether to trust that key.
async fn written(
    context: &CommandContext,
    (first, head): (&str, Head),
    mut lines: impl Stream<Item = Result<String, ClientError>> + Unpin,
    (format, out): (Format, Box<dyn Write>),
) -> Result<(), Failure> {
    let bar = context.screen.bar(head.count(), "export");
    let mut out = BufWriter::new(out);
    if format == Format::Ndjson {
        writeln!(out, "{first}")?;
    }
    let origin = head.checkpoint.lines().next().unwrap_or_default().to_owned();
    let expected = head.count();
    let signer = head.signer.parse().map_err(|error| wrong(BundleError::Key(error)))?;
    let mut range = Range::begin(head, &[TrustedKey::Verifier(signer)], None).map_err(wrong)?;
    let mut count = 0u64;
    while let Some(event) = lines.next().await {
        let event = event?;
        take_exported_line(&mut range, event.as_bytes()).map_err(wrong)?;
        match format {
            Format::Ndjson => writeln!(out, "{event}")?,
            Format::Ocsf => writeln!(out, "{}", in_ocsf(&origin, &event)?)?,
        }
        count += 1;
        bar.set_position(count);
    }
    out.flush()?;
    bar.finish_and_clear();
    if count != expected {
        return Err(incomplete());
    }
    range.end().map(drop).map_err(wrong)
}

/// Failure for an export whose proofs or signatures are invalid.
fn wrong(error: BundleError) -> Failure {
    let message = sanitize(&format!("the export is invalid: {error}"));
    if error.is_useless() { Failure::Usage(message) } else { Failure::Outcome(message) }
}

fn in_ocsf(origin: &str, line: &str) -> Result<String, Failure> {
    let event = serde_json::from_str::<EventRecord>(line);
    let object = event.and_then(|event| ocsf::to_ocsf(origin, &event));
    object
        .map(|object| object.to_string())
        .map_err(|error| Failure::Outcome(format!("cannot convert a line of the export: {error}")))
}

fn incomplete() -> Failure {
    Failure::Unreachable(
        "the export is incomplete: the connection to the server was lost; run the command again"
            .into(),
    )
}

/// Creates a file that only its owner can read, because exports and bundles contain payloads and
/// salts. Never overwrites a file.
pub(crate) fn created(path: &Path) -> Result<std::fs::File, Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| {
        let next = if error.kind() == ErrorKind::AlreadyExists {
            "\n  try: another name; existing files are not overwritten"
        } else {
            ""
        };
        Failure::Usage(format!("cannot create {}: {error}{next}", path.display()))
    })
}
