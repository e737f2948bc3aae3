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
/// from `signers`, the keys of an untrusted source.
pub(crate) fn open_checkpoint(
    source: &str,
    note: &str,
    trusted: &[TrustedKey],
    signers: &[VerifierKey],
) -> Result<Checkpoint, Failure> {
    let outcome = |error: &dyn std::fmt::Display| {
        Failure::Outcome(format!(
            "cannot verify the {source}: {error}\n  try: `stead audit check --help` lists the sources of a key; a checkpoint must be the \
             complete, unchanged file"
        ))
    };
    let origin = Checkpoint::read_unverified(note).map_err(|error| outcome(&error))?.origin();
    let signers = signers.iter().filter(|key| trusted.iter().any(|one| one.is(key)));
    let known: Vec<VerifyingKey> = trusted
        .iter()
        .filter_map(|key| key.key_for(&origin))
        .chain(signers.map(|key| key.key))
        .collect();
    if known.is_empty() {
        let message = format!(
            "cannot verify a checkpoint of {origin}: no --key belongs to this log, and no fingerprint matches a key of the \
             server or the file\n  try: the complete verifier key, <name>+<hash>+<base64>"
        );
        return Err(Failure::Usage(message));
    }
    Checkpoint::open(note, &known).map_err(|error| outcome(&error))
}

/// Parses keys from an untrusted source. Ignores invalid keys.
pub(crate) fn parse_verifier_keys<'a>(
    texts: impl IntoIterator<Item = &'a String>,
) -> Vec<VerifierKey> {
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}
