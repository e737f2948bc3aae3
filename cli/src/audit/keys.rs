//! Trusted checkpoint keys of the command line.
use ed25519_dalek::VerifyingKey;
use proof::{
    checkpoint::Checkpoint,
    key::{KeyError, TrustedKey, VerifierKey},
};

use crate::failure::Failure;

/// Parses the values of `--key`: a verifier key, 64 hexadecimal digits, or a fingerprint.
pub fn parse_trusted_keys(texts: &[String]) -> Result<Vec<TrustedKey>, Failure> {
    let read = texts.iter().map(|text| text.parse()).collect::<Result<_, KeyError>>();
    read.map_err(|error| Failure::Usage(error.to_string()))
}

/// Opens a checkpoint that one of the trusted keys signed. A trusted fingerprint selects its key
/// from `named`, the keys of an untrusted source.
pub(crate) fn open_checkpoint(
    whose: &str,
    note: &str,
    believed: &[TrustedKey],
    named: &[VerifierKey],
) -> Result<Checkpoint, Failure> {
    let outcome = |error: &dyn std::fmt::Display| {
        Failure::Outcome(format!(
            "{whose}: {error}\n  try: `stead audit check --help` lists the sources of a key; a checkpoint must be the \
             complete, unchanged file"
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
            "no trusted key can verify {origin}: a fingerprint only selects a key that the server or the file \
             contains\n  try: the whole verifier key, <name>+<hash>+<base64>"
        );
        return Err(Failure::Usage(said));
    }
    Checkpoint::open(note, &known).map_err(|error| outcome(&error))
}

/// Parses keys from an untrusted source. Ignores invalid ones.
pub(crate) fn named<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<VerifierKey> {
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}
