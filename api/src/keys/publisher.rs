//! Key that signs this server's own plugins: `plugins.key`, in the directory of the signing keys.
use std::path::Path;

use domain::decider::Timestamp;
use ed25519_dalek::SigningKey;

use super::{KeyError, store};

const FILE: &str = "plugins.key";

/// Reads the key in a directory. Creates the key if the directory has none.
///
/// # Errors
/// [`KeyError`].
pub fn load_or_create(directory: &Path, now: Timestamp) -> Result<SigningKey, KeyError> {
    store::make_one(directory, FILE, now)?;
    Ok(store::read_one(&directory.join(FILE))?.key)
}
