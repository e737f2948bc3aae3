//! The first thing that is wrong, where, and what it means.
use crate::{checkpoint::CheckpointError, key::KeyError, tree::TreeError};

/// Why a bundle or a range proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is something else, or cut short.
    #[error("this is no bundle: {0}")]
    Unreadable(String),
    /// It is longer than we read.
    #[error("this is longer than a bundle can be ({limit} bytes)")]
    TooLarge {
        /// How long it may be.
        limit: usize,
    },
    /// The same JSON, other bytes.
    #[error("byte {at}: not written as a bundle is written: it was changed after it was made")]
    Spelling {
        /// Where, from 0.
        at: usize,
    },
    /// A key that cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Whoever signed it is not believed.
    #[error("it was signed by {signer}, which is none of the keys that were named")]
    Stranger {
        /// The verifier key that the bundle names.
        signer: String,
    },
    /// The signed note is none, or its signature is not the signer's.
    #[error("the checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The same of the older one.
    #[error("the older checkpoint: {0}")]
    Older(CheckpointError),
    /// The one that was kept elsewhere cannot be read, or is signed by nobody who is believed.
    #[error("the kept checkpoint: {0}")]
    Kept(CheckpointError),
    /// The signer speaks for another log.
    #[error("the signer is of {signer}, the checkpoint is of {checkpoint}: of different logs")]
    OtherLog {
        /// Whose key it is.
        signer: String,
        /// Whose checkpoint.
        checkpoint: String,
    },
    /// History before an older checkpoint is not what it was.
    #[error(
        "the log of the older checkpoint at {size} is not the beginning of this one: history was rewritten ({why})"
    )]
    Rewritten {
        /// The older checkpoint's size.
        size: u64,
        /// What the proof says.
        why: TreeError,
    },
    /// An operator declared a restore, and this is from before it.
    #[error(
        "the older checkpoint has epoch {older}, this one {newer}: it is of a time before a restore"
    )]
    Epoch {
        /// Of the older checkpoint.
        older: u64,
        /// Of this one.
        newer: u64,
    },
    /// Nothing in it leads from the kept checkpoint to its own.
    #[error(
        "nothing here leads from the kept checkpoint at {kept} to the signed one at {size}: {remedy}"
    )]
    Uncompared {
        /// The kept checkpoint's size.
        kept: u64,
        /// The signed one's.
        size: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// One position is wrong.
    #[error("position {position}: {wrong}")]
    At {
        /// Where.
        position: u64,
        /// What.
        wrong: Wrong,
    },
    /// There is no event in it.
    #[error("it has no event of {0}")]
    Empty(String),
    /// Positions are missing, or there are too many.
    #[error(
        "positions {from} to {size}: {expected} further entries have to be here, and there are {found}: some were left out or added"
    )]
    Count {
        /// The first position of the range.
        from: u64,
        /// The last.
        size: u64,
        /// How many there have to be.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The entries are not those of the log.
    #[error(
        "positions {from} to {to} do not make the signed root: one of them, or what is said of what is before them, is not what the log has"
    )]
    Root {
        /// The first position.
        from: u64,
        /// The last.
        to: u64,
    },
}

/// What is wrong at one position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A field that no event has like that.
    #[error("{0} cannot be read")]
    Field(&'static str),
    /// Not the event that was asked for, or of another stream.
    #[error("this event is not of {0}")]
    Subject(String),
    /// Out of order, or twice.
    #[error("it comes after position {0}")]
    Order(u64),
    /// A hole in a range.
    #[error("it is missing, position {0} is in its place")]
    Missing(u64),
    /// A hole in the stream.
    #[error(
        "sequence {found} where {expected} has to come: an event of the stream was left out before it"
    )]
    Sequence {
        /// What has to come.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// Time ran backwards.
    #[error("it was recorded before the position before it")]
    Time,
    /// The log has another event there.
    #[error(
        "the event is not the one that the log has there: something of it, or its proof, was changed ({0})"
    )]
    Included(TreeError),
    /// The entry is no leaf.
    #[error("the entry of another stream is not one of the log")]
    Entry,
    /// The entry is of the stream.
    #[error("this is an event of {0} too, and was left out")]
    LeftOut(String),
    /// The range says nothing about what comes after the last event.
    #[error(
        "the rest of the log begins only here, after the stream's last event at {0}: what is between is not shown"
    )]
    Gap(u64),
    /// A line's own digest differs from its bytes.
    #[error("the event is not the one that was written (its leaf is another)")]
    Leaf,
    /// A line's own link differs.
    #[error("what is before it is not what was written (the chain is another)")]
    Chain,
    /// Who did it is in the metadata, and is somebody else.
    #[error("its actor is not the one of its metadata")]
    Actor,
}

impl BundleError {
    /// Something is wrong at a position.
    pub(crate) fn at(position: u64, wrong: Wrong) -> BundleError {
        BundleError::At { position, wrong }
    }

    /// Whether the file, or what was asked of it, is of no use. The others say that it is not true.
    pub fn is_useless(&self) -> bool {
        match self {
            BundleError::Unreadable(_)
            | BundleError::TooLarge { .. }
            | BundleError::Key(_)
            | BundleError::Kept(_)
            | BundleError::Uncompared { .. } => true,
            BundleError::Spelling { .. }
            | BundleError::Stranger { .. }
            | BundleError::Checkpoint(_)
            | BundleError::Older(_)
            | BundleError::OtherLog { .. }
            | BundleError::Rewritten { .. }
            | BundleError::Epoch { .. }
            | BundleError::At { .. }
            | BundleError::Empty(_)
            | BundleError::Count { .. }
            | BundleError::Root { .. } => false,
        }
    }
}
