//! Key files: one line each, mode 0600.
//!
//! `<use>.key` has 64 hexadecimal digits and the creation time in seconds.
//! `former/<use>-<fingerprint>.key` also has the time at which the key expires. Of the former keys,
//! only a manifest key has its secret key in the file. The file of an expired checkpoint key also
//! has the size of the log at the last checkpoint that the key signed.
use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use domain::decider::Timestamp;
use ed25519_dalek::{SigningKey, VerifyingKey};
use schemas::keys::{KeyUse, fingerprint};

use super::{
    KeyError,
    set::{CurrentKey, FormerKey, KeySet},
};

/// Uses of keys, with their file names.
pub(super) const USES: [(KeyUse, &str); 3] = [
    (KeyUse::Tokens, "tokens"),
    (KeyUse::Manifests, "manifests"),
    (KeyUse::Checkpoints, "checkpoints"),
];

/// Creates the directory and its missing keys, each atomically.
pub(super) fn make_missing(path: &Path, now: Timestamp) -> Result<(), KeyError> {
    for (_, name) in USES {
        make_one(path, &format!("{name}.key"), now)?;
    }
    Ok(())
}

/// Creates one key of a directory, unless it exists.
pub(super) fn make_one(path: &Path, name: &str, now: Timestamp) -> Result<(), KeyError> {
    directory(path)?;
    let file = path.join(name);
    if !file.try_exists().map_err(|why| at(&file, why))? {
        make(&file, now).map_err(|why| at(&file, why))?;
    }
    Ok(())
}

/// Reads all keys of a directory. Reads the signing keys first, so that a key that is replaced
/// meanwhile is found at least once.
pub(super) fn read(directory: &Path) -> Result<KeySet, KeyError> {
    let current = |name: &str| read_one(&directory.join(format!("{name}.key")));
    let (tokens, manifests) = (current("tokens")?, current("manifests")?);
    let checkpoints = current("checkpoints")?;
    let signs: Vec<_> =
        [&tokens, &manifests, &checkpoints].map(|key| key.key.verifying_key()).into();
    let mut former = former(&directory.join("former"))?;
    // An interrupted rotation has not replaced its key yet.
    former.retain(|former| !signs.contains(&former.key));
    Ok(KeySet { tokens, manifests, checkpoints, former })
}

/// Reads a signing key.
pub(super) fn read_one(path: &Path) -> Result<CurrentKey, KeyError> {
    let malformed = || KeyError::Malformed { path: path.display().to_string() };
    parse(&text(path)?).ok_or_else(malformed)
}

fn former(directory: &Path) -> Result<Vec<FormerKey>, KeyError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(at(directory, why)),
    };
    let mut former = Vec::new();
    for entry in entries {
        let path = entry.map_err(|why| at(directory, why))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let of = USES.iter().find(|(_, prefix)| name.starts_with(&format!("{prefix}-")));
        let Some((usage, _)) = of.filter(|_| name.ends_with(".key")) else { continue };
        let malformed = || KeyError::Malformed { path: path.display().to_string() };
        former.push(parse_former(*usage, &text(&path)?).ok_or_else(malformed)?);
    }
    former.sort_by_key(|former| (former.usage, former.made_at, former.key.to_bytes()));
    Ok(former)
}

pub(super) fn former_path(directory: &Path, usage: KeyUse, key: &VerifyingKey) -> PathBuf {
    let name = USES.iter().find(|(known, _)| *known == usage).map_or("other", |(_, name)| name);
    let short_fingerprint =
        fingerprint(key.as_bytes()).trim_start_matches("sha256:")[..16].to_owned();
    directory.join("former").join(format!("{name}-{short_fingerprint}.key"))
}

/// Contents of the file of a former key.
pub(super) fn former_line(former: &FormerKey) -> String {
    let key = former.secret.as_ref().map_or(former.key.to_bytes(), SigningKey::to_bytes);
    let (made_at, ended_at) = (former.made_at.timestamp(), former.ended_at.timestamp());
    let last_size = former.last_size.map(|size| format!(" {size}")).unwrap_or_default();
    format!("{} {made_at} {ended_at}{last_size}", hex::encode(key))
}

