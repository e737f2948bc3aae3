//! Whether the files of an archive are what they say they are, by themselves: without a database, under a key that is
//! believed.
use std::path::Path;

use proof::{
    bundle::BundleError,
    key::Believed,
    range::{Proven, Range},
};

use super::{
    ArchiveError, EVENTS, INDEX, Manifest,
    index::{Entries, Frames},
    spoiled,
    store::{Store, measure},
};

/// Read everything back: each file's digest, each frame, each event as it was hashed, the chain, the index, and that
/// all of it leads to the signed checkpoint. Gives the manifest and what it proves.
///
/// # Errors
/// [`ArchiveError::Spoiled`] with what is wrong and where.
pub fn check(
    directory: &Path,
    keys: &[Believed],
    progress: &mut dyn FnMut(u64),
) -> Result<(Manifest, Proven), ArchiveError> {
    let store = Store::open(directory, None)?;
    let manifest = &store.manifest;
    for file in &manifest.files {
        let found = measure(directory, &file.name)?;
        if found != *file {
            let why = format!(
                "it has {} bytes and the digest {}, not {} bytes and {}",
                found.bytes, found.sha256, file.bytes, file.sha256
            );
            return Err(spoiled(&directory.join(&file.name), why));
        }
    }
    let events = directory.join(EVENTS);
    let wrong = |why: &dyn std::fmt::Display| spoiled(&events, why.to_string());
    let begun = Range::begin(manifest.proof.clone(), keys, None).map_err(|why| {
        if matches!(why, BundleError::Stranger { .. }) {
            let path = directory.display().to_string();
            return ArchiveError::Signer { path, why: why.to_string() };
        }
        wrong(&why)
    });
    let mut range = begun?;
    let (mut entries, mut last) = (Entries::default(), None);
    for number in 0..manifest.frames.len() {
        let mut seen = Frames::new();
        for event in store.frame(number)? {
            let leaf = event.computed_leaf();
            let leaf = leaf.ok_or_else(|| wrong(&"an event's version is no number"))?;
            range.take(&leaf, &event.leaf, &event.chain).map_err(|why| wrong(&why))?;
            let frame = u32::try_from(number).unwrap_or(u32::MAX);
            entries.seen(&mut seen, &event.stream, frame, event.sequence);
            last = Some(event);
        }
        progress(range.next() - 1);
    }
    let proven = range.end().map_err(|why| wrong(&why))?;
    if proven.checkpoint.log_id != manifest.log_id {
        return Err(spoiled(directory, "its checkpoint is of another log"));
    }
    if last.is_none_or(|event| event.chain != manifest.chain.0) {
        return Err(spoiled(directory, "its last link is another"));
    }
    let index = entries.bytes();
    let named = manifest.files.iter().find(|file| file.name == INDEX);
    if named.is_none_or(|file| file.sha256 != hex::encode(proof::sha256(&index))) {
        return Err(spoiled(&directory.join(INDEX), "it does not name the events' streams"));
    }
    Ok((store.manifest, proven))
}
