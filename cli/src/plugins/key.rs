//! Key files of publishers: 64 hexadecimal digits of an Ed25519 secret key, mode 0600.
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use ed25519_dalek::SigningKey;
use rand::RngCore as _;

/// Creates a key file, which must not exist.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn create(path: &Path) -> io::Result<SigningKey> {
    let mut seed = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut seed);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", hex::encode(seed))?;
    file.sync_all()?;
    Ok(SigningKey::from_bytes(&seed))
}

/// Reads a key file.
///
/// # Errors
/// The file cannot be read, or is not a key file.
pub fn read(path: &Path) -> io::Result<SigningKey> {
    let text = fs::read_to_string(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can read it; run chmod 600 on it"));
    }
    let seed = hex::decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
    let seed: [u8; 32] = seed.ok_or_else(|| {
        io::Error::other(
            "it is not a key file (64 hexadecimal digits); create one with `stead plugins keygen`",
        )
    })?;
    Ok(SigningKey::from_bytes(&seed))
}

/// Returns the public key as 64 hexadecimal digits.
pub fn public(key: &SigningKey) -> String {
    hex::encode(key.verifying_key().as_bytes())
}
