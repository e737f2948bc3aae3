//! Converts byte offsets to lines and columns. An index of character counts bounds the cost of each
//! conversion, even in a file of one long line.
use std::ops::Range;

use crate::diagnostic::Location;

/// Distance in bytes between indexed character counts.
const STEP: usize = 256;

#[derive(Debug, Clone)]
pub struct Lines {
    /// Byte offset of each line.
    starts: Vec<usize>,
    /// Number of characters before each [`STEP`]th byte.
    characters: Vec<usize>,
}

impl Lines {
    pub fn of(text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        let mut characters = vec![0];
        for chunk in text.as_bytes().chunks(STEP) {
            let before = characters.last().copied().unwrap_or_default();
            characters.push(before + begun(chunk));
        }
        Lines { starts, characters }
    }

    /// Line and column of a span, from 1, and the number of its characters on that line.
    pub fn place(&self, text: &str, span: Range<usize>) -> Location {
        let start = span.start.min(text.len());
        let line = self.starts.partition_point(|at| *at <= start).max(1);
        let from = self.starts[line - 1];
        let next = self.starts.get(line).map_or(text.len(), |next| next - 1);
        let end = span.end.clamp(start, next.max(start));
        let before = self.before(text, start);
        Location {
            line: line as u32,
            column: (before - self.before(text, from) + 1) as u32,
            length: (self.before(text, end) - before) as u32,
        }
    }

    fn before(&self, text: &str, at: usize) -> usize {
        let step = at / STEP;
        self.characters[step] + begun(&text.as_bytes()[step * STEP..at])
    }
}

/// Number of characters that begin in a range of UTF-8 bytes.
fn begun(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_a_length_ends_with_its_line() {
        let text = format!("ä = \"é\"\n{}x = 1\n", "ö".repeat(400));
        let lines = Lines::of(&text);
        let at = text.find('x').unwrap();
        assert_eq!(lines.place(&text, 0..2), Location { line: 1, column: 1, length: 1 });
        assert_eq!(lines.place(&text, 5..999), Location { line: 1, column: 5, length: 3 });
        assert_eq!(lines.place(&text, at..at + 1), Location { line: 2, column: 401, length: 1 });
        let end = text.len();
        assert_eq!(lines.place(&text, end..end + 9), Location { line: 3, column: 1, length: 0 });
    }
}
