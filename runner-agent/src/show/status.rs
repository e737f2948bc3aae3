//! Lines of `status` about the policy, the journal, the vendor's log and the disk.
use std::io;

use proof::checkpoint::Checkpoint;
use schemas::{moment, sanitize::sanitize};

use crate::{
    budgets::{Budgets, Usage},
    data::Data,
    enrol::Identity,
    host,
    journal::{self, JournalEvent},
    policy::Choice,
    recovery, seed,
    witness::Witness,
};

/// Returns the number of entries in the journal, or the first error of its chain or of its signed
/// heads. Only `journal verify` checks the signatures.
pub fn journal(data: &Data) -> String {
    // Read the heads first: the agent may write and sign more entries meanwhile.
    let signed = journal::Heads::of(data).signed();
    let examined = match journal::examine_all(data) {
        Ok(examined) => examined,
        Err(error) => return format!("cannot be read: {error}"),
    };
    match examined {
        Ok(examined) => {
            let entries: u64 = examined.chains.iter().map(journal::Chain::entries).sum();
            match signed.map(|signed| signed.iter().find_map(|head| examined.holds(head).err())) {
                Ok(None) => format!("{entries} entries, the chain is valid"),
                Ok(Some(wrong)) => format!("WRONG: {wrong}; see `stead-runner journal verify`"),
                Err(error) => format!(
                    "{entries} entries; cannot read the signed heads of the journal: {error}"
                ),
            }
        }
        Err(wrong) => format!("WRONG at entry {}: {wrong}", wrong.entry()),
    }
}

/// Returns the current policy, or the error that makes it unusable.
pub fn policy(data: &Data) -> String {
    let choice = match Choice::recorded(data) {
        Ok(Some(choice)) => choice,
        Ok(None) => return "not recorded: every job is refused; run `stead-runner policy set FILE` or `stead-runner policy none`".into(),
        Err(error) => return format!("cannot read the recorded policy: {error}; the runner refuses every job"),
    };
    match (choice.policy(), &choice) {
        (Err(error), _) => format!("every job is refused: {error}"),
        (Ok(_), Choice::File(path)) => path.display().to_string(),
        (Ok(_), Choice::None) => {
            "none: allows everything that the vendor's server signs, within the fixed limits of the runner".into()
        }
    }
}

/// Returns whether the keys of the install can be recovered. `None` for a build runner.
pub fn recovery(data: &Data, identity: &Identity) -> Option<String> {
    identity.install?;
    Some(match seed::open(data) {
        Ok(Some(keys)) => match recovery::warning(data, &keys, identity) {
            Some(warning) => format!("WARNING: {warning}"),
            None => "the keys of the install have a recovery recipient".into(),
        },
        Ok(None) => "this directory has no keys of the install".into(),
        Err(error) => format!("cannot read the keys of the install: {error}"),
    })
}

/// Returns the disk use with its budgets.
pub fn disk(data: &Data) -> anyhow::Result<[String; 3]> {
    let (usage, budgets) = (Usage::of(data)?, Budgets::recorded(data)?);
    let of =
        |budget: Option<u64>| budget.map_or(String::new(), |bytes| format!(" of {}", size(bytes)));
    let journal = size(usage.journal);
    let files = if usage.journal_files == 1 { "file" } else { "files" };
    Ok([
        format!(
            "artifacts {}{}",
            size(usage.artifacts),
            of(budgets.map(|budgets| budgets.artifacts))
        ),
        format!("job files {}{}", size(usage.jobs), of(budgets.map(|budgets| budgets.jobs))),
        format!(
            "disk      {journal} of journal in {} {files}, {} free",
            usage.journal_files,
            size(host::disk_free(data.root()))
        ),
    ])
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (bytes as f64 / 1024.0, UNITS[0]);
    for larger in &UNITS[1..] {
        if size >= 1024.0 {
            (size, unit) = (size / 1024.0, larger);
        }
    }
    format!("{size:.1} {unit}")
}

/// Returns the last verified head of the vendor's log, or the last rejection of the log.
pub fn witness(data: &Data) -> io::Result<String> {
    if let Some(rejection) = rejection(data)? {
        return Ok(rejection);
    }
    Ok(match seen(data)? {
        Some(seen) => {
            format!("verified the vendor's log up to event {}, epoch {}", seen.size, seen.epoch)
        }
        None => "no head of the vendor's log was verified yet".into(),
    })
}

/// Returns the last verified head.
pub fn seen(data: &Data) -> io::Result<Option<Checkpoint>> {
    let note = Witness::of(data).last()?;
    Ok(note.and_then(|note| Checkpoint::read_unverified(&note).ok()))
}

/// Returns the reason for the last rejection of the server's event log. `None` if the runner has
/// since verified the log, or the customer has accepted a new epoch.
pub fn rejection(data: &Data) -> io::Result<Option<String>> {
    let mut last = None;
    for line in journal::read_all(data)? {
        let is_resolved = matches!(
            line.entry.event,
            JournalEvent::Checkpoint { .. } | JournalEvent::EpochAccepted { .. }
        );
        if let JournalEvent::LogRejected { rule, evidence, .. } = line.entry.event {
            last = Some((line.entry.at, rule, evidence));
        } else if is_resolved {
            last = None;
        }
    }
    let Some((at, rule, evidence)) = last else { return Ok(None) };
    let stored = Witness::of(data).evidence()?;
    let stored = stored.into_iter().find(|stored| stored.path.ends_with(&evidence));
    let why = stored.map_or_else(|| format!("rule {rule}"), |stored| stored.evidence.explanation);
    let why = sanitize(&why);
    let at = moment::text(&at);
    Ok(Some(format!(
        "the vendor's log has been REJECTED since {at}: {why}. The runner refuses all jobs until you resolve the rejection; see \
         `stead-runner witness evidence`"
    )))
}
