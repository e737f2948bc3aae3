//! Integrity check of a journal: finds the first wrong entry and its cause.
use std::io;

use domain::digest::Digest;
use proof::Hash;
use schemas::runner::JournalHead;
use sha2::{Digest as _, Sha256};

use super::{Entry, JournalEvent, Link, frame, read};
use crate::data::Data;

/// Hash chain of one journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    pub journal_id: String,
    /// Link before the first of `links`: the start of the journal, or the first link of a file if
    /// older files are not read.
    base: Link,
    links: Vec<Hash>,
}

impl Chain {
    pub fn entries(&self) -> u64 {
        self.base.number + self.links.len() as u64
    }

    fn last(&self) -> Link {
        let number = self.entries();
        self.links.last().map_or(self.base, |chain| Link { number, chain: *chain })
    }

    /// Returns the link after this number of entries.
    pub fn after(&self, entries: u64) -> Option<Link> {
        let Some(at) = entries.checked_sub(self.base.number)?.checked_sub(1) else {
            return Some(self.base);
        };
        let chain = self.links.get(usize::try_from(at).ok()?)?;
        Some(Link { number: entries, chain: *chain })
    }
}

/// Result of a successful check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VerifiedJournal {
    /// Chains of the journals that were begun in the directory, usually only one.
    pub chains: Vec<Chain>,
    /// Number of lines that an older program wrote. [`JournalEvent::ChainStarted`] contains their
    /// digest.
    pub unlinked: u64,
    /// Number of lines that are incomplete after a crash or on a full disk. They are not part of
    /// the journal.
    pub cut_short: u64,
}

/// First error in a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("entry {number} was changed: its bytes do not match its hash")]
    Changed { number: u64 },
    #[error(
        "the entries from {number} to {last} are missing: they were deleted, or truncated so that they cannot be read"
    )]
    Missing { number: u64, last: u64 },
    #[error("entry {number} is out of order: entry {found} precedes it")]
    Moved { number: u64, found: u64 },
    #[error("entry {number} exists twice: a line was inserted or copied")]
    Twice { number: u64 },
    #[error(
        "a line before entry {number} is not in the chain: it was inserted, or an older program wrote it"
    )]
    Inserted { number: u64 },
    #[error(
        "entry 1 is missing: the journal begins with entry {found}; restore the older file journal.<time>.ndjson"
    )]
    Beginning { found: u64 },
    #[error(
        "the lines before entry {number} were changed: they do not match the digest in that entry"
    )]
    BeforeChanged { number: u64 },
    #[error(
        "entry {number} is missing: the head that was signed on {at} covers {signed} entries, so the end of the journal was \
         removed or an old copy replaced it"
    )]
    CutOff { number: u64, signed: u64, at: String },
    #[error(
        "entry {number} or an earlier one does not match the head that was signed on {at}: the journal was rewritten"
    )]
    Rewritten { number: u64, at: String },
    #[error("journal {journal_id} is missing: {signed} of its entries were signed on {at}")]
    Lost { journal_id: String, signed: u64, at: String },
}

impl ChainError {
    /// Returns the number of the first wrong entry.
    pub fn entry(&self) -> u64 {
        match self {
            ChainError::Changed { number }
            | ChainError::Missing { number, .. }
            | ChainError::Moved { number, .. }
            | ChainError::Twice { number }
            | ChainError::Inserted { number }
            | ChainError::BeforeChanged { number }
            | ChainError::CutOff { number, .. }
            | ChainError::Rewritten { number, .. } => *number,
            ChainError::Beginning { .. } | ChainError::Lost { .. } => 1,
        }
    }
}

/// Number and digest of lines that are not in the chain yet.
#[derive(Default)]
pub(super) struct Unlinked {
    lines: u64,
    hasher: Sha256,
}

impl Unlinked {
    fn add(&mut self, line: &[u8]) {
        if self.lines > 0 {
            self.hasher.update(b"\n");
        }
        self.hasher.update(line);
        self.lines += 1;
    }