/// Contents of the file of a signing key.
pub(super) fn line(stored: &CurrentKey) -> String {
    format!("{} {}", hex::encode(stored.key.to_bytes()), stored.made_at.timestamp())
}

/// Id of the log that the keys belong to, or `None` if no server has run with them yet.
pub(super) fn log(directory: &Path) -> Result<Option<String>, KeyError> {
    let path = directory.join("log");
    match fs::read_to_string(&path) {
        Ok(log_id) => Ok(Some(log_id.trim_end().to_owned())),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(at(&path, why)),
    }
}

pub(super) fn write_log(directory: &Path, log_id: &str) -> Result<(), KeyError> {
    if log(directory)?.as_deref() == Some(log_id) {
        return Ok(());
    }
    replace(&directory.join("log"), log_id)
}

/// Generates a signing key with `now` as its creation time.
pub(super) fn generate(now: Timestamp) -> CurrentKey {
    CurrentKey { key: SigningKey::generate(&mut rand::rngs::OsRng), made_at: now }
}

/// Creates the directory with mode 0700.
pub(super) fn directory(path: &Path) -> Result<(), KeyError> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    // The keys in the directory are needed as long as the log, which can have another disk.
    created.and_then(|()| sync_parent(path)).map_err(|why| at(path, why))
}

fn make(path: &Path, now: Timestamp) -> io::Result<()> {
    let draft = draft(path, &line(&generate(now)))?;
    // A hard link never replaces a file, so two servers that start concurrently get the same key.
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
        Err(_) | Ok(()) => {}
    }
    sync_parent(path)
}

/// Replaces a file atomically.
pub(super) fn replace(path: &Path, line: &str) -> Result<(), KeyError> {
    let write = || {
        let draft = draft(path, line)?;
        fs::rename(&draft, path)?;
        sync_parent(path)
    };
    write().map_err(|why| at(path, why))
}

fn draft(path: &Path, line: &str) -> io::Result<PathBuf> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(file, "{line}")?;
    // If root rotates a key, the server must still be able to read the new file: it may run as
    // another user.
    if let Some(parent) = path.parent()
        && nix::unistd::geteuid().is_root()
    {
        let owner = fs::metadata(parent)?;
        std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.sync_all()?;
    Ok(draft)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn text(path: &Path) -> Result<String, KeyError> {
    let mode = fs::metadata(path).map_err(|why| at(path, why))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.display().to_string() });
    }
    fs::read_to_string(path).map_err(|why| at(path, why))
}

fn parse(text: &str) -> Option<CurrentKey> {
    let (key, made_at) = text.trim_end().split_once(' ')?;
    Some(CurrentKey { key: SigningKey::from_bytes(&bytes(key)?), made_at: parse_seconds(made_at)? })
}

fn parse_former(usage: KeyUse, text: &str) -> Option<FormerKey> {
    let mut words = text.trim_end().split(' ');
    let key = bytes(words.next()?)?;
    let (made_at, ended_at) = (parse_seconds(words.next()?)?, parse_seconds(words.next()?)?);
    let last_size =
        words.next().map(|size| size.parse().ok()).map_or(Some(None), |size| size.map(Some))?;
    let secret = (usage == KeyUse::Manifests).then(|| SigningKey::from_bytes(&key));
    let key = match &secret {
        Some(secret) => secret.verifying_key(),
        None => VerifyingKey::from_bytes(&key).ok()?,
    };
    let whole = words.next().is_none();
    whole.then_some(FormerKey { usage, key, secret, made_at, ended_at, last_size })
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

fn parse_seconds(text: &str) -> Option<Timestamp> {
    Timestamp::from_timestamp(text.parse().ok()?, 0)
}

pub(super) fn at(path: &Path, reason: io::Error) -> KeyError {
    KeyError::Io { path: path.display().to_string(), reason }
}
