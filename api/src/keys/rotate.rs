//! Key rotation. The former key stays valid until a given time.
use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use domain::decider::Timestamp;
use ed25519_dalek::VerifyingKey;
use schemas::keys::KeyUse;

use super::{
    KeyError, PublicKey,
    set::FormerKey,
    store::{self, at},
};

/// Replaces the key of one use. The former key stays valid until `until`, and older keys also
/// expire at `until` at the latest. A running server loads the new key automatically. Returns the
/// public data of all keys.
///
/// # Errors
/// [`KeyError`].
pub fn rotate(
    directory: &Path,
    usage: KeyUse,
    until: Timestamp,
    now: Timestamp,
) -> Result<Vec<PublicKey>, KeyError> {
    let guard = lock(directory)?;
    let set = store::read(directory)?;
    store::directory(&directory.join("former"))?;
    for former in set.former(usage).filter(|former| former.ended_at > until) {
        let (key, secret) = (former.key, former.secret.clone());
        let (made_at, last_size) = (former.made_at, former.last_size);
        let sooner = FormerKey { usage, key, secret, made_at, ended_at: until, last_size };
        store::replace(&store::former_path(directory, usage, &key), &store::former_line(&sooner))?;
    }
    let (name, replaced) = match usage {
        KeyUse::Tokens => ("tokens", &set.tokens),
        KeyUse::Manifests => ("manifests", &set.manifests),
        KeyUse::Checkpoints => ("checkpoints", &set.checkpoints),
        KeyUse::Other => return Ok(set.public()),
    };
    let former = FormerKey {
        usage,
        key: replaced.key.verifying_key(),
        // Only former manifest keys still sign, so other secret keys are not stored.
        secret: (usage == KeyUse::Manifests).then(|| replaced.key.clone()),
        made_at: replaced.made_at,
        ended_at: until,
        last_size: None,
    };
    // Writes the former key first, so that an interrupted rotation loses no key.
    store::replace(
        &store::former_path(directory, usage, &former.key),
        &store::former_line(&former),
    )?;
    store::replace(&directory.join(format!("{name}.key")), &store::line(&store::generate(now)))?;
    drop(guard);
    Ok(store::read(directory)?.public_of(store::log(directory)?.as_deref()))
}

/// Records the size of the log at the last checkpoint that a former key signed, unless a size is
/// already recorded.
///
/// # Errors
/// [`KeyError`].
pub(super) fn keep_last_size(
    directory: &Path,
    key: &VerifyingKey,
    size: u64,
) -> Result<(), KeyError> {
    let guard = lock(directory)?;
    let former = store::read(directory)?.former;
    let is_meant = |former: &FormerKey| former.usage == KeyUse::Checkpoints && former.key == *key;
    for former in former.into_iter().filter(is_meant).filter(|former| former.last_size.is_none()) {
        let path = store::former_path(directory, former.usage, key);
        store::replace(&path, &store::former_line(&FormerKey { last_size: Some(size), ..former }))?;
    }
    drop(guard);
    Ok(())
}

/// Waits for the lock on the keys of a directory.
fn lock(directory: &Path) -> Result<fs::File, KeyError> {
    let lock = directory.join("lock");
    let options =
        fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock);
    options.and_then(|file| file.lock().map(|()| file)).map_err(|why| at(&lock, why))
}
