//! Reads a page of records of a log, and searches it.
use bytes::Bytes;
use schemas::{
    ansi::{self, Styles},
    control::jobs::LogRecord,
};

use super::AttemptLog;
use crate::{
    logs::{LineCursor, LogIndex, Phase},
    problem::Problem,
};

/// Maximum number of log bytes of a page.
const MAX_BYTES: u64 = 1 << 20;
/// Number of records before a requested one.
const CONTEXT: u64 = 20;
/// Maximum number of log bytes that one search reads.
const SEARCHED_BYTES: u64 = 16 << 20;
/// Maximum number of matches that one search returns.
const MATCHES: usize = 100;

/// Start of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PageStart {
    /// The newest records.
    Newest,
    /// Records after this number.
    After(u64),
    /// Some records before this number, then this record.
    Around(u64),
}

/// Some consecutive records of a log.
#[derive(Debug, Default)]
pub(crate) struct LogRecords {
    pub records: Vec<LogRecord>,
    /// Styles at the first record.
    pub styles: Styles,
    /// True if later records exist.
    pub more: bool,
    /// Number of the last record of the log.
    pub last: u64,
    /// Phases of the log.
    pub phases: Vec<Phase>,
}

/// Records whose text contains a searched text.
#[derive(Debug, Default)]
pub(crate) struct LogMatches {
    pub records: Vec<LogRecord>,
    /// Number of the last searched record.
    pub searched_through: u64,
    /// True if later records exist.
    pub more: bool,
}

impl AttemptLog {
    /// Reads at most `limit` records.
    pub(crate) async fn page(self, start: PageStart, limit: u64) -> Result<LogRecords, Problem> {
        let page = self.read(start, limit).await?;
        let ends_before = |n| page.records.last().is_some_and(|record| record.n < n);
        match start {
            // Long records before the requested one leave no room for it.
            PageStart::Around(n) if page.more && ends_before(n) => {
                self.read(PageStart::After(n - 1), limit).await
            }
            PageStart::Around(_) | PageStart::Newest | PageStart::After(_) => Ok(page),
        }
    }

    async fn read(&self, start: PageStart, limit: u64) -> Result<LogRecords, Problem> {
        let index = self.app.logs.index(self.execution).await?;
        let after = match start {
            PageStart::After(n) => n,
            PageStart::Around(n) => n.saturating_sub(CONTEXT + 1),
            PageStart::Newest => newest(&index, limit),
        };
        let (mark, end) = (index.mark(after), index.end());
        let (last, phases) = (index.last, index.phases.clone());
        drop(index);
        let mut page = LogRecords { last, phases, styles: mark.styles, ..LogRecords::default() };
        let mut reader = Reader { number: mark.after, cursor: LineCursor::at(mark.offset) };
        let mut bytes = 0;
        'pages: while let Some(lines) = reader.next(self, end).await? {
            for (record, length) in reader.records(&lines) {
                if record.n <= after {
                    ansi::parse(&record.m, page.styles.of(&record.s), |_, _| {});
                    continue;
                }
                bytes += length;
                let is_full = page.records.len() as u64 == limit || bytes > MAX_BYTES;
                if is_full && !page.records.is_empty() {
                    page.more = true;
                    break 'pages;
                }
                page.records.push(record);
            }
        }
        Ok(page)
    }

    /// Searches the records after a number for a text, without regard to the case of letters.
    pub(crate) async fn search(self, text: &str, after: u64) -> Result<LogMatches, Problem> {
        let index = self.app.logs.index(self.execution).await?;
        let (mark, end, last) = (index.mark(after), index.end(), index.last);
        drop(index);
        let searched = text.to_lowercase();
        let mut found = LogMatches { searched_through: after, ..LogMatches::default() };
        let mut reader = Reader { number: mark.after, cursor: LineCursor::at(mark.offset) };
        let limit = mark.offset + SEARCHED_BYTES;
        // Each search makes progress, whatever bytes are no records.
        while (reader.cursor.offset < limit || found.searched_through == after)
            && found.records.len() < MATCHES
        {
            let Some(lines) = reader.next(&self, end).await? else { break };
            for (record, _) in reader.records(&lines) {
                if record.n > after && found.records.len() < MATCHES {
                    found.searched_through = record.n;
                    let text = ansi::plain(&record.m);
                    if text.to_lowercase().contains(&searched) {
                        found.records.push(LogRecord { m: text, ..record });
                    }
                }
            }
        }
        found.more = found.searched_through < last;
        Ok(found)
    }
}

/// Number of the record before the newest `limit` records, fewer if they are long.
fn newest(index: &LogIndex, limit: u64) -> u64 {
    let first = index.last.saturating_sub(limit);
    index.first_mark_within(MAX_BYTES).max(first)
}

/// Reads records from a mark on.
struct Reader {
    /// Number of the last read record.
    number: u64,
    cursor: LineCursor,
}

impl Reader {
    async fn next(&mut self, log: &AttemptLog, end: u64) -> Result<Option<Bytes>, Problem> {
        let lines = log.app.logs.lines(log.execution, &mut self.cursor, end).await?;
        Ok(lines.map(|(_, lines)| lines))
    }

    /// Records of complete lines, with the lengths of these lines. Skips lines that are no records:
    /// the server stores what a runner sends without parsing it.
    fn records(&mut self, lines: &Bytes) -> impl Iterator<Item = (LogRecord, u64)> {
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines.filter_map(move |line| {
            let record: LogRecord = serde_json::from_slice(line).ok()?;
            if record.n <= self.number {
                return None;
            }
            self.number = record.n;
            Some((record, line.len() as u64))
        })
    }
}
