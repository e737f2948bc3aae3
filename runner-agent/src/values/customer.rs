//! Sensitive values that the customer set with `stead-runner secret set`. They are encrypted to the
//! keys of the install, and never leave the host. The server gets name, time and user.
//!
//! `secrets/<input>.json` contains the value of one input.
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use chrono::{DateTime, Utc};
use domain::ids::ValueId;
use install_keys::{InstallKeys, Of, os_rng};
use schemas::{
    runner::CustomerValue,
    secret::{Ciphertext, Consumer, EncryptedValue, input_name},
};
use serde::{Deserialize, Serialize};

use super::with_context;
use crate::{
    data::{self, Data},
    ids,
};

const DIRECTORY: &str = "secrets";
const MAX_NAME: usize = 128;

/// Value of one input, as stored.
#[derive(Serialize, Deserialize)]
struct Entry {
    input: String,
    set_at: DateTime<Utc>,
    set_by: String,
    value: EncryptedValue,
}

/// Returns whether this is the name of an input, and therefore a safe name of a file.
pub fn is_name(name: &str) -> bool {
    let start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    start && rest && name.len() <= MAX_NAME
}

/// Stores a value for an input, and replaces the former one.
pub fn set(
    data: &Data,
    (keys, of): (&InstallKeys, Of<'_>),
    (input, text): (&str, &str),
    consumers: Vec<Consumer>,
    (set_by, set_at): (String, DateTime<Utc>),
) -> io::Result<()> {
    let id = ValueId(ids::new_ulid());
    let name = input_name(input);
    let mut value =
        EncryptedValue { id, name, consumers, signed: true, json: false, ciphertext: None };
    let encrypted =
        with_context(&value, of, |context| keys.encrypt(context, text.as_bytes(), &mut os_rng()));
    value.ciphertext = Some(Ciphertext(encrypted.map_err(io::Error::other)?));
    let entry = Entry { input: input.to_owned(), set_at, set_by, value };
    data::directory(&data.path(DIRECTORY))?;
    let path = data.path(DIRECTORY).join(format!("{input}.json"));
    data::replace(&path, &serde_json::to_vec(&entry)?)
}

/// Removes the value of an input. Returns false if there is none.
pub fn remove(data: &Data, input: &str) -> io::Result<bool> {
    let path = data.path(DIRECTORY).join(format!("{input}.json"));
    let exists = path.try_exists()?;
    data::remove(&path)?;
    if exists {
        data::sync_parent(&path)?;
    }
    Ok(exists)
}

/// Returns all values without their content, sorted by input.
pub fn list(data: &Data) -> io::Result<Vec<CustomerValue>> {
    let mut all: Vec<CustomerValue> = entries(data)?
        .into_iter()
        .map(|entry| CustomerValue {
            id: entry.value.id,
            input: entry.input,
            consumers: entry.value.consumers,
            set_at: entry.set_at,
            set_by: entry.set_by,
        })
        .collect();
    all.sort_by(|a, b| a.input.cmp(&b.input));
    Ok(all)
}

/// Returns the value with this id. An unreadable file of another input does not hide it.
///
/// # Errors
/// If there is no such value, but an unreadable file, which may have contained it.
pub(super) fn find(data: &Data, id: ValueId) -> io::Result<Option<EncryptedValue>> {
    let mut unreadable = None;
    for path in files(data)? {
        match entry(&path) {
            Ok(Some(entry)) if entry.value.id == id => return Ok(Some(entry.value)),
            Ok(_) => {}
            Err(error) => unreadable = Some(error),
        }
    }
    unreadable.map_or(Ok(None), Err)
}

/// Returns whether the customer set this input, even if its file is unreadable.
pub(super) fn has(data: &Data, input: &str) -> bool {
    is_name(input) && data.path(DIRECTORY).join(format!("{input}.json")).exists()
}

/// Returns the time of the last change, which a running agent compares.
pub(crate) fn changed_at(data: &Data) -> Option<SystemTime> {
    fs::metadata(data.path(DIRECTORY)).ok()?.modified().ok()
}

fn entries(data: &Data) -> io::Result<Vec<Entry>> {
    files(data)?.iter().filter_map(|path| entry(path).transpose()).collect()
}

fn files(data: &Data) -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir(data.path(DIRECTORY)) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let paths: io::Result<Vec<PathBuf>> = files.map(|file| Ok(file?.path())).collect();
    let is_entry = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    Ok(paths?.into_iter().filter(is_entry).collect())
}

fn entry(path: &Path) -> io::Result<Option<Entry>> {
    data::read_json::<Entry>(path).map_err(|error| {
        let path = path.display();
        io::Error::other(format!(
            "cannot read {path}: {error}; set the value again with `stead-runner secret set`"
        ))
    })
}
