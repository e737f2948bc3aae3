//! The keys that are believed, as they were given.
use ed25519_dalek::VerifyingKey;
use proof::{
    checkpoint::Checkpoint,
    key::{Believed, KeyError, VerifierKey},
};

use crate::failure::Failure;

/// Read what `--key` says: a verifier key, 64 hexadecimal digits, or a fingerprint.
pub(crate) fn believed(texts: &[String]) -> Result<Vec<Believed>, Failure> {
    let read = texts.iter().map(|text| text.parse()).collect::<Result<_, KeyError>>();
    read.map_err(|error| Failure::Usage(error.to_string()))
}

/// A checkpoint that one of these keys signed. What is believed by its fingerprint is found among those that are
/// `named` by whoever is not believed.
pub(crate) fn open(
    whose: &str,
    note: &str,
    believed: &[Believed],
    named: &[VerifierKey],
) -> Result<Checkpoint, Failure> {
    let outcome = |error: &dyn std::fmt::Display| {
        Failure::Outcome(format!(
            "{whose}: {error}\n  try: `stead audit check --help` says where a key is got, and a kept checkpoint is the \
             whole file as it was written"
        ))
    };
    let origin = Checkpoint::read_unverified(note).map_err(|error| outcome(&error))?.origin();
    let named = named.iter().filter(|key| believed.iter().any(|one| one.is(key)));
    let known: Vec<VerifyingKey> = believed
        .iter()
        .filter_map(|key| key.key_for(&origin))
        .chain(named.map(|key| key.key))
        .collect();
    if known.is_empty() {
        let said = format!(
            "none of the keys is one of {origin} that can verify: a fingerprint only recognises a key that the \
             server or the file names\n  try: the whole verifier key, <name>+<hash>+<base64>"
        );
        return Err(Failure::Usage(said));
    }
    Checkpoint::open(note, &known).map_err(|error| outcome(&error))
}

/// Keys that somebody names who is not believed: what cannot be read is not there.
pub(crate) fn named<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<VerifierKey> {
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}
