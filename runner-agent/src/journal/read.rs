//! Reads the files of the journal.
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{Entry, JournalEvent};
use crate::data::Data;

/// Returns the entries of one journal file. Skips incomplete lines.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    Ok(parse(&fs::read(path)?))
}

pub(super) fn parse(text: &[u8]) -> Vec<Entry> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).map(original).collect()
}

/// Returns the original of a copied entry.
fn original(entry: Entry) -> Entry {
    if let JournalEvent::CarriedOver { original } = entry.event { *original } else { entry }
}

/// Line as it is on disk, and its entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub text: String,
    pub entry: Entry,
}

/// Returns all entries of all files, oldest first.
pub fn read_all(data: &Data) -> io::Result<Vec<Line>> {
    let parse_line = |line: Vec<u8>| {
        let entry = serde_json::from_slice(&line).ok()?;
        Some(Line { text: String::from_utf8(line).ok()?, entry })
    };
    each(data)?.filter_map(|line| line.map(parse_line).transpose()).collect()
}

/// Returns all lines of all files as they are on disk, oldest first and without line ends. Includes
/// incomplete lines.
pub fn texts(data: &Data) -> io::Result<Vec<Vec<u8>>> {
    each(data)?.collect()
}

/// Returns the lines of [`texts`] one by one, with one file in memory at a time.
pub(super) fn each(data: &Data) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
    Ok(files(data)?.into_iter().flat_map(|file| match lines(&file) {
        Ok(lines) => lines.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(error) => vec![Err(error)],
    }))
}

pub(super) fn lines(file: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read(file)?;
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(<[u8]>::to_vec).collect())
}

/// Returns all files, oldest first. The last one is the current file.
pub fn files(data: &Data) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(data.root())?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("journal.") && name.ends_with(".ndjson") && name != "journal.ndjson"
        })
        .collect();
    // The names contain the times of the rotations.
    files.sort_unstable();
    files.push(data.path("journal.ndjson"));
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for path in files {
        // If the agent died during a rotation, the file has two names.
        let file = fs::metadata(&path)?;
        if seen.insert((file.dev(), file.ino())) {
            all.push(path);
        }
    }
    Ok(all)
}
