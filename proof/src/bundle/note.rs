//! Verification of signed notes by their signers.
use super::BundleError;
use crate::{
    checkpoint::{Checkpoint, CheckpointError},
    key::{TrustedKey, VerifierKey},
};

/// Returns the checkpoint of a note, if the named signer signed it and is trusted. Also returns
/// the signer, and the number of signatures by other keys.
///
/// # Errors
/// [`BundleError`].
pub fn opened(
    note: &str,
    signer: &str,
    trusted: &[TrustedKey],
) -> Result<(Checkpoint, VerifierKey, usize), BundleError> {
    let signer: VerifierKey = signer.parse()?;
    if !trusted.iter().any(|key| key.is(&signer)) {
        return Err(BundleError::UntrustedSigner { signer: signer.to_string() });
    }
    let checkpoint = Checkpoint::open(note, &[signer.key])?;
    // Positions have 63 bits, so a larger size is not a valid log size.
    if i64::try_from(checkpoint.size).is_err() {
        return Err(CheckpointError::Format("the size exceeds 63 bits").into());
    }
    if checkpoint.origin() != signer.name {
        let (signer, checkpoint) = (signer.name, checkpoint.origin());
        return Err(BundleError::OtherLog { signer, checkpoint });
    }
    let others = other_signatures(note, &signer)?;
    Ok((checkpoint, signer, others))
}

/// Returns the number of signature lines that are not the signer's. Each line must match the
/// specification, so that a note has exactly one valid encoding.
fn other_signatures(note: &str, signer: &VerifierKey) -> Result<usize, CheckpointError> {
    let malformed = CheckpointError::Format("a signature line is malformed");
    let (body, signatures) = note.rsplit_once("\n\n").ok_or(malformed.clone())?;
    let lines = signatures.strip_suffix('\n').ok_or(malformed.clone())?;
    let mut others = 0;
    for line in lines.split('\n') {
        if !line.starts_with("— ") || line.chars().any(char::is_control) {
            return Err(malformed);
        }
        let alone = format!("{body}\n\n{line}\n");
        others += usize::from(Checkpoint::open(&alone, &[signer.key]).is_err());
    }
    Ok(others)
}

/// Verifies a checkpoint from another source: its log, its epoch and its signature by a trusted
/// key. A key that is trusted by fingerprint only must be among `named`.
pub(crate) fn open_stored(
    note: &str,
    now: &Checkpoint,
    named: impl Iterator<Item = VerifierKey>,
    trusted: &[TrustedKey],
) -> Result<Checkpoint, BundleError> {
    let named = named.filter(|key| trusted.iter().any(|one| one.is(key))).map(|key| key.key);
    let complete = trusted.iter().filter_map(|key| key.key_for(&now.origin()));
    let keys: Vec<_> = named.chain(complete).collect();
    let stored = Checkpoint::open(note, &keys).map_err(BundleError::Stored)?;
    follows(&stored, now)?;
    Ok(stored)
}

/// Checks that `older` can precede `newer`: both belong to the same log, and the epoch of `older`
/// is not higher.
pub(super) fn follows(older: &Checkpoint, newer: &Checkpoint) -> Result<(), BundleError> {
    if older.log_id != newer.log_id {
        let (signer, checkpoint) = (newer.origin(), older.origin());
        return Err(BundleError::OtherLog { signer, checkpoint });
    }
    if older.epoch > newer.epoch {
        return Err(BundleError::Epoch { older: older.epoch, newer: newer.epoch });
    }
    Ok(())
}