    /// Returns the SHA-256 of the lines, each with its newline. Without lines, returns the SHA-256
    /// of a single newline.
    fn digest(&self) -> Digest {
        let bytes: [u8; 32] = self.hasher.clone().chain_update(b"\n").finalize().into();
        bytes.into()
    }
}

/// Returns the last link, and the number and digest of the lines after it that an older program
/// wrote.
pub(super) fn unlinked(
    texts: impl Iterator<Item = io::Result<Vec<u8>>>,
) -> io::Result<(Option<Link>, Unlinked)> {
    let (mut last, mut lines) = (None, Unlinked::default());
    for line in texts {
        let line = line?;
        if let Some((_, link)) = frame::decode(&line) {
            last = Some(link);
            lines = Unlinked::default();
        } else if is_entry(&line) {
            lines.add(&line);
        }
    }
    Ok((last, lines))
}

/// Returns the entry that begins or continues a chain after lines of an older program.
pub(super) fn chain_started(journal_id: String, unlinked: &Unlinked) -> JournalEvent {
    JournalEvent::ChainStarted { journal_id, lines: unlinked.lines, sha256: unlinked.digest() }
}

fn is_entry(line: &[u8]) -> bool {
    serde_json::from_slice::<Entry>(line).is_ok()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The first line begins the journal.
    Nothing,
    /// Older files that are not read: the check trusts the first link.
    Files,
}

/// Verifies every line, oldest first.
///
/// # Errors
/// [`ChainError`] with the first wrong entry.
pub fn examine<L: AsRef<[u8]>>(lines: &[L]) -> Result<VerifiedJournal, ChainError> {
    each(lines.iter(), Before::Nothing)
}

/// Verifies every line of this directory's journal, with one file in memory at a time.
pub fn examine_all(data: &Data) -> io::Result<Result<VerifiedJournal, ChainError>> {
    let mut unread = Ok(());
    let lines = read::each(data)?;
    let lines = lines.map_while(|line| line.map_err(|error| unread = Err(error)).ok());
    let examined = each(lines, Before::Nothing);
    unread.map(|()| examined)
}

/// Verifies the current file only. If older files exist, the check trusts the first link of the
/// current file.
pub fn examine_current(data: &Data) -> io::Result<Result<VerifiedJournal, ChainError>> {
    let files = read::files(data)?;
    let before = if files.len() > 1 { Before::Files } else { Before::Nothing };
    let lines = files.last().map(|file| read::lines(file)).transpose()?.unwrap_or_default();
    Ok(each(lines.iter(), before))
}

