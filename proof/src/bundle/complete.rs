//! Completeness of a stream in a bundle.
//!
//! A tree's root does not cover streams. But each entry names its stream, and the signed size gives
//! the number of entries. The bundle therefore contains every position from `from` on, as an event
//! or as an entry of another stream. All of them together must lead to the signed root, so none is
//! missing in that range.
//!
//! Before `from`, completeness rests on the sequence numbers: the log assigns each number of a
//! stream once.
use super::{Bundle, BundleError, PositionError, Subject, streams::Streams};
use crate::{
    Hash,
    checkpoint::Checkpoint,
    leaf::Leaf,
    tree::{Edge, TreeError, leaf_hash},
};

/// Extent to which a bundle proves that its streams have no other events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complete {
    /// Not applicable: the subject is one event.
    NotApplicable,
    /// No sequence is missing up to the last event. The bundle does not cover later events.
    Unknown {
        /// Position of the last event.
        last: u64,
    },
    /// No sequence is missing up to `from`, and every position from there on was checked. Before
    /// `from`, completeness rests on the log's rule that a stream has each sequence once.
    FromSequences {
        /// First checked position.
        from: u64,
    },
    /// Every position of the log was checked. Completeness rests on the root alone.
    Whole,
}

/// Event that is proven to be in the log.
pub(super) struct ProvenEvent {
    pub position: u64,
    pub recorded_at_us: i64,
    pub hash: Hash,
}

/// Result of the check of the other entries.
pub(super) struct CheckedEntries {
    pub complete: Complete,
    /// True if the check compared the roots at the size of the given checkpoint.
    pub compared: bool,
}

/// Checks the other entries and determines the completeness of the subject's streams.
pub(super) fn check(
    bundle: &Bundle,
    (proven, streams): (&[ProvenEvent], &Streams<'_>),
    checkpoint: &Checkpoint,
    stored: Option<&Checkpoint>,
) -> Result<CheckedEntries, BundleError> {
    let last = proven.last().map_or(0, |event| event.position);
    let others = match (&bundle.subject, &bundle.others) {
        (Subject::Position(_), None) => {
            return Ok(CheckedEntries { complete: Complete::NotApplicable, compared: false });
        }
        (Subject::Position(_), Some(_)) => {
            let why = "a bundle about one event must not have other entries";
            return Err(BundleError::Unreadable(why.into()));
        }
        (Subject::Stream(_) | Subject::Streams(_), None) => {
            return Ok(CheckedEntries { complete: Complete::Unknown { last }, compared: false });
        }
        (Subject::Stream(_) | Subject::Streams(_), Some(others)) => others,
    };
    let (from, size) = (others.from, checkpoint.size);
    if from > last.saturating_add(1) {
        return Err(BundleError::at(from, PositionError::Gap(last)));
    }
    let mut events = proven.iter().skip_while(|event| event.position < from).peekable();
    let within = proven.iter().filter(|event| event.position >= from).count() as u64;
    // `from` is not signed: it may be 0 or larger than the log.
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
    let (mut time, mut matched) = (i64::MIN, root_matches(&edge, stored));
    for position in from..=size {
        let wrong = |wrong| BundleError::at(position, wrong);
        let (hash, recorded_at_us) = match events.next_if(|event| event.position == position) {
            Some(event) => (event.hash, event.recorded_at_us),
            None => {
                let entry = &entries.next().ok_or(root(from, size))?.0;
                let leaf = Leaf::read(entry).filter(|leaf| leaf.position == position);
                let leaf = leaf.ok_or(wrong(PositionError::Entry))?;
                if let Some(stream) = streams.name_of(&leaf) {
                    return Err(wrong(PositionError::LeftOut(stream.to_owned())));
                }
                (leaf_hash(entry), leaf.recorded_at_us)
            }
        };
        if recorded_at_us < time {
            return Err(wrong(PositionError::Time));
        }
        time = recorded_at_us;
        edge.push(hash, |_, _| {});
        matched = matched.or(root_matches(&edge, stored));
    }
    if edge.root() != checkpoint.root {
        return Err(root(from, size));
    }
    // The root matches at this point, so a different root of the given checkpoint means a rewritten
    // log. The statements of the bundle itself are consistent.
    if let (Some(false), Some(stored)) = (matched, stored) {
        return Err(BundleError::Rewritten { size: stored.size, why: TreeError::Root });
    }
    let complete = if from == 1 { Complete::Whole } else { Complete::FromSequences { from } };
    Ok(CheckedEntries { complete, compared: matched.is_some() })
}

fn root(from: u64, to: u64) -> BundleError {
    BundleError::Root { from, to }
}

/// Returns whether the roots match at the size of the given checkpoint. Returns `None` without a
/// checkpoint, or if the edge has another size.
pub(crate) fn root_matches(edge: &Edge, stored: Option<&Checkpoint>) -> Option<bool> {
    stored.filter(|stored| stored.size == edge.size()).map(|stored| stored.root == edge.root())
}
