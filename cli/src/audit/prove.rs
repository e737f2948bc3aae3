//! `stead audit prove`: verifies a bundle, and writes it to a file or to standard output.
use std::{fs, io::Write, path::PathBuf};

use crate::client::sanitize;
use clap::{Args, ValueEnum};
use futures::StreamExt;
use proof::{
    bundle::{Bundle, BundleError, MAX_BYTES},
    key::TrustedKey,
};
use schemas::control::bundles::{BundleQuery, OtherEntries};

use super::{check, export::created};
use crate::{failure::Failure, render::write, settings::CommandContext};

#[derive(Debug, Args)]
pub(crate) struct Prove {
    /// Object to prove: a position, an event id, the name of an install, an id, or a stream
    /// (`<aggregate type>/<id>`). Ids: install, run, job, build, component, app, runner,
    /// principal, enrolment
    #[arg(value_name = "EVENT|INSTALL|ID|STREAM")]
    what: String,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Earlier signed checkpoint; the bundle also proves that the log continues it
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Entries of other streams to add [default: after]
    #[arg(long, value_enum, value_name = "WHICH")]
    other_entries: Option<OtherEntriesArg>,
    /// Replace payloads and metadata with their hashes, and omit the salts
    #[arg(long)]
    hashes_only: bool,
    /// Add the display names of principals [default: ids only]
    #[arg(long, conflicts_with = "hashes_only")]
    with_names: bool,
    /// Add the decrypted reasons of requests, approvals and other interventions
    #[arg(long, conflicts_with = "hashes_only")]
    with_reasons: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OtherEntriesArg {
    /// Every position after the stream's last event: proves that the stream did not continue
    After,
    /// Every position of the log: completeness then depends on the signed root only
    All,
    /// No entries: the bundle does not prove that the stream did not continue
    None,
}

impl From<OtherEntriesArg> for OtherEntries {
    fn from(arg: OtherEntriesArg) -> Self {
        match arg {
            OtherEntriesArg::After => OtherEntries::After,
            OtherEntriesArg::All => OtherEntries::All,
            OtherEntriesArg::None => OtherEntries::None,
        }
    }
}

impl Prove {
    fn query(&self) -> Result<BundleQuery, Failure> {
        let prior_checkpoint = match &self.since {
            Some(path) => Some(fs::read_to_string(path).map_err(|error| {
                Failure::Usage(format!("cannot read the checkpoint {}: {error}", path.display()))
            })?),
            None => None,
        };
        Ok(BundleQuery {
            prior_checkpoint,
            other_entries: self.other_entries.map(Into::into),
            hashes_only: self.hashes_only.then_some(true),
            names: self.with_names.then_some(true),
            reasons: self.with_reasons.then_some(true),
            ..BundleQuery::of(&self.what)
        })
    }
}

pub(crate) async fn run(context: &CommandContext, args: Prove) -> Result<(), Failure> {
    let response = context.client.bundle(&args.query()?).await?;
    let mut parts = response.bytes_stream();
    let mut bytes = Vec::new();
    let spinner = context.screen.spinner("proving");
    while let Some(part) = parts.next().await {
        let cut = |error| {
            Failure::Unreachable(format!("the proof is incomplete: {error}; run the command again"))
        };
        bytes.extend_from_slice(&part.map_err(cut)?);
        if bytes.len() > MAX_BYTES {
            let message = format!(
                "cannot write the proof: it is longer than {MAX_BYTES} bytes\n  try: --hashes-only, or --other-entries none"
            );
            return Err(Failure::Usage(message));
        }
    }
    spinner.finish_and_clear();
    // Write only a valid proof. The recipient decides whether to trust the signing key.
    let wrong =
        |error: BundleError| Failure::Outcome(sanitize(&format!("the proof is invalid: {error}")));
    let bundle = Bundle::read(&bytes).map_err(wrong)?;
    let signers = [Some(&bundle.signer), bundle.since.as_ref().map(|since| &since.signer)];
    let signers = signers.into_iter().flatten().map(|key| key.parse().map(TrustedKey::Verifier));
    let signers: Vec<_> =
        signers.collect::<Result<_, _>>().map_err(|error| wrong(BundleError::Key(error)))?;
    let proven = bundle.check(&signers, None).map_err(wrong)?;
    let history = check::history(&bundle)?;
    let Some(path) = args.out else {
        return write(&String::from_utf8_lossy(&bytes));
    };
    if let Err(error) = created(&path)?.write_all(&bytes) {
        // An incomplete file would block the next attempt.
        let _ = fs::remove_file(&path);
        return Err(error.into());
    }
    let (path, signer) = (path.display(), &bundle.signer);
    let proofs = check::bundle_report(&bundle, &proven, history).proofs();
    context.screen.remark(&format!(
        "{proofs}Verify the file offline: stead audit check {path} --key {signer}"
    ));
    Ok(())
}
