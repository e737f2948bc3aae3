//! Whether a journal is what was written: the first entry that is wrong, and what that means.
use std::collections::BTreeSet;

use domain::digest::Digest;
use proof::Hash;
use schemas::runner::JournalHead;

use super::{Entry, Fact, Link, frame};

/// The entries of one journal, each with everything before it in one hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Whose.
    pub journal_id: String,
    links: Vec<Hash>,
}

impl Chain {
    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        self.links.len() as u64
    }

    /// The link after so many.
    pub fn after(&self, entries: u64) -> Option<Link> {
        let at = usize::try_from(entries.checked_sub(1)?).ok()?;
        self.links.get(at).map(|chain| Link { number: entries, chain: *chain })
    }
}

/// A journal that is what was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Examined {
    /// One for each journal that was begun in the directory; mostly one.
    pub chains: Vec<Chain>,
    /// Lines that an older program wrote; the entry that began the chain has their digest.
    pub unlinked: u64,
    /// Lines that a crash or a full disk cut short. They were never part of the journal.
    pub cut_short: u64,
}

/// What is wrong with a journal, where it is wrong first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error(
        "entry {number} was changed: its bytes are not the ones that were hashed when it was written"
    )]
    Changed { number: u64 },
    #[error(
        "entry {number} is missing, up to entry {last}: deleted, or cut so that it cannot be read"
    )]
    Missing { number: u64, last: u64 },
    #[error(
        "entry {number} is not in its place: entry {found} stands before it; they were swapped"
    )]
    Moved { number: u64, found: u64 },
    #[error("entry {number} is there twice: a line was inserted or copied")]
    Twice { number: u64 },
    #[error(
        "entry {number} should follow, and a line stands there that is in no chain: it was inserted, or an older \
         program wrote it while this one did"
    )]
    Inserted { number: u64 },
    #[error(
        "entry 1 is missing: the journal begins with entry {found}; look for journal.<time>.ndjson"
    )]
    Beginning { found: u64 },
    #[error(
        "entry {number} says what stood in the journal before there was a chain, and that was changed"
    )]
    BeforeChanged { number: u64 },
    #[error(
        "entry {number} is missing, up to entry {signed}, which was signed on {at}: the end of the journal was cut off, \
         or an old copy put in its place"
    )]
    CutOff { number: u64, signed: u64, at: String },
    #[error(
        "entry {number} or one before it is not what was signed on {at}: the journal was written anew with a chain of \
         its own"
    )]
    Rewritten { number: u64, at: String },
    #[error("journal {journal_id} is missing: {signed} of its entries were signed on {at}")]
    Lost { journal_id: String, signed: u64, at: String },
}

impl Wrong {
    /// The number of the first entry that is wrong.
    pub fn entry(&self) -> u64 {
        match self {
            Wrong::Changed { number }
            | Wrong::Missing { number, .. }
            | Wrong::Moved { number, .. }
            | Wrong::Twice { number }
            | Wrong::Inserted { number }
            | Wrong::BeforeChanged { number }
            | Wrong::CutOff { number, .. }
            | Wrong::Rewritten { number, .. } => *number,
            Wrong::Beginning { .. } | Wrong::Lost { .. } => 1,
        }
    }
}

/// The last link of all these lines, and the lines after it that an older program wrote.
pub(super) fn unlinked(texts: &[Vec<u8>]) -> (Option<Link>, Vec<&[u8]>) {
    let (mut last, mut lines) = (None, Vec::new());
    for line in texts {
        if let Some((_, link)) = frame::open(line) {
            last = Some(link);
            lines.clear();
        } else if says_something(line) {
            lines.push(line.as_slice());
        }
    }
    (last, lines)
}

/// The fact that begins a chain after such lines, or goes on with it.
pub(super) fn begun(journal_id: String, lines: &[&[u8]]) -> Fact {
    Fact::ChainBegun { journal_id, lines: lines.len() as u64, sha256: digest(lines) }
}

fn digest(lines: &[&[u8]]) -> Digest {
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    proof::sha256(&bytes).into()
}

fn says_something(line: &[u8]) -> bool {
    serde_json::from_slice::<Entry>(line).is_ok()
}