fn each<L: AsRef<[u8]>>(
    mut lines: impl Iterator<Item = L>,
    files: Before,
) -> Result<VerifiedJournal, ChainError> {
    let mut examined = VerifiedJournal::default();
    let mut before = Unlinked::default();
    while let Some(line) = lines.next() {
        let line = line.as_ref();
        let Some((bytes, link)) = frame::decode(line) else {
            match is_entry(line) {
                true => before.add(line),
                false => examined.cut_short += u64::from(!line.is_empty()),
            }
            continue;
        };
        let event = serde_json::from_slice::<Entry>(line).ok().map(|entry| entry.event);
        if examined.chains.is_empty() && files == Before::Files {
            examined.chains.push(trusted_chain(event.as_ref(), link, before.lines)?);
            before = Unlinked::default();
            continue;
        }
        let begins = begins(event.as_ref()).filter(|id| {
            link.number == 1 && examined.chains.iter().all(|chain| chain.journal_id != **id)
        });
        if let Some(journal_id) = begins {
            let (journal_id, base) = (journal_id.clone(), Link::genesis(journal_id));
            examined.chains.push(Chain { journal_id, base, links: Vec::new() });
        }
        let Some(chain) = examined.chains.last_mut() else {
            return Err(match link.number {
                1 => ChainError::Changed { number: 1 },
                found => ChainError::Beginning { found },
            });
        };
        let last = chain.last();
        let number = last.number + 1;
        // Returns whether the expected entry follows later. Consumes the remaining lines, so the
        // check must end afterwards.
        let mut follows_later = || {
            let mut links = lines.by_ref().filter_map(|line| Some(frame::decode(line.as_ref())?.1));
            links.any(|link| link.number == number)
        };
        if link.number < number {
            let before = chain.after(link.number.saturating_sub(1));
            // The line is a copy, or a second successor of the same entry. The journal does not
            // show which successor is genuine.
            if before.is_some_and(|before| before.then(&bytes) == link) {
                return Err(ChainError::Twice { number: link.number });
            }
            return Err(match follows_later() {
                true => ChainError::Inserted { number },
                false => ChainError::Changed { number },
            });
        }
        if link.number > number {
            return Err(match follows_later() {
                true => ChainError::Moved { number, found: link.number },
                false => ChainError::Missing { number, last: link.number - 1 },
            });
        }
        if last.then(&bytes) != link || event.is_none() {
            // If the expected entry follows later, a line with its number was inserted.
            return Err(if follows_later() {
                ChainError::Twice { number }
            } else {
                ChainError::Changed { number }
            });
        }
        match &event {
            Some(JournalEvent::ChainStarted { lines, sha256, .. }) => {
                if *lines != before.lines || *sha256 != before.digest() {
                    return Err(ChainError::BeforeChanged { number });
                }
                examined.unlinked += before.lines;
                before = Unlinked::default();
            }
            Some(_) | None if before.lines > 0 => return Err(ChainError::Inserted { number }),
            Some(_) | None => {}
        }
        chain.links.push(link.chain);
    }
    match examined.chains.last() {
        Some(chain) if before.lines > 0 => {
            Err(ChainError::Inserted { number: chain.entries() + 1 })
        }
        Some(_) => Ok(examined),
        // Only programs without the hash chain have written so far.
        None => Ok(VerifiedJournal { unlinked: before.lines, ..examined }),
    }
}

/// Returns a chain that begins after files that are not read. The hash of the first entry depends
/// on those files, and so can a digest of older lines. The check trusts both.
fn trusted_chain(
    event: Option<&JournalEvent>,
    link: Link,
    before: u64,
) -> Result<Chain, ChainError> {
    let number = link.number;
    match event {
        None => return Err(ChainError::Changed { number }),
        Some(JournalEvent::ChainStarted { .. }) => {}
        Some(_) if before > 0 => return Err(ChainError::Inserted { number }),
        Some(_) => {}
    }
    let journal_id = begins(event).cloned().unwrap_or_default();
    Ok(Chain { journal_id, base: link, links: Vec::new() })
}

/// Returns the journal id, if this entry can be the first one of a journal.
fn begins(event: Option<&JournalEvent>) -> Option<&String> {
    match event {
        Some(
            JournalEvent::Opened { journal_id } | JournalEvent::ChainStarted { journal_id, .. },
        ) => Some(journal_id),
        Some(_) | None => None,
    }
}

impl VerifiedJournal {
    /// Returns the number of entries after a signed head, if this journal has every entry that the
    /// head covers.
    ///
    /// # Errors
    /// [`ChainError`]: an entry that the head covers is missing or was changed.
    pub fn holds(&self, head: &JournalHead) -> Result<u64, ChainError> {
        let JournalHead { journal_id, entries: signed, .. } = head;
        let (signed, at) = (*signed, schemas::moment::text(&head.at));
        let Some(chain) = self.chains.iter().find(|chain| chain.journal_id == *journal_id) else {
            return Err(ChainError::Lost { journal_id: journal_id.clone(), signed, at });
        };
        let entries = chain.entries();
        if entries < signed {
            return Err(ChainError::CutOff { number: entries + 1, signed, at });
        }
        match chain.after(signed) {
            Some(link) if link.chain == head.chain.bytes() => Ok(entries - signed),
            Some(_) | None => Err(ChainError::Rewritten { number: signed, at }),
        }
    }
}
