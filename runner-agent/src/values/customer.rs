//! Sensitive values that the customer set with `stead-runner secret set`. They are encrypted to the
//! keys of the install, and never leave the host. The server gets name, time and user.
//!
//! `secrets/<input>.json` contains the value of one input.
use std::{fs, io, time::SystemTime};

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

/// Returns the value with this id.
pub(super) fn find(data: &Data, id: ValueId) -> io::Result<Option<EncryptedValue>> {
    Ok(entries(data)?.into_iter().map(|entry| entry.value).find(|value| value.id == id))
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
    let directory = data.path(DIRECTORY);
    let files = match fs::read_dir(&directory) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let mut entries = vec![];
    for file in files {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let entry = data::read_json::<Entry>(&path).map_err(|error| {
            let path = path.display();
            io::Error::other(format!(
                "cannot read {path}: {error}; set the value again with `stead-runner secret set`"
            ))
        })?;
        entries.extend(entry);
    }
    Ok(entries)
}
