//! Sparse index of each log in use: where its lines begin, their styles, and its phases.
//!
//! ```text
//! stream   record … record │ record … record │ record …
//! marks    offset, number,   offset, number,
//!          styles            styles
//! ```
//! The index is derived from the stream, so a server builds it at the first use and extends it as the
//! stream grows. A stream that was stored again has another generation, and gets another index.
use std::{
    borrow::Cow,
    sync::{Arc, PoisonError},
};

use bytes::Bytes;
use domain::ids::ExecutionId;
use schemas::ansi::{self, Styles};
use serde::Deserialize;
use sqlx::Row as _;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::store::{LogError, LogStore};

/// Maximum number of logs whose index is in memory.
const MAX_INDEXES: usize = 64;
/// Number of records between two marks.
const MARK_RECORDS: u64 = 1_000;
/// Number of bytes between two marks of long records.
const MARK_BYTES: u64 = 128 * 1024;
/// Maximum number of phases in an index.
const MAX_PHASES: usize = 200;
/// Maximum length of the name of a phase, in characters.
const MAX_NAME: usize = 100;
/// Number of bytes that a read holds in memory. A longer line is no record.
const WINDOW: u64 = 1 << 20;

/// Position from which lines are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LineCursor {
    /// Offset of the next byte.
    pub offset: u64,
    /// True if the cursor is within a line that is too long for a record.
    is_within_line: bool,
}

impl LineCursor {
    /// Starts at the beginning of a line.
    pub(crate) fn at(offset: u64) -> LineCursor {
        LineCursor { offset, is_within_line: false }
    }
}

/// Place between two records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Offset of the record after the mark.
    pub offset: u64,
    /// Number of the record before the mark.
    pub after: u64,
    /// Styles at the mark.
    pub styles: Styles,
}

/// Consecutive records of one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phase {
    pub name: String,
    /// Number of its first record.
    pub first: u64,
    /// Number of its last record.
    pub last: u64,
    /// Times of these records, in microseconds since the start of the execution.
    pub times: (u64, u64),
}

/// Index of the complete records of one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogIndex {
    generation: String,
    read: LineCursor,
    marks: Vec<Mark>,
    styles: Styles,
    /// Number of the last record.
    pub last: u64,
    /// Phases, at most [`MAX_PHASES`].
    pub phases: Vec<Phase>,
}

/// Members of a record that the index needs.
#[derive(Deserialize)]
struct Header<'r> {
    n: u64,
    t: u64,
    #[serde(borrow)]
    s: Cow<'r, str>,
    #[serde(borrow)]
    p: Option<Cow<'r, str>>,
    #[serde(borrow)]
    m: Cow<'r, str>,
}

impl LogIndex {
    /// Returns the last mark before the record with a greater number than `n`.
    pub(crate) fn mark(&self, n: u64) -> Mark {
        let next = self.marks.partition_point(|mark| mark.after <= n);
        next.checked_sub(1).and_then(|at| self.marks.get(at)).copied().unwrap_or_default()
    }

    /// Number of the record before the first mark in the last bytes.
    pub(crate) fn first_mark_within(&self, bytes: u64) -> u64 {
        let start = self.read.offset.saturating_sub(bytes);
        let at = self.marks.partition_point(|mark| mark.offset < start);
        self.marks.get(at).map_or(0, |mark| mark.after)
    }

    /// Offset of the end of the indexed records.
    pub(crate) fn end(&self) -> u64 {
        self.read.offset
    }

    /// Adds complete lines that begin at an offset.
    fn add(&mut self, offset: u64, lines: &[u8]) {
        let mut at = offset;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.add_line(at, line);
            at += line.len() as u64;
        }
    }

    fn add_line(&mut self, offset: u64, line: &[u8]) {
        // Numbers of a hostile runner may repeat. Every reader skips these records.
        let Ok(record) = serde_json::from_slice::<Header<'_>>(line) else { return };
        if record.n <= self.last {
            return;
        }
        let mark = self.marks.last().copied().unwrap_or_default();
        let is_far = record.n - mark.after > MARK_RECORDS || offset - mark.offset >= MARK_BYTES;
        if self.marks.is_empty() || is_far {
            self.marks.push(Mark { offset, after: self.last, styles: self.styles });
        }
        self.last = record.n;
        self.add_phase(&record);
        if record.m.contains('\u{1b}') {
            ansi::parse(&record.m, self.styles.of(&record.s), |_, _| {});
        }
    }

    fn add_phase(&mut self, record: &Header<'_>) {
        let Some(name) = record.p.as_deref() else { return };
        let name = name.char_indices().nth(MAX_NAME).map_or(name, |(end, _)| &name[..end]);
        if let Some(phase) = self.phases.last_mut().filter(|phase| phase.name == name) {
            (phase.last, phase.times.1) = (record.n, record.t);
        } else if self.phases.len() < MAX_PHASES {
            let (name, times) = (name.to_owned(), (record.t, record.t));
            self.phases.push(Phase { name, first: record.n, last: record.n, times });
        }
    }
}

/// Index of each log in use, the most recently used one last.
pub(super) type Indexes = Vec<(ExecutionId, Arc<Mutex<LogIndex>>)>;

