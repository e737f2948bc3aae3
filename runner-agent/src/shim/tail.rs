//! End of a log that exceeds its limit: two files in turn, of which the older one is dropped.
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::data;

pub struct Tail {
    files: [PathBuf; 2],
    current: Option<File>,
    older: u64,
    length: u64,
    pushed: u64,
    limit: u64,
    /// Number of the first record that did not fit.
    pub first: u64,
}

impl Tail {
    pub fn new(dir: &Path, limit: u64, first: u64) -> Self {
        let files = [dir.join("tail.0"), dir.join("tail.1")];
        Tail { files, current: None, older: 0, length: 0, pushed: 0, limit, first }
    }

    pub fn push(&mut self, line: &[u8]) {
        let size = line.len() as u64;
        self.pushed += size;
        if self.current.is_none() || self.length + size > self.limit {
            self.rotate();
        }
        let Some(file) = &mut self.current else { return };
        if file.write_all(line).is_ok() {
            self.length += size;
        } else {
            let _best_effort = file.set_len(self.length);
        }
    }

    /// Makes the current file the older one and starts a new one.
    fn rotate(&mut self) {
        let [current, older] = &self.files;
        if self.current.take().is_some() && fs::rename(current, older).is_ok() {
            self.older = self.length;
        }
        let _absent = data::remove(current);
        self.current = data::append(current).ok();
        self.length = 0;
    }

    /// Returns the last records that fit, and the number of omitted bytes.
    pub fn end(self) -> (Vec<u8>, u64) {
        let [current, older] = &self.files;
        let mut text =
            if self.older > 0 { fs::read(older).unwrap_or_default() } else { Vec::new() };
        text.extend(fs::read(current).unwrap_or_default());
        let excess = text.len().saturating_sub(usize::try_from(self.limit).unwrap_or(usize::MAX));
        if excess > 0 {
            let newline = text[excess - 1..].iter().position(|byte| *byte == b'\n');
            text.drain(..newline.map_or(text.len(), |at| excess + at));
        }
        for file in &self.files {
            let _absent = data::remove(file);
        }
        let omitted = self.pushed.saturating_sub(text.len() as u64);
        (text, omitted)
    }
}
