//! A new key takes the place of one, which is believed for a while yet.
use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use domain::decider::Timestamp;
use ed25519_dalek::VerifyingKey;
use schemas::keys::KeyUse;

use super::{
    KeyError, PublicKey,
    set::Former,
    store::{self, at},
};

/// Replace the key of one use. The former one is believed until `until`; if that is now, so is every one before
/// it. A server that runs takes the new key by itself. Gives all keys as they are now.
///
/// # Errors
/// [`KeyError`].
pub fn rotate(
    directory: &Path,
    usage: KeyUse,
    until: Timestamp,
    now: Timestamp,
) -> Result<Vec<PublicKey>, KeyError> {
    let held = held(directory)?;
    let set = store::read(directory)?;
    store::directory(&directory.join("former"))?;
    for former in set.former(usage).filter(|former| former.ended_at > until) {
        let (key, secret) = (former.key, former.secret.clone());
        let (made_at, last_size) = (former.made_at, former.last_size);
        let sooner = Former { usage, key, secret, made_at, ended_at: until, last_size };
        store::replace(&store::place(directory, usage, &key), &store::former_line(&sooner))?;
    }
    let (name, replaced) = match usage {
        KeyUse::Tokens => ("tokens", &set.tokens),
        KeyUse::Manifests => ("manifests", &set.manifests),
        KeyUse::Checkpoints => ("checkpoints", &set.checkpoints),
        KeyUse::Other => return Ok(set.public()),
    };
    let former = Former {
        usage,
        key: replaced.key.verifying_key(),
        // The others sign nothing any more, so there is nothing to keep.
        secret: (usage == KeyUse::Manifests).then(|| replaced.key.clone()),
        made_at: replaced.made_at,
        ended_at: until,
        last_size: None,
    };
    // The former one first: whoever reads in between finds it as the one that signs.
    store::replace(&store::place(directory, usage, &former.key), &store::former_line(&former))?;
    store::replace(&directory.join(format!("{name}.key")), &store::line(&store::fresh(now)))?;
    drop(held);
    Ok(store::read(directory)?.public_of(store::log(directory)?.as_deref()))
}

/// Keep the size of the log at the last checkpoint that a former key signed, unless one is kept already.
///
/// # Errors
/// [`KeyError`].
pub(super) fn keep_last_size(
    directory: &Path,
    key: &VerifyingKey,
    size: u64,
) -> Result<(), KeyError> {
    let held = held(directory)?;
    let former = store::read(directory)?.former;
    let is_meant = |former: &Former| former.usage == KeyUse::Checkpoints && former.key == *key;
    for former in former.into_iter().filter(is_meant).filter(|former| former.last_size.is_none()) {
        let place = store::place(directory, former.usage, key);
        store::replace(&place, &store::former_line(&Former { last_size: Some(size), ..former }))?;
    }
    drop(held);
    Ok(())
}

/// Waits for whoever else changes the keys of a directory.
fn held(directory: &Path) -> Result<fs::File, KeyError> {
    let lock = directory.join("lock");
    let options =
        fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock);
    options.and_then(|file| file.lock().map(|()| file)).map_err(|why| at(&lock, why))
}
