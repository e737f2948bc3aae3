//! Position at which reading the journal continues.
use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
};

use super::{Entry, Journal, read};

/// Position between two lines. The default is before the first line of the current file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    inode: u64,
    offset: u64,
}

impl Journal {
    /// Returns the position after the last byte.
    pub fn end_position(&self) -> io::Result<Position> {
        let file = fs::metadata(&self.path)?;
        Ok(Position { inode: file.ino(), offset: file.len() })
    }

    /// Returns the entries after `position`, and advances the position past the last complete line.
    /// After a rotation, returns all entries of the new file.
    pub fn read_on(&self, position: &mut Position) -> io::Result<Vec<Entry>> {
        let mut file = fs::File::open(&self.path)?;
        let metadata = file.metadata()?;
        if metadata.ino() != position.inode || metadata.len() < position.offset {
            *position = Position { inode: metadata.ino(), offset: 0 };
        }
        file.seek(SeekFrom::Start(position.offset))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // Another process may be writing a line.
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        position.offset += complete as u64;
        Ok(read::parse(&text[..complete]))
    }
}
