//! Reading a journal: every line that says something, whoever wrote it.
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::Entry;
use crate::data::Data;

/// Read a journal; a line that a crash cut short is left out.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    Ok(parse(&fs::read(path)?))
}

pub(super) fn parse(text: &[u8]) -> Vec<Entry> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// A line as it is on disk, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub text: String,
    pub entry: Entry,
}

/// Everything that was ever written, oldest first.
pub fn read_all(data: &Data) -> io::Result<Vec<Line>> {
    let texts = texts(data)?;
    let lines = texts.into_iter().filter_map(|line| {
        let entry = serde_json::from_slice(&line).ok()?;
        Some(Line { text: String::from_utf8(line).ok()?, entry })
    });
    Ok(lines.collect())
}

/// All lines as they are on disk, oldest first, without their line ends: also those that say nothing.
pub fn texts(data: &Data) -> io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> = fs::read_dir(data.root())?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("journal.") && name.ends_with(".ndjson") && name != "journal.ndjson"
        })
        .collect();
    // Their names are times.
    files.sort_unstable();
    files.push(data.path("journal.ndjson"));
    let (mut lines, mut seen) = (Vec::new(), Vec::new());
    for path in files {
        // One that was about to be put aside when the agent died has two names.
        let file = fs::metadata(&path)?;
        let file = (file.dev(), file.ino());
        if seen.contains(&file) {
            continue;
        }
        seen.push(file);
        let text = fs::read(&path)?;
        let said = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.extend(said.map(<[u8]>::to_vec));
    }
    Ok(lines)
}
