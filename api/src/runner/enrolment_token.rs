//! The text of an enrolment token: it names the enrolment that it belongs to, so that looking it up is
//! loading one aggregate, and it proves by 32 random bytes that it was given out.
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{digest::Digest, ids::TokenId};
use rand::RngCore as _;
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

/// What every enrolment token starts with, so that scanners of leaked secrets find it.
const PREFIX: &str = "stead_enrol_";

/// A new token: its text, which is shown once and kept nowhere, and the digest of the text, which is
/// kept in `enrolment.issued`.
///
/// # Errors
/// None in practice; the digest's text is checked like any other.
pub fn issue(id: TokenId) -> Result<(String, Digest), domain::digest::DigestError> {
    let mut secret = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut secret);
    let text = format!("{PREFIX}{}_{}", id.0, URL_SAFE_NO_PAD.encode(secret));
    let digest = digest(&text)?;
    Ok((text, digest))
}

/// Which enrolment a token names, and its digest. `None`: it is no enrolment token.
pub fn read(text: &str) -> Option<(TokenId, Digest)> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let id = Ulid::from_string(id).ok().filter(|read| read.to_string() == id)?;
    if secret.is_empty() { None } else { Some((TokenId(id), digest(text).ok()?)) }
}

fn digest(text: &str) -> Result<Digest, domain::digest::DigestError> {
    format!("sha256:{}", hex::encode(Sha256::digest(text))).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_enrolment_and_no_two_are_alike() {
        let id: TokenId = "tok_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let (text, digest) = issue(id).unwrap();
        assert_eq!(read(&text), Some((id, digest)));
        assert_ne!(issue(id).unwrap().0, text);
        for other in ["", "stead_enrol_", "stead_enrol_01ARZ3NDEKTSV4RRFFQ69G5FAV_", "x_y_z"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
