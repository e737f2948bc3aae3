//! Whether a stream has more events than are shown.
//!
//! A tree's root says nothing about streams. But an entry says of which stream it is, and the signed size says how
//! many entries there are. So every position from one on is shown, as an event or as an entry of another stream, and
//! all of them together have to make the signed root: then none is missing in that range. Before it there are the
//! sequences: the log gives each of a stream's numbers once.
use super::{Bundle, BundleError, Subject, Wrong, streams::Streams};
use crate::{
    Hash,
    checkpoint::Checkpoint,
    leaf::Leaf,
    tree::{Edge, TreeError, leaf_hash},
};

/// What is known about events of the stream that are not in the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complete {
    /// It is about one event.
    NotAsked,
    /// No sequence is missing up to the last event; whether there are later ones is not shown.
    Unknown {
        /// Where the last event is.
        last: u64,
    },
    /// No sequence is missing up to `from`, and from there on every position was seen. Before `from` it rests on the
    /// log's rule that a stream has each sequence once.
    FromSequences {
        /// The first position that was seen.
        from: u64,
    },
    /// Every position of the log was seen: it rests on nothing but the root.
    Whole,
}

/// An event that is in the log.
pub(super) struct Shown {
    pub position: u64,
    pub recorded_at_us: i64,
    pub hash: Hash,
}

/// What the rest of the log showed.
pub(super) struct Seen {
    pub complete: Complete,
    /// The log as it is here goes through the kept checkpoint.
    pub kept: bool,
}

/// Whether there are further events of the stream.
pub(super) fn check(
    bundle: &Bundle,
    (shown, streams): (&[Shown], &Streams<'_>),
    checkpoint: &Checkpoint,
    kept: Option<&Checkpoint>,
) -> Result<Seen, BundleError> {
    let last = shown.last().map_or(0, |event| event.position);
    let others = match (&bundle.subject, &bundle.others) {
        (Subject::Position(_), None) => {
            return Ok(Seen { complete: Complete::NotAsked, kept: false });
        }
        (Subject::Position(_), Some(_)) => {
            let why = "a bundle about one event has nothing to show of others";
            return Err(BundleError::Unreadable(why.into()));
        }
        (Subject::Stream(_) | Subject::Streams(_), None) => {
            return Ok(Seen { complete: Complete::Unknown { last }, kept: false });
        }
        (Subject::Stream(_) | Subject::Streams(_), Some(others)) => others,
    };
    let (from, size) = (others.from, checkpoint.size);
    if from > last.saturating_add(1) {
        return Err(BundleError::at(from, Wrong::Gap(last)));
    }
    let mut events = shown.iter().skip_while(|event| event.position < from).peekable();
    let within = shown.iter().filter(|event| event.position >= from).count() as u64;
    // Nothing before the beginning, and no more than there are: a size is only a number.
    let before = from.checked_sub(1).filter(|before| *before <= size);
    let all = before.map(|before| size - before).ok_or(root(from, size))?;
    let found = others.entries.len() as u64;
    if all != within + found {
        let expected = all.saturating_sub(within);
        return Err(BundleError::Count { from, size, expected, found });
    }
    let edge = others.edge.iter().map(|hash| hash.0).collect();
    let mut edge = Edge::of(size - all, edge).ok_or(root(from, size))?;
    let mut entries = others.entries.iter();
    let (mut time, mut met) = (i64::MIN, meets(&edge, kept));
    for position in from..=size {
        let wrong = |wrong| BundleError::at(position, wrong);
        let (hash, recorded_at_us) = match events.next_if(|event| event.position == position) {
            Some(event) => (event.hash, event.recorded_at_us),
            None => {
                let entry = &entries.next().ok_or(root(from, size))?.0;
                let leaf = Leaf::read(entry).filter(|leaf| leaf.position == position);
                let leaf = leaf.ok_or(wrong(Wrong::Entry))?;
                if let Some(stream) = streams.name_of(&leaf) {
                    return Err(wrong(Wrong::LeftOut(stream.to_owned())));
                }
                (leaf_hash(entry), leaf.recorded_at_us)
            }
        };
        if recorded_at_us < time {
            return Err(wrong(Wrong::Time));
        }
        time = recorded_at_us;
        edge.push(hash, |_, _| {});
        met = met.or(meets(&edge, kept));
    }
    if edge.root() != checkpoint.root {
        return Err(root(from, size));
    }
    // Only now it is the log's own history that differs, and not what is said of it here.
    if let (Some(false), Some(kept)) = (met, kept) {
        return Err(BundleError::Rewritten { size: kept.size, why: TreeError::Root });
    }
    let complete = if from == 1 { Complete::Whole } else { Complete::FromSequences { from } };
    Ok(Seen { complete, kept: met.is_some() })
}

fn root(from: u64, to: u64) -> BundleError {
    BundleError::Root { from, to }
}

/// At the kept checkpoint's moment: whether it is of this log.
pub(crate) fn meets(edge: &Edge, kept: Option<&Checkpoint>) -> Option<bool> {
    kept.filter(|kept| kept.size == edge.size()).map(|kept| kept.root == edge.root())
}
