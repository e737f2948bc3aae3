//! The wrapping key, which encrypts the subject keys. It is not in the database, so the database
//! alone reveals no personal data.
use super::aead::{Secret, decrypt, encrypt};

/// A wrapping key, with the name that the rows refer to.
pub struct WrappingKey {
    name: String,
    key: Secret,
}

impl WrappingKey {
    /// Creates a wrapping key from these bytes.
    pub fn of(key: [u8; 32]) -> WrappingKey {
        let name = proof::sha256(&[&b"stead/wrapping-key/v1\n"[..], &key].concat());
        WrappingKey { name: hex::encode(&name[..8]), key: Secret::new(key) }
    }

    /// Name of the key, which reveals nothing of its bytes.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn wrap(&self, subject: &str, key: &Secret) -> Option<Vec<u8>> {
        encrypt(&self.key, &context(subject), &key[..])
    }

    pub(super) fn unwrap(&self, subject: &str, wrapped: &[u8]) -> Option<Secret> {
        let key = decrypt(&self.key, &context(subject), wrapped)?;
        Some(Secret::new((**key).try_into().ok()?))
    }
}

fn context(subject: &str) -> Vec<u8> {
    format!("stead/subject-key/v1\n{subject}").into_bytes()
}
