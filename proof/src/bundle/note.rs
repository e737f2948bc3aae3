//! A checkpoint that is believed because its signer is.
use super::BundleError;
use crate::{
    checkpoint::{Checkpoint, CheckpointError},
    key::{Believed, VerifierKey},
};

/// The checkpoint of a note, if the signer signed it and is believed. Also: how many of its signatures are of
/// others, about which nothing is known.
///
/// # Errors
/// [`BundleError`].
pub fn opened(
    note: &str,
    signer: &str,
    believed: &[Believed],
) -> Result<(Checkpoint, VerifierKey, usize), BundleError> {
    let signer: VerifierKey = signer.parse()?;
    if !believed.iter().any(|key| key.is(&signer)) {
        return Err(BundleError::Stranger { signer: signer.to_string() });
    }
    let checkpoint = Checkpoint::open(note, &[signer.key])?;
    // Positions are counted in 63 bits: what is beyond is a number and no log.
    if i64::try_from(checkpoint.size).is_err() {
        return Err(CheckpointError::Format("no log is that long").into());
    }
    if checkpoint.origin() != signer.name {
        let (signer, checkpoint) = (signer.name, checkpoint.origin());
        return Err(BundleError::OtherLog { signer, checkpoint });
    }
    let others = others(note, &signer)?;
    Ok((checkpoint, signer, others))
}

/// How many signature lines are not the signer's own. Each line is written as the specification has it, so that no
/// byte of the note is without a meaning.
fn others(note: &str, signer: &VerifierKey) -> Result<usize, CheckpointError> {
    let malformed = CheckpointError::Format("a signature line is not one");
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

/// A checkpoint that was kept elsewhere: of this log, of no later time than its epoch, and signed by a key that is
/// believed. What is believed by its fingerprint alone has to be among those that are `named`.
pub(crate) fn kept(
    note: &str,
    now: &Checkpoint,
    named: impl Iterator<Item = VerifierKey>,
    believed: &[Believed],
) -> Result<Checkpoint, BundleError> {
    let known = named.filter(|key| believed.iter().any(|one| one.is(key))).map(|key| key.key);
    let whole = believed.iter().filter_map(|key| key.key_for(&now.origin()));
    let known: Vec<_> = known.chain(whole).collect();
    let kept = Checkpoint::open(note, &known).map_err(BundleError::Kept)?;
    follows(&kept, now)?;
    Ok(kept)
}

/// Whether one may be an earlier checkpoint of the other's log.
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
