//! Key files: one line, 64 hexadecimal digits and the second it was made, mode 0600.
use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use domain::decider::Timestamp;
use ed25519_dalek::SigningKey;

use super::{KeyError, Stored};

/// Make the directory, for our eyes only.
pub(super) fn directory(path: &Path) -> Result<(), KeyError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|why| at(path, why))
}

/// The key in this file; a file that is not there yet is made, whole or not at all.
pub(super) fn read_or_make(path: &Path, now: Timestamp) -> Result<Stored, KeyError> {
    if !path.try_exists().map_err(|why| at(path, why))? {
        make(path, now).map_err(|why| at(path, why))?;
    }
    read(path)
}

fn make(path: &Path, now: Timestamp) -> io::Result<()> {
    let key = SigningKey::generate(&mut rand::rngs::OsRng);
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{} {}", hex::encode(key.to_bytes()), now.timestamp())?;
    file.sync_all()?;
    // A link does not replace: two servers that start at once end with one key.
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
        Err(_) | Ok(()) => {}
    }
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Stored, KeyError> {
    let named = || path.display().to_string();
    let mode = fs::metadata(path).map_err(|why| at(path, why))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: named() });
    }
    let text = fs::read_to_string(path).map_err(|why| at(path, why))?;
    parse(&text).ok_or_else(|| KeyError::Malformed { path: named() })
}

fn parse(text: &str) -> Option<Stored> {
    let (key, made_at) = text.trim_end().split_once(' ')?;
    let bytes: [u8; 32] = hex::decode(key).ok()?.try_into().ok()?;
    let made_at = Timestamp::from_timestamp(made_at.parse().ok()?, 0)?;
    Some(Stored { key: SigningKey::from_bytes(&bytes), made_at })
}

fn at(path: &Path, reason: io::Error) -> KeyError {
    KeyError::Io { path: path.display().to_string(), reason }
}
