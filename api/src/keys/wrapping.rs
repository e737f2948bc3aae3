//! Key that wraps the subject keys: `subjects.key`, in the directory of the signing keys. Personal
//! data is unreadable without it, so the server never replaces it silently. A server with another
//! key does not start.
use std::{fs, io, path::Path};

use domain::decider::Timestamp;
use event_log::{KeyRing, WrappingKey};

use super::{KeyError, store};

const FILE: &str = "subjects.key";
/// File name prefix of former wrapping keys.
const FORMER: &str = "subjects-";

/// Reads the wrapping keys of a directory. Creates a key if there is none.
///
/// # Errors
/// [`KeyError`].
pub fn ring(directory: &Path, now: Timestamp) -> Result<KeyRing, KeyError> {
    store::make_one(directory, FILE, now)?;
    kept(directory)
}

/// Reads the wrapping keys of a directory. Returns an empty ring if there is no key.
///
/// # Errors
/// [`KeyError`].
pub fn kept(directory: &Path) -> Result<KeyRing, KeyError> {
    let file = directory.join(FILE);
    if !file.try_exists().map_err(|why| store::at(&file, why))? {
        return Ok(KeyRing::default());
    }
    let wrapping = read(&file)?;
    let entries = match fs::read_dir(directory.join("former")) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Ok(KeyRing::of(wrapping, vec![]));
        }
        Err(why) => return Err(store::at(&directory.join("former"), why)),
    };
    let mut former = vec![];
    for entry in entries {
        let path = entry.map_err(|why| store::at(directory, why))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(FORMER) && name.ends_with(".key")) {
            former.push(read(&path)?);
        }
    }
    Ok(KeyRing::of(wrapping, former))
}

fn read(path: &Path) -> Result<WrappingKey, KeyError> {
    Ok(WrappingKey::of(store::read_one(path)?.key.to_bytes()))
}
