//! Verifies the files of an archive without a database, against trusted keys.
use std::path::Path;

use proof::{
    bundle::BundleError,
    key::TrustedKey,
    range::{Range, VerifiedRange},
};

use super::{
    ArchiveError, EVENTS, INDEX, Manifest, corrupt,
    index::{Entries, Frames},
    store::{Store, measure},
};

/// Reads all files of an archive and verifies digests, frames, event hashes, the chain and the
/// index. Verifies that the signed checkpoint covers the events. Returns the manifest and the
/// verified range.
///
/// # Errors
/// [`ArchiveError::Corrupt`] with the error and its location, or [`ArchiveError::Signer`].
pub fn check(
    directory: &Path,
    keys: &[TrustedKey],
    progress: &mut dyn FnMut(u64),
) -> Result<(Manifest, VerifiedRange), ArchiveError> {
    let store = Store::open(directory, None)?;
    let manifest = &store.manifest;
    for file in &manifest.files {
        let found = measure(directory, &file.name)?;
        if found != *file {
            let why = format!(
                "it has {} bytes and digest {}, expected {} bytes and {}",
                found.bytes, found.sha256, file.bytes, file.sha256
            );
            return Err(corrupt(&directory.join(&file.name), why));
        }
    }
    let events = directory.join(EVENTS);
    let wrong = |why: &dyn std::fmt::Display| corrupt(&events, why.to_string());
    let verified = Range::begin(manifest.proof.clone(), keys, None).map_err(|why| {
        if matches!(why, BundleError::UntrustedSigner { .. }) {
            let path = directory.display().to_string();
            return ArchiveError::Signer { path, why: why.to_string() };
        }
        wrong(&why)
    });
    let mut range = verified?;
    let (mut entries, mut last) = (Entries::default(), None);
    for number in 0..manifest.frames.len() {
        let mut seen = Frames::new();
        for event in store.frame(number)? {
            let leaf = event.computed_leaf();
            let leaf = leaf.ok_or_else(|| wrong(&"an event's version is not a number"))?;
            range.take(&leaf, &event.leaf, &event.chain).map_err(|why| wrong(&why))?;
            let frame = u32::try_from(number).unwrap_or(u32::MAX);
            entries.add(&mut seen, &event.stream, frame, event.sequence);
            last = Some(event);
        }
        progress(range.next() - 1);
    }
    let proven = range.end().map_err(|why| wrong(&why))?;
    if proven.checkpoint.log_id != manifest.log_id {
        return Err(corrupt(directory, "its checkpoint is from another log"));
    }
    if last.is_none_or(|event| event.chain != manifest.chain.0) {
        return Err(corrupt(
            directory,
            "the last chain link of its manifest differs from the one of its last event",
        ));
    }
    let index = entries.bytes();
    let named = manifest.files.iter().find(|file| file.name == INDEX);
    if named.is_none_or(|file| file.sha256 != hex::encode(proof::sha256(&index))) {
        return Err(corrupt(
            &directory.join(INDEX),
            "its entries differ from the streams of the events",
        ));
    }
    Ok((store.manifest, proven))
}
