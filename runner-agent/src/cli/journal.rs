//! `stead-runner journal`: shows, verifies and exports the journal.
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use domain::ids::JobId;
use ed25519_dalek::VerifyingKey;
use proof::dsse::Envelope;
use schemas::{moment, runner::JournalHead};

use super::Output;
use crate::{
    data::{self, Data},
    enrol, host,
    journal::{self, Heads, Journal, JournalEvent, VerifiedJournal},
    keys::Keys,
    show,
};

/// Arguments of `journal`. Without a subcommand, the command shows the journal.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct JournalArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Args)]
struct Show {
    /// Human-readable table, or the journal lines as they are on disk
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Show only entries of this job
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,
    /// Show only the last N entries
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the journal; the default without a subcommand
    Show(Show),
    /// Verify the journal; an error names the first invalid entry
    #[command(after_help = "\
Examples:
  stead-runner journal verify
  stead-runner journal verify --head head.json              a journal head from the vendor
  stead-runner journal verify --file j.ndjson --key 9f2c…   an exported journal, on any machine
The vendor gets the head with `stead runners journal-head`.")]
    Verify(Verify),
    /// Export the journal with a newly signed head; the runner's public key verifies the file
    #[command(after_help = "\
Example:
  stead-runner journal export --out journal.ndjson
The command prints the public key. The reader should also get the key from another source: the vendor's log has it
(`stead runners show`).")]
    Export {
        /// Output file; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Verify {
    /// Exported journal to verify instead of this runner's own
    #[arg(long, value_name = "FILE", requires = "key")]
    file: Option<PathBuf>,
    /// Public key of the runner, 64 hexadecimal digits; may be repeated. Default: all keys that
    /// this runner has had
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    key: Vec<VerifyingKey>,
    /// File with a signed head from another source; the journal must contain every entry that the
    /// head covers
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
}

pub(super) fn run(
    args: JournalArgs,
    open: impl FnOnce() -> anyhow::Result<Data>,
) -> anyhow::Result<ExitCode> {
    match args.verb {
        None => show_entries(&open()?, args.show),
        Some(Verb::Show(show)) => show_entries(&open()?, show),
        Some(Verb::Verify(Verify { file: Some(file), key, head })) => {
            verify_file(&file, &key, head.as_deref())
        }
        Some(Verb::Verify(Verify { file: None, key, head })) => {
            verify_own(&open()?, key, head.as_deref())
        }
        Some(Verb::Export { out }) => export(&open()?, &out),
    }
}

fn show_entries(data: &Data, show: Show) -> anyhow::Result<ExitCode> {
    show::journal(data, show.output, show.job, show.last)
}

fn verify_file(
    path: &Path,
    keys: &[VerifyingKey],
    other: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let exported = journal::verify(&file, keys)?;
    if let Some(path) = other {
        exported.examined.holds(&read_head(path, keys)?)?;
    }
    print_result(
        &format!("runner {}", exported.head.runner),
        &exported.examined,
        Some(&exported.head),
    )
}

fn verify_own(
    data: &Data,
    keys_from_args: Vec<VerifyingKey>,
    other: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let (examined, head) = examined(data, keys_from_args, other)?;
    print_result("this runner's journal", &examined, head.as_ref())
}

/// Verifies the journal of this runner against the signed heads in the data directory and in the
/// file `other`. Returns the result and the newest head of the data directory.
fn examined(
    data: &Data,
    keys_from_args: Vec<VerifyingKey>,
    other: Option<&Path>,
) -> anyhow::Result<(VerifiedJournal, Option<JournalHead>)> {
    // Read the heads first: the agent may write and sign more entries meanwhile.
    let (contradicted, last) = (Heads::of(data).contradicted()?, Heads::of(data).last()?);
    let keys = if keys_from_args.is_empty() { own_keys(data)? } else { keys_from_args };
    let replaced = "cannot verify journal.head: no key of this runner signed it, so another program replaced it; keep the file as evidence";
    let head = last.map(|envelope| journal::open_head(&envelope, &keys).context(replaced));
    let head = head.transpose()?;
    // Retry once: the agent may rotate a long journal between the reads of two files.
    let verify_files = || anyhow::Ok(journal::examine_all(data)??);
    let examined = verify_files().or_else(|_| verify_files())?;
    for head in contradicted.iter().chain(&head) {
        examined.holds(head)?;
    }
    if let Some(path) = other {
        examined.holds(&read_head(path, &keys)?)?;
    }
    Ok((examined, head))
}

/// Returns the runner's current public key, and all keys that the journal records.
fn own_keys(data: &Data) -> anyhow::Result<Vec<VerifyingKey>> {
    let mut keys = vec![Keys::open(data)?.identity.now().key.verifying_key()];
    for line in journal::read_all(data)? {
        if let JournalEvent::Rekeyed { identity_key, former_key } = line.entry.event {
            let all = [Some(identity_key), former_key].into_iter().flatten();
            keys.extend(all.filter_map(|key| public_key(&key).ok()));
        }
    }
    Ok(keys)
}

fn read_head(path: &Path, keys: &[VerifyingKey]) -> anyhow::Result<JournalHead> {
    let context = || format!("cannot read the head in {}", path.display());
    let envelope: Option<Envelope> = data::read_json(path).with_context(context)?;
    let envelope = envelope
        .with_context(|| format!("cannot read the head: {} does not exist", path.display()))?;
    journal::open_head(&envelope, keys).with_context(context)
}

fn print_result(
    subject: &str,
    examined: &VerifiedJournal,
    head: Option<&JournalHead>,
) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let entries: u64 = examined.chains.iter().map(journal::Chain::entries).sum();
    writeln!(out, "ok: {subject} has {entries} entries, each chained to the previous one")?;
    match head {
        Some(head) => {
            let (signed, at) = (head.entries, moment::text(&head.at));
            let since = examined.holds(head)?;
            writeln!(out, "      signed on {at} up to entry {signed}; {since} newer entries")?;
        }
        None => writeln!(
            out,
            "      not signed yet: the agent signs the journal when it opens a session or finishes a job"
        )?,
    }
    if examined.unlinked > 0 {
        let lines = examined.unlinked;
        writeln!(
            out,
            "      {lines} lines precede the chain; the first entry of the chain contains their digest"
        )?;
    }
    if examined.cut_short > 0 {
        let lines = examined.cut_short;
        writeln!(out, "      ignored {lines} lines that a crash or a full disk left incomplete")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn export(data: &Data, out: &Path) -> anyhow::Result<ExitCode> {
    let identity = enrol::stored_identity(data)?
        .context("cannot export the journal: this runner is not enrolled; enrol it first")?;
    // A new signature would make a truncated journal valid for every reader without an older head.
    examined(data, vec![], None).context("cannot export the journal (keep its files unchanged)")?;
    let (journal, key) = (Journal::open(data)?, Keys::open(data)?.identity.now());
    let head = journal::sign_head(&journal, identity.runner, &key.key, host::now())?;
    let Some(head) = head else {
        bail!(
            "cannot sign the journal: its last line is not in the chain; start the agent, and retry after it has opened a session"
        )
    };
    let public = key.public_hex();
    let lines = journal::texts(data)?;
    let file = journal::export(identity.runner, public.clone(), head, &lines)?;
    let written =
        data::fresh(out).and_then(|mut new| new.write_all(&file).and_then(|()| new.sync_all()));
    written.with_context(|| {
        format!(
            "cannot write {} (the directory must exist, and the file must not exist)",
            out.display()
        )
    })?;
    // Verify the file that the reader will get.
    journal::verify(&file, &[key.key.verifying_key()])
        .context("cannot verify the exported file")?;
    show::print(&format!(
        "Exported {}; runner {}, public key\n{public}\n",
        out.display(),
        identity.runner
    ))
}

fn public_key(text: &str) -> Result<VerifyingKey, String> {
    let bytes = hex::decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| "a key must have 64 hexadecimal digits".to_owned())?;
    VerifyingKey::from_bytes(&bytes).map_err(|error| format!("invalid public key: {error}"))
}
