//! First failed check of a bundle or range, with its position and meaning.
use crate::{checkpoint::CheckpointError, key::KeyError, tree::TreeError};

/// Reason to reject a bundle or a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The file is not a bundle, or is truncated.
    #[error("invalid bundle: {0}")]
    Unreadable(String),
    /// The file exceeds the size limit.
    #[error("invalid bundle: it exceeds the limit of {limit} bytes")]
    TooLarge {
        /// Size limit in bytes.
        limit: usize,
    },
    /// The JSON is not in its canonical encoding.
    #[error("byte {at} is not in the canonical encoding: the file was changed after its creation")]
    NotCanonical {
        /// Offset of the first difference, from 0.
        at: usize,
    },
    /// A key cannot be parsed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The signer is not trusted.
    #[error("the signer {signer} is not one of the trusted keys")]
    UntrustedSigner {
        /// Verifier key that the bundle names.
        signer: String,
    },
    /// The signed note is malformed, or its signature is not the signer's.
    #[error("cannot verify the checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The signed note of the older checkpoint is malformed, or its signature is not the signer's.
    #[error("cannot verify the older checkpoint: {0}")]
    Older(CheckpointError),
    /// The checkpoint from another source is malformed, or no trusted key signed it.
    #[error("cannot verify the stored checkpoint: {0}")]
    Stored(CheckpointError),
    /// The signer belongs to another log.
    #[error("the signer belongs to log {signer}, but the checkpoint to log {checkpoint}")]
    OtherLog {
        /// Log of the signer.
        signer: String,
        /// Log of the checkpoint.
        checkpoint: String,
    },
    /// The log is not a continuation of the older checkpoint.
    #[error(
        "log tampering: the first {size} events of the file's log differ from the older checkpoint of that size ({why})"
    )]
    Rewritten {
        /// Size of the older checkpoint.
        size: u64,
        /// Failure of the consistency proof.
        why: TreeError,
    },
    /// The checkpoint precedes a restore that an operator declared.
    #[error(
        "the file's checkpoint precedes a restore: its epoch is {newer}, but the older checkpoint has epoch {older}; request a new file"
    )]
    Epoch {
        /// Epoch of the older checkpoint.
        older: u64,
        /// Epoch of the newer checkpoint.
        newer: u64,
    },
    /// The file has no proof from the checkpoint of another source to the signed one.
    #[error(
        "cannot compare the stored checkpoint at {stored} with the file's checkpoint at {size}: the file has no proof from the first to the second; {remedy}"
    )]
    Uncompared {
        /// Size of the checkpoint from another source.
        stored: u64,
        /// Size of the signed checkpoint.
        size: u64,
        /// Action that the user must take.
        remedy: &'static str,
    },
    /// A check failed at one position.
    #[error("position {position}: {wrong}")]
    At {
        /// Position in the log.
        position: u64,
        /// Failed check.
        wrong: PositionError,
    },
    /// The bundle has no event of the subject.
    #[error("the bundle has no event of {0}")]
    Empty(String),
    /// The number of other entries is wrong.
    #[error(
        "the file has {found} entries for positions {from} to {size}, expected {expected}: entries are missing or were added"
    )]
    Count {
        /// First position of the range.
        from: u64,
        /// Last position of the range.
        size: u64,
        /// Required number of entries.
        expected: u64,
        /// Number of entries in the bundle.
        found: u64,
    },
    /// The root computed from the entries differs from the signed root.
    #[error(
        "the root computed from positions {from} to {to} differs from the signed root: an entry, or a hash that covers the positions before {from}, was changed"
    )]
    Root {
        /// First position.
        from: u64,
        /// Last position.
        to: u64,
    },
}

/// Failed check at one position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// A field has an invalid value.
    #[error("invalid field {0}")]
    Field(&'static str),
    /// The event is not the requested one, or belongs to another stream.
    #[error("the event does not belong to {0}")]
    Subject(String),
    /// The position is out of order or repeated.
    #[error("out of order: the previous event in the file has position {0}")]
    Order(u64),
    /// The range skips or repeats a position.
    #[error("the event is missing: position {0} is in its place")]
    Missing(u64),
    /// The stream skips or repeats a sequence.
    #[error(
        "found sequence {found}, expected {expected}: an event of the stream is missing or repeated"
    )]
    Sequence {
        /// Expected sequence.
        expected: u64,
        /// Sequence of the event.
        found: u64,
    },
    /// The recording time decreases.
    #[error("its recording time is before that of an earlier position")]
    Time,
    /// The log has another event at this position.
    #[error("the event differs from the log: its content or its proof was changed ({0})")]
    Included(TreeError),
    /// The entry is not the leaf of this position.
    #[error("the entry of another stream is not a valid log entry")]
    Entry,
    /// The entry belongs to the subject's stream and should be an event.
    #[error("the entry is an event of {0}, but the events of the bundle do not contain it")]
    LeftOut(String),
    /// Positions are missing between the stream's last event and the other entries.
    #[error(
        "the other entries begin at this position, but the stream's last event is at {0}: the file omits the positions in between"
    )]
    Gap(u64),
    /// The line's leaf hash does not match its content.
    #[error("the event was changed: its leaf hash does not match")]
    Leaf,
    /// The line's chain link does not match.
    #[error("the chain link does not match: the link of this line or the line before was changed")]
    Chain,
    /// The line's actor differs from the metadata.
    #[error("its actor differs from its metadata")]
    Actor,
}

impl BundleError {
    /// Returns the error of a failed check at a position.
    pub(crate) fn at(position: u64, wrong: PositionError) -> BundleError {
        BundleError::At { position, wrong }
    }

    /// Returns whether the file or the request is unusable. Every other error means that the
    /// content cannot be trusted.
    pub fn is_useless(&self) -> bool {
        match self {
            BundleError::Unreadable(_)
            | BundleError::TooLarge { .. }
            | BundleError::Key(_)
            | BundleError::Stored(_)
            | BundleError::Uncompared { .. } => true,
            BundleError::NotCanonical { .. }
            | BundleError::UntrustedSigner { .. }
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
