//! Secrets that we give out: 256 random bits, kept only as their SHA-256.
//!
//! A person's token is `stead_<43 characters>`; an enrolment token starts with `stead_enrol_` and is made by
//! its use case.
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::digest::{Digest, DigestError};
use rand::RngCore as _;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// Which enrolment a token names; whether it is the right token is another question.
pub use crate::usecases::enrolments::id_of as enrolment_id;

/// What every token of a person or a service starts with; scanners for leaked secrets look for it.
pub const PREFIX: &str = "stead_";
/// What every enrolment token starts with.
pub const ENROLMENT_PREFIX: &str = "stead_enrol_";

/// A new token of a person or a service.
pub fn token() -> String {
    format!("{PREFIX}{}", random())
}

/// What is kept of a secret.
///
/// # Errors
/// None: a SHA-256 is always a digest.
pub fn digest(secret: &str) -> Result<Digest, DigestError> {
    format!("sha256:{}", hex::encode(hash(secret))).parse()
}

/// The SHA-256 of a secret.
pub(super) fn hash(secret: &str) -> [u8; 32] {
    <Sha256 as sha2::Digest>::digest(secret).into()
}

/// Whether this is the secret, in the same time however much of it is right.
pub fn is(secret: &str, kept: &Digest) -> bool {
    let found = format!("sha256:{}", hex::encode(hash(secret)));
    found.as_bytes().ct_eq(kept.to_string().as_bytes()).into()
}

fn random() -> String {
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_by_its_digest_and_by_nothing_else() {
        let secret = token();
        assert_eq!(secret.len(), PREFIX.len() + 43);
        assert!(is(&secret, &digest(&secret).unwrap()));
        assert!(!is(&token(), &digest(&secret).unwrap()));
    }
}
