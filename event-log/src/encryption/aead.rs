//! ChaCha20-Poly1305 with a random nonce as a prefix. A subject has far fewer messages than the
//! 2^32 that one key allows.
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// A key, overwritten when it is dropped.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// Encrypts bytes. Returns `None` if they exceed the limit of one message, about 2^38 bytes.
pub(super) fn encrypt(key: &[u8; 32], context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let nonce: [u8; NONCE_LEN] = rand::random();
    let mut text = plain.to_vec();
    let sealing = cipher(key)?;
    let tag = sealing.seal_in_place_separate_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(context),
        &mut text,
    );
    Some([&nonce[..], &text, tag.ok()?.as_ref()].concat())
}

/// Decrypts bytes. Returns `None` for another key or context, or after tampering.
pub(super) fn decrypt(
    key: &[u8; 32],
    context: &[u8],
    ciphertext: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, text) = ciphertext.split_first_chunk::<NONCE_LEN>()?;
    let mut text = Zeroizing::new(text.to_vec());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = cipher(key)?.open_in_place(nonce, Aad::from(context), &mut text).ok()?.len();
    text.truncate(plain);
    Some(text)
}

fn cipher(key: &[u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, key).ok().map(LessSafeKey::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decryption_needs_the_same_key_context_and_ciphertext() {
        let ciphertext = encrypt(&[1; 32], b"here", b"words").unwrap();
        assert_ne!(ciphertext, encrypt(&[1; 32], b"here", b"words").unwrap());
        assert_eq!(**decrypt(&[1; 32], b"here", &ciphertext).unwrap(), *b"words");
        assert_eq!(decrypt(&[2; 32], b"here", &ciphertext), None);
        assert_eq!(decrypt(&[1; 32], b"there", &ciphertext), None);
        for at in 0..ciphertext.len() {
            let mut other = ciphertext.clone();
            other[at] ^= 1;
            assert_eq!(decrypt(&[1; 32], b"here", &other), None, "{at}");
        }
        assert_eq!(decrypt(&[1; 32], b"here", &ciphertext[..11]), None);
    }
}
