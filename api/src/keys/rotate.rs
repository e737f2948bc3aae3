//! A new key takes the place of one, which is believed for a while yet.
use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use domain::decider::Timestamp;
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
    let lock = directory.join("lock");
    let options =
        fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock);
    // Two operators at once replace one after the other.
    let held = options.and_then(|file| file.lock().map(|()| file)).map_err(|why| at(&lock, why))?;
    let set = store::read(directory)?;
    store::directory(&directory.join("former"))?;
    for former in set.former(usage).filter(|former| former.ended_at > until) {
        let (key, secret) = (former.key, former.secret.clone());
        let sooner = Former { usage, key, secret, made_at: former.made_at, ended_at: until };
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
    };
    // The former one first: whoever reads in between finds it as the one that signs.
    store::replace(&store::place(directory, usage, &former.key), &store::former_line(&former))?;
    store::replace(&directory.join(format!("{name}.key")), &store::line(&store::fresh(now)))?;
    drop(held);
    Ok(store::read(directory)?.public_of(store::log(directory)?.as_deref()))
}