impl LogStore {
    /// Returns the index of all complete records of a stream. The caller releases it before it reads
    /// the stream.
    pub(crate) async fn index(
        &self,
        execution: ExecutionId,
    ) -> Result<OwnedMutexGuard<LogIndex>, LogError> {
        let mut index = self.cached_index(execution).lock_owned().await;
        let (generation, length) = self.generation(execution).await?;
        if index.generation != generation {
            *index = LogIndex { generation, ..LogIndex::default() };
        }
        let is_far_behind = index.read.offset + WINDOW < length;
        let _turn = match is_far_behind {
            true => {
                let turn = self.rebuilds.acquire().await;
                Some(turn.map_err(|_| LogError::Unwritten("the server is stopping".into()))?)
            }
            false => None,
        };
        self.extend(execution, &mut index, length).await?;
        Ok(index)
    }

    async fn extend(
        &self,
        execution: ExecutionId,
        index: &mut LogIndex,
        length: u64,
    ) -> Result<(), LogError> {
        loop {
            let mut cursor = index.read;
            let Some((offset, lines)) = self.lines(execution, &mut cursor, length).await? else {
                return Ok(());
            };
            index.add(offset, &lines);
            index.read = cursor;
        }
    }

    /// Reads the next complete lines before `end`, and their offset. Returns `None` if no complete
    /// line remains.
    pub(crate) async fn lines(
        &self,
        execution: ExecutionId,
        cursor: &mut LineCursor,
        end: u64,
    ) -> Result<Option<(u64, Bytes)>, LogError> {
        while cursor.offset < end {
            let window = cursor.offset..end.min(cursor.offset + WINDOW);
            let is_full = window.end - window.start == WINDOW;
            let bytes = self.read(execution, window).await?;
            let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let first = match cursor.is_within_line {
                true => bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1),
                false => 0,
            };
            match complete {
                0 if !is_full || bytes.is_empty() => return Ok(None),
                0 => (cursor.offset, cursor.is_within_line) = (cursor.offset + WINDOW, true),
                complete => {
                    let offset = cursor.offset + first as u64;
                    *cursor = LineCursor::at(cursor.offset + complete as u64);
                    if first < complete {
                        return Ok(Some((offset, bytes.slice(first..complete))));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Identity of the stored first chunk, and the length of the stream.
    async fn generation(&self, execution: ExecutionId) -> Result<(String, u64), LogError> {
        // A chunk that is stored again is a row of another transaction.
        let row = sqlx::query(
            "select coalesce((select xmin::text from job_log where execution = $1 and start_offset = 0), '') as generation, \
             coalesce((select end_offset from job_log where execution = $1 order by start_offset desc limit 1), 0) as length",
        )
        .bind(execution.to_string())
        .fetch_one(&self.pool)
        .await?;
        let length: i64 = row.try_get("length")?;
        Ok((row.try_get("generation")?, length.cast_unsigned()))
    }

    fn cached_index(&self, execution: ExecutionId) -> Arc<Mutex<LogIndex>> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = indexes.iter().position(|(of, _)| *of == execution);
        let entry = match at {
            Some(at) => indexes.remove(at),
            None => (execution, Arc::default()),
        };
        if indexes.len() >= MAX_INDEXES {
            indexes.remove(0);
        }
        let index = Arc::clone(&entry.1);
        indexes.push(entry);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u64, phase: &str, text: &str) -> Vec<u8> {
        let record = serde_json::json!({"n": n, "t": n * 10, "s": "o", "p": phase, "m": text});
        [record.to_string().as_bytes(), b"\n"].concat()
    }

    #[test]
    fn index_has_marks_styles_and_phases() {
        // given 2,500 records in two phases, of which one selects a color
        let mut index = LogIndex::default();
        let (mut offset, mut offsets) = (0, vec![]);
        for n in 1..=2_500 {
            let phase = if n < 2_000 { "init" } else { "apply" };
            let text = if n == 700 { "\u{1b}[31mred" } else { "text" };
            offsets.push(offset);
            let line = line(n, phase, text);
            index.add(offset, &line);
            offset += line.len() as u64;
        }
        // then each mark is at a record, and has the style of the text before
        assert_eq!((index.mark(0).after, index.mark(0).offset), (0, 0));
        let mark = index.mark(1_700);
        assert_eq!(mark.offset, offsets[mark.after as usize]);
        assert!(mark.after <= 1_700 && mark.after > 700, "{mark:?}");
        let mut styles = mark.styles;
        assert_eq!((styles.of("o").color, styles.of("e").color), (Some(1), None));
        let phases: Vec<_> = index
            .phases
            .iter()
            .map(|phase| (phase.name.as_str(), phase.first, phase.last))
            .collect();
        assert_eq!(phases, [("init", 1, 1_999), ("apply", 2_000, 2_500)]);
    }

    #[test]
    fn lines_that_are_no_records_are_skipped() {
        let mut index = LogIndex::default();
        index.add(0, b"garbage\n{\"n\":1}\n");
        index.add(20, &line(3, "init", "text"));
        index.add(90, &line(2, "init", "a repeated number"));
        assert_eq!((index.last, index.marks.len(), index.mark(9).offset), (3, 1, 20));
        for n in 4..1_000 {
            index.add(n * 100, &line(n, &format!("{n}{}", "é".repeat(500)), "text"));
        }
        assert_eq!(index.phases.len(), MAX_PHASES);
        assert!(index.phases.iter().all(|phase| phase.name.chars().count() <= MAX_NAME));
    }
}
