//! Secrets that the server issues. Each has 256 random bits, and the log has only its SHA-256.
//!
//! The token of a principal is `stead_<43 characters>`. An enrolment token starts with
//! `stead_enrol_`; its use case creates it.
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::digest::{Digest, DigestError};
use rand::RngCore as _;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// Prefix of the tokens of principals. Secret scanners look for it.
pub(crate) const PREFIX: &str = "stead_";
/// Prefix of enrolment tokens.
pub(crate) const ENROLMENT_PREFIX: &str = "stead_enrol_";

/// Creates a token for a user or a service.
pub(crate) fn token() -> String {
    format!("{PREFIX}{}", random())
}

/// Digest of a secret, as the log stores it.
pub(crate) fn digest(secret: &str) -> Result<Digest, DigestError> {
    format!("sha256:{}", hex::encode(hash(secret))).parse()
}

/// SHA-256 of a secret.
pub(super) fn hash(secret: &str) -> [u8; 32] {
    <Sha256 as sha2::Digest>::digest(secret).into()
}

/// Compares a secret with a digest in constant time.
pub(crate) fn matches(secret: &str, stored: &Digest) -> bool {
    let actual = format!("sha256:{}", hex::encode(hash(secret)));
    actual.as_bytes().ct_eq(stored.to_string().as_bytes()).into()
}

/// Creates a secret without a prefix.
pub(super) fn random() -> String {
    URL_SAFE_NO_PAD.encode(bytes())
}

/// Creates the bytes of a secret.
pub(crate) fn bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_matches_only_its_own_digest() {
        let secret = token();
        assert_eq!(secret.len(), PREFIX.len() + 43);
        assert!(matches(&secret, &digest(&secret).unwrap()));
        assert!(!matches(&token(), &digest(&secret).unwrap()));
    }
}
