//! `stead-runner journal`: read it, verify it, hand it to somebody else.
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
    journal::{self, Examined, Fact, Heads, Journal},
    keys::Keys,
    show,
};

/// What is asked of the journal; without a verb it is shown.
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
    /// A table for people, or the lines as they are on disk for programs
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Only what concerns this job
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,
    /// Only the last so many lines
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show it: the same as without a verb
    Show(Show),
    /// See whether it is what was written, and name the first entry that is not
    #[command(after_help = "\
Examples:
  stead-runner journal verify
  stead-runner journal verify --head head.json              the vendor kept it: `stead runners journal-head`
  stead-runner journal verify --file j.ndjson --key 9f2c…   an exported one, on any machine")]
    Verify(Verify),
    /// Write all of it below a head that is signed now, so that whoever knows the runner's public key can verify it
    #[command(after_help = "\
Example:
  stead-runner journal export --out journal.ndjson
It prints the public key. Who gets the file should have the key from somewhere else, too: the vendor's log names it
(`stead runners show`).")]
    Export {
        /// A file that is not there yet
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Verify {
    /// An exported journal, instead of this runner's own
    #[arg(long, value_name = "FILE", requires = "key")]
    file: Option<PathBuf>,
    /// The runner's public key, 64 hexadecimal digits; may be repeated. Without it the keys that this runner has had
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    key: Vec<VerifyingKey>,
    /// A signed head that was kept elsewhere: nothing that it covers may be missing
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
}

pub(super) fn run(
    args: JournalArgs,
    open: impl FnOnce() -> anyhow::Result<Data>,
) -> anyhow::Result<ExitCode> {
    match args.verb {
        None => shown(&open()?, args.show),
        Some(Verb::Show(show)) => shown(&open()?, show),
        Some(Verb::Verify(Verify { file: Some(file), key, head })) => {
            verify_file(&file, &key, head.as_deref())
        }
        Some(Verb::Verify(Verify { file: None, key, head })) => {
            verify_own(&open()?, key, head.as_deref())
        }
        Some(Verb::Export { out }) => export(&open()?, &out),
    }
}

fn shown(data: &Data, show: Show) -> anyhow::Result<ExitCode> {
    show::journal(data, show.output, show.job, show.last)
}

fn verify_file(
    path: &Path,
    keys: &[VerifyingKey],
    other: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let file = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let exported = journal::verify(&file, keys)?;
    if let Some(path) = other {
        exported.examined.holds(&read_head(path, keys)?)?;
    }
    said(&format!("runner {}", exported.head.runner), &exported.examined, Some(&exported.head))
}

fn verify_own(
    data: &Data,
    given: Vec<VerifyingKey>,
    other: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let (examined, head) = examined(data, given, other)?;
    said("this runner's journal", &examined, head.as_ref())
}

/// The journal here, which holds everything that was signed of it, and the last of that.
fn examined(
    data: &Data,
    given: Vec<VerifyingKey>,
    other: Option<&Path>,
) -> anyhow::Result<(Examined, Option<JournalHead>)> {
    // The heads first: the agent may write and sign more while this reads.
    let (denied, last) = (Heads::of(data).denied()?, Heads::of(data).last()?);
    let keys = if given.is_empty() { own_keys(data)? } else { given };
    let replaced = "journal.head is not signed by a key that this runner has had: it was replaced";
    let head = last.map(|envelope| journal::open_head(&envelope, &keys).context(replaced));
    let head = head.transpose()?;
    // Once more if it is wrong: a long journal may have been put aside between two of its files.
    let look = || anyhow::Ok(journal::examine_all(data)??);
    let examined = look().or_else(|_| look())?;
    for head in denied.iter().chain(&head) {
        examined.holds(head)?;
    }
    if let Some(path) = other {
        examined.holds(&read_head(path, &keys)?)?;
    }
    Ok((examined, head))
}

/// The key of now, and those that the journal says were replaced.
fn own_keys(data: &Data) -> anyhow::Result<Vec<VerifyingKey>> {
    let mut keys = vec![Keys::open(data)?.identity.now().key.verifying_key()];
    for line in journal::read_all(data)? {
        if let Fact::Rekeyed { identity_key, former_key } = line.entry.fact {
            let all = [Some(identity_key), former_key].into_iter().flatten();
            keys.extend(all.filter_map(|key| public_key(&key).ok()));
        }
    }
    Ok(keys)
}

fn read_head(path: &Path, keys: &[VerifyingKey]) -> anyhow::Result<JournalHead> {
    let context = || format!("reading the head in {}", path.display());
    let envelope: Option<Envelope> = data::read_json(path).with_context(context)?;
    let envelope = envelope.with_context(|| format!("there is no {}", path.display()))?;
    journal::open_head(&envelope, keys).with_context(context)
}

fn said(whose: &str, examined: &Examined, head: Option<&JournalHead>) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let entries: u64 = examined.chains.iter().map(journal::Chain::entries).sum();
    writeln!(out, "good: {whose} has {entries} entries, each chained to the one before")?;
    match head {
        Some(head) => {
            let (signed, at) = (head.entries, moment::text(&head.at));
            let since = examined.holds(head)?;
            writeln!(out, "      signed on {at} up to entry {signed}; {since} came since")?;
        }
        None => {
            writeln!(out, "      nothing of it was signed yet: a session or a job's end does that")?
        }
    }
    if examined.unlinked > 0 {
        let lines = examined.unlinked;
        writeln!(
            out,
            "      {lines} lines are older than the chain, which begins with their digest"
        )?;
    }
    if examined.cut_short > 0 {
        let lines = examined.cut_short;
        writeln!(
            out,
            "      {lines} lines were cut short by a crash or a full disk, and say nothing"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn export(data: &Data, out: &Path) -> anyhow::Result<ExitCode> {
    let identity = enrol::known(data)?.context("this runner has not enrolled yet")?;
    // Signed once more, a journal that was cut would be good for whoever has no older head of it.
    examined(data, vec![], None).context(
        "nothing is exported: this journal is not the one that was signed before; keep its files as they are",
    )?;
    let (journal, key) = (Journal::open(data)?, Keys::open(data)?.identity.now());
    let head = journal::sign_head(&journal, identity.runner, &key.key, host::now())?;
    let Some(head) = head else {
        bail!("the last line is in no chain: let the agent open a session, then export again")
    };
    let public = key.public_hex();
    let lines = journal::texts(data)?;
    let file = journal::export(identity.runner, public.clone(), head, &lines)?;
    let written =
        data::fresh(out).and_then(|mut new| new.write_all(&file).and_then(|()| new.sync_all()));
    written.with_context(|| {
        format!("writing {}, which must be in a directory and not be there yet", out.display())
    })?;
    // What was written is what another person will see.
    journal::verify(&file, &[key.key.verifying_key()])
        .context("the journal is written, and wrong")?;
    show::said(&format!(
        "{} is written; its runner is {}, whose public key is\n{public}\n",
        out.display(),
        identity.runner
    ))
}

fn public_key(text: &str) -> Result<VerifyingKey, String> {
    let bytes = hex::decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| "a key has 64 hexadecimal digits".to_owned())?;
    VerifyingKey::from_bytes(&bytes).map_err(|error| format!("this is no public key: {error}"))
}
