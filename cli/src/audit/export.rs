//! `stead audit export`: writes a range of the log to a file.
use std::{
    fs::OpenOptions,
    io::{BufWriter, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use cli::client::{ClientError, lines, sanitize, take_exported_line};
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
    /// From this position or time (RFC 3339)
    #[arg(long, value_name = "TIME|POSITION")]
    from: Option<PointInTime>,
    /// Up to this position (inclusive) or time (exclusive)
    #[arg(long, value_name = "TIME|POSITION")]
    to: Option<PointInTime>,
    /// Format: `ndjson` can be checked, `ocsf` is for a SIEM and proves nothing
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Format of a line of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Events as they were written, after a first line with the proofs
    Ndjson,
    /// Events as Entity Management of OCSF 1.3.0
    Ocsf,
}

/// Writes the lines as they arrive, with a progress bar. Removes an incomplete or invalid file.
pub(crate) async fn run(desk: &CommandContext, ask: Export) -> Result<(), Failure> {
    let (from, since) = ask.from.map_or((None, None), PointInTime::parts);
    let (to, until) = ask.to.map_or((None, None), PointInTime::parts);
    let query = RangeQuery { from, to, since, until, min_position: None };
    let lines = lines(desk.client.range(&query).await?);
    pin_mut!(lines);
    let first = lines.next().await.ok_or_else(incomplete)??;
    let head = Head::read(first.as_bytes()).map_err(wrong)?;
    let out: Box<dyn Write> = match &ask.out {
        Some(path) => Box::new(created(path)?),
        None => Box::new(std::io::stdout()),
    };
    let written = written(desk, (&first, head.clone()), lines, (ask.format, out)).await;
    let Some(path) = ask.out else { return written };
    if let Err(failure) = written {
        if let Err(error) = std::fs::remove_file(&path) {
            desk.screen.remark(&format!(
                "cannot delete the incomplete export {}: {error}; delete it",
                path.display()
            ));
        }
        return Err(failure);
    }
    let (count, from, to, path) = (head.count(), head.from, head.to, path.display());
    let next = match ask.format {
        Format::Ndjson => {
            format!("To verify it anywhere: stead audit check {path} --key {}", head.signer)
        }
        Format::Ocsf => {
            "OCSF lines cannot be verified. Also store an export without --format.".into()
        }
    };
    desk.screen
        .remark(&format!("Exported {count} events, positions {from} to {to}, to {path}\n{next}"));
    Ok(())
}

/// Writes the lines and verifies them with the key that the export names. The recipient decides
/// whether to trust that key.
async fn written(
    desk: &CommandContext,
    (first, head): (&str, Head),
    mut lines: impl Stream<Item = Result<String, ClientError>> + Unpin,
    (format, out): (Format, Box<dyn Write>),
) -> Result<(), Failure> {
    let bar = desk.screen.bar(head.count(), "export");
    let mut out = BufWriter::new(out);
    if format == Format::Ndjson {
        writeln!(out, "{first}")?;
    }
    let origin = head.checkpoint.lines().next().unwrap_or_default().to_owned();
    let all = head.count();
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
    if count != all {
        return Err(incomplete());
    }
    range.end().map(drop).map_err(wrong)
}

/// Error for data that does not match the signature of the server.
fn wrong(error: BundleError) -> Failure {
    let said = sanitize(&format!("the export is invalid: {error}"));
    if error.is_useless() { Failure::Usage(said) } else { Failure::Outcome(said) }
}

fn in_ocsf(origin: &str, line: &str) -> Result<String, Failure> {
    let event = serde_json::from_str::<EventRecord>(line);
    let told = event.and_then(|event| ocsf::to_ocsf(origin, &event));
    told.map(|told| told.to_string())
        .map_err(|error| Failure::Outcome(format!("cannot convert a line of the export: {error}")))
}

fn incomplete() -> Failure {
    Failure::Unreachable("the export is incomplete: connection lost; run the command again".into())
}

/// Creates a file, and never overwrites one. It contains payloads and salts, so only its owner can
/// read it.
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
