//! The file format of age for one X25519 recipient, with ASCII armor.
//!
//! The specification is <https://age-encryption.org/v1>. The customer can decrypt the file with the
//! standard tool. This module reads only files of this shape: one recipient and one chunk.
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, aead::Aead as _};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use rand_core::CryptoRng;
use sha2::Sha256;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use super::RecoveryError;
use crate::derive::Secret;

const VERSION: &str = "age-encryption.org/v1";
const WRAP_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
const COLUMNS: usize = 64;
const NONCE: usize = 16;
/// Counter 0, and the mark of the last chunk.
const FIRST_AND_LAST: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Encrypts a short text to one recipient.
pub(super) fn encrypt(
    recipient: &[u8; 32],
    plaintext: &[u8],
    rng: &mut impl CryptoRng,
) -> Result<String, RecoveryError> {
    let mut file_key = Zeroizing::new([0; 16]);
    rng.fill_bytes(file_key.as_mut());
    let ephemeral = StaticSecret::random_from_rng(rng);
    let share = PublicKey::from(&ephemeral).to_bytes();
    let shared = ephemeral.diffie_hellman(&PublicKey::from(*recipient));
    if !shared.was_contributory() {
        return Err(RecoveryError::InvalidRecipient);
    }
    let wrapping = wrapping_key(shared.as_bytes(), &share, recipient);
    let wrapped = seal(&wrapping, [0; 12], file_key.as_ref())?;
    let header = format!(
        "{VERSION}\n-> X25519 {}\n{}\n---",
        STANDARD_NO_PAD.encode(share),
        STANDARD_NO_PAD.encode(wrapped)
    );
    let mac = header_mac(file_key.as_ref(), &header).finalize().into_bytes();
    let mut nonce = [0; NONCE];
    rng.fill_bytes(&mut nonce);
    let payload_key = derive(file_key.as_ref(), &nonce, b"payload");
    let mut file = format!("{header} {}\n", STANDARD_NO_PAD.encode(mac)).into_bytes();
    file.extend(nonce);
    file.extend(seal(&payload_key, FIRST_AND_LAST, plaintext)?);
    Ok(armor(&file))
}

/// Decrypts a file with the private key of its recipient.
pub(super) fn decrypt(secret: &Secret, text: &str) -> Result<Zeroizing<Vec<u8>>, RecoveryError> {
    let file = dearmor(text).ok_or(RecoveryError::Truncated)?;
    let parts = Parts::read(&file).ok_or(RecoveryError::Truncated)?;
    let secret = StaticSecret::from(**secret);
    let recipient = PublicKey::from(&secret).to_bytes();
    let shared = secret.diffie_hellman(&PublicKey::from(parts.share));
    if !shared.was_contributory() {
        return Err(RecoveryError::Changed);
    }
    let wrapping = wrapping_key(shared.as_bytes(), &parts.share, &recipient);
    let file_key = open(&wrapping, [0; 12], &parts.wrapped).ok_or(RecoveryError::Changed)?;
    let mac = header_mac(&file_key, parts.header);
    mac.verify_slice(&parts.mac).map_err(|_| RecoveryError::Changed)?;
    let payload_key = derive(&file_key, parts.nonce, b"payload");
    open(&payload_key, FIRST_AND_LAST, parts.chunk).ok_or(RecoveryError::Changed)
}

/// Returns the public key that belongs to a private one.
pub(super) fn public(secret: &Secret) -> [u8; 32] {
    PublicKey::from(&StaticSecret::from(**secret)).to_bytes()
}

/// Parts of a file.
struct Parts<'a> {
    /// Bytes that the MAC covers.
    header: &'a str,
    share: [u8; 32],
    wrapped: Vec<u8>,
    mac: Vec<u8>,
    nonce: &'a [u8],
    chunk: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(file: &'a [u8]) -> Option<Self> {
        let end = file.windows(5).position(|bytes| bytes == b"\n--- ")? + 4;
        let (header, rest) = file.split_at_checked(end)?;
        let header = std::str::from_utf8(header).ok()?;
        let newline = rest.iter().position(|byte| *byte == b'\n')?;
        let mac = STANDARD_NO_PAD.decode(rest.get(1..newline)?).ok()?;
        let (nonce, chunk) = rest.get(newline + 1..)?.split_at_checked(NONCE)?;
        let mut lines = header.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let share = STANDARD_NO_PAD.decode(lines.next()?.strip_prefix("-> X25519 ")?).ok()?;
        let wrapped = STANDARD_NO_PAD.decode(lines.next()?).ok()?;
        let is_read = lines.next()? == "---" && lines.next().is_none();
        let share = share.try_into().ok()?;
        is_read.then_some(Parts { header, share, wrapped, mac, nonce, chunk })
    }
}

fn wrapping_key(shared: &[u8; 32], share: &[u8; 32], recipient: &[u8; 32]) -> Secret {
    derive(shared, &[*share, *recipient].concat(), WRAP_INFO)
}

fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> Secret {
    let mut key = Zeroizing::new([0; 32]);
    // HKDF fails only for more than 255 digests.
    let _ = Hkdf::<Sha256>::new(Some(salt), secret).expand(info, key.as_mut());
    key
}

fn header_mac(file_key: &[u8], header: &str) -> Hmac<Sha256> {
    let key = derive(file_key, &[], b"header");
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key.as_ref());
    let mut mac = Hmac::<Sha256>::new((&*block).into());
    mac.update(header.as_bytes());
    mac
}

fn seal(key: &Secret, nonce: [u8; 12], plaintext: &[u8]) -> Result<Vec<u8>, RecoveryError> {
    let cipher = ChaCha20Poly1305::new((&**key).into());
    cipher.encrypt(&nonce.into(), plaintext).map_err(|_| RecoveryError::InvalidRecipient)
}

fn open(key: &Secret, nonce: [u8; 12], ciphertext: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let cipher = ChaCha20Poly1305::new((&**key).into());
    cipher.decrypt(&nonce.into(), ciphertext).ok().map(Zeroizing::new)
}

fn armor(file: &[u8]) -> String {
    let mut text = format!("{BEGIN}\n");
    let encoded = STANDARD.encode(file);
    for (index, character) in encoded.chars().enumerate() {
        if index > 0 && index % COLUMNS == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text + "\n" + END + "\n"
}

fn dearmor(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let encoded: String = body.lines().collect();
    STANDARD.decode(encoded).ok()
}