/// Look at every line, oldest first.
///
/// # Errors
/// The first that is [`Wrong`].
pub fn examine<L: AsRef<[u8]>>(lines: &[L]) -> Result<Examined, Wrong> {
    let opened: Vec<_> = lines.iter().map(|line| frame::open(line.as_ref())).collect();
    let later = |from: usize| -> BTreeSet<u64> {
        opened[from..].iter().flatten().map(|(_, link)| link.number).collect()
    };
    let mut examined = Examined::default();
    let mut before: Vec<&[u8]> = Vec::new();
    for (at, line) in lines.iter().map(AsRef::as_ref).enumerate() {
        let Some((bytes, link)) = &opened[at] else {
            match says_something(line) {
                true => before.push(line),
                false => examined.cut_short += u64::from(!line.is_empty()),
            }
            continue;
        };
        let fact = serde_json::from_slice::<Entry>(line).ok().map(|entry| entry.fact);
        let begins = begins(fact.as_ref()).filter(|id| {
            link.number == 1 && examined.chains.iter().all(|chain| chain.journal_id != **id)
        });
        if let Some(journal_id) = begins {
            examined.chains.push(Chain { journal_id: journal_id.into(), links: Vec::new() });
        }
        let Some(chain) = examined.chains.last_mut() else {
            return Err(match link.number {
                1 => Wrong::Changed { number: 1 },
                found => Wrong::Beginning { found },
            });
        };
        let entries = chain.entries();
        let last = chain.after(entries).unwrap_or_else(|| Link::genesis(&chain.journal_id));
        let number = entries + 1;
        if link.number < number {
            let before = link.number.saturating_sub(1);
            let before = chain.after(before).unwrap_or_else(|| Link::genesis(&chain.journal_id));
            // A copy, or one of two that both go on from the same entry: nobody can say from here which was written.
            if before.then(bytes) == *link {
                return Err(Wrong::Twice { number: link.number });
            }
            let again = later(at + 1).contains(&number);
            return Err(if again { Wrong::Inserted { number } } else { Wrong::Changed { number } });
        }
        if link.number > number {
            return Err(match later(at + 1).contains(&number) {
                true => Wrong::Moved { number, found: link.number },
                false => Wrong::Missing { number, last: link.number - 1 },
            });
        }
        if last.then(bytes) != *link || fact.is_none() {
            // A line that was put between two others and numbered like the one that follows it.
            let again = later(at + 1).contains(&number);
            return Err(if again { Wrong::Twice { number } } else { Wrong::Changed { number } });
        }
        match &fact {
            Some(Fact::ChainBegun { lines, sha256, .. }) => {
                if *lines != before.len() as u64 || *sha256 != digest(&before) {
                    return Err(Wrong::BeforeChanged { number });
                }
                examined.unlinked += before.len() as u64;
                before.clear();
            }
            Some(_) | None if !before.is_empty() => return Err(Wrong::Inserted { number }),
            Some(_) | None => {}
        }
        chain.links.push(link.chain);
    }
    match examined.chains.last() {
        Some(chain) if !before.is_empty() => Err(Wrong::Inserted { number: chain.entries() + 1 }),
        Some(_) => Ok(examined),
        // No program that knows of a chain has written yet.
        None => Ok(Examined { unlinked: before.len() as u64, ..examined }),
    }
}

/// The journal that this fact can be the first entry of.
fn begins(fact: Option<&Fact>) -> Option<&String> {
    match fact {
        Some(Fact::Opened { journal_id } | Fact::ChainBegun { journal_id, .. }) => Some(journal_id),
        Some(_) | None => None,
    }
}

impl Examined {
    /// Whether this is the journal that was signed, or more of it. Gives how many of its entries came since.
    ///
    /// # Errors
    /// How it is [`Wrong`].
    pub fn holds(&self, head: &JournalHead) -> Result<u64, Wrong> {
        let JournalHead { journal_id, entries: signed, .. } = head;
        let (signed, at) = (*signed, schemas::moment::text(&head.at));
        let Some(chain) = self.chains.iter().find(|chain| chain.journal_id == *journal_id) else {
            return Err(Wrong::Lost { journal_id: journal_id.clone(), signed, at });
        };
        let entries = chain.entries();
        if entries < signed {
            return Err(Wrong::CutOff { number: entries + 1, signed, at });
        }
        match chain.after(signed) {
            Some(link) if link.chain == head.chain.bytes() => Ok(entries - signed),
            Some(_) | None => Err(Wrong::Rewritten { number: signed, at }),
        }
    }
}
