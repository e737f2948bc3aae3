//! Log of one execution: one record per line. The agent uploads the file byte for byte.
//!
//! ```text
//! log.ndjson   record … record │ the beginning, up to its limit
//! tail.0/1     record … record │ later records: two files in turn, the older one is dropped
//! at the end   log.ndjson ◀── {"omitted":BYTES} ◀── the last records of the tail
//! ```
//!
//! A full disk can lose log bytes, but does not stop the job. [`FinalizedLog`] has the number of
//! lost bytes.
use std::{
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use schemas::{
    moment,
    runner::{
        LogRecord, LogStream,
        log::{HEAD_BYTES, LINE_BYTES, TAIL_BYTES},
    },
};
use sha2::{Digest as _, Sha256};

use super::tail::Tail;
use crate::{data, data::JobDir, host};

/// Writer of the log of one execution.
pub struct Log {
    file: File,
    began: Instant,
    written: Instant,
    next: u64,
    phase: Option<String>,
    length: u64,
    hash: Sha256,
    head_limit: u64,
    tail: Option<Tail>,
    tail_limit: u64,
    dir: PathBuf,
    dirty: bool,
}

/// Length and digest of a finalized log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalizedLog {
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Number of bytes that the log does not contain.
    pub omitted: u64,
}

impl Log {
    /// Begins a log that keeps about `keep` bytes.
    pub fn begin(dir: &JobDir, keep: u64) -> io::Result<Self> {
        let now = Instant::now();
        let keep = keep.clamp(64 * 1024, HEAD_BYTES + TAIL_BYTES);
        let tail_limit = (keep / 4).min(TAIL_BYTES);
        let mut log = Log {
            file: data::append(&dir.log())?,
            began: now,
            written: now,
            next: 1,
            phase: None,
            length: 0,
            hash: Sha256::new(),
            head_limit: (keep - tail_limit).min(HEAD_BYTES),
            tail: None,
            tail_limit,
            dir: dir.root().into(),
            dirty: false,
        };
        data::sync_parent(&dir.log())?;
        log.write_shim_record(&moment::text(&host::now()));
        Ok(log)
    }

    /// Returns the number of bytes that can be sent now.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the time since the last output of a child.
    pub fn time_since_output(&self) -> Duration {
        self.written.elapsed()
    }

    /// Starts a phase. Later records belong to it.
    pub fn begin_phase(&mut self, phase: &str) {
        self.phase = Some(phase.into());
    }

    /// Adds a record of the shim.
    pub fn write_shim_record(&mut self, text: &str) {
        self.record(LogStream::Shim, text, false);
    }

    /// Adds lines with their newlines. Text without a final newline continues in the next record.
    pub fn lines(&mut self, stream: LogStream, text: &[u8]) {
        self.written = Instant::now();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let whole = line.strip_suffix(b"\n");
            self.line(stream, whole.unwrap_or(line), whole.is_none());
        }
    }

    fn line(&mut self, stream: LogStream, line: &[u8], continues: bool) {
        let text = String::from_utf8_lossy(line);
        let mut rest = text.as_ref();
        while rest.len() > LINE_BYTES {
            let (part, more) = rest.split_at(rest.floor_char_boundary(LINE_BYTES));
            self.record(stream, part, true);
            rest = more;
        }
        self.record(stream, rest, continues);
    }

    fn record(&mut self, s: LogStream, text: &str, c: bool) {
        let t = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (n, p) = (self.next, self.phase.clone());
        self.next += 1;
        self.write(&LogRecord { n, t, s, p, m: text.into(), c, omitted: None });
    }

    fn write(&mut self, record: &LogRecord) {
        // A record consists of strings and numbers, so this never fails.
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        let fits = self.length + line.len() as u64 <= self.head_limit;
        if self.tail.is_none() && fits && self.append(&line) {
            return;
        }
        let (dir, limit) = (&self.dir, self.tail_limit);
        self.tail.get_or_insert_with(|| Tail::new(dir, limit, record.n)).push(&line);
    }

    /// Appends all bytes or none.
    fn append(&mut self, bytes: &[u8]) -> bool {
        if self.file.write_all(bytes).is_err() {
            let _best_effort = self.file.set_len(self.length);
            return false;
        }
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        self.dirty = true;
        true
    }

    /// Syncs the written bytes to disk.
    pub fn sync(&mut self) {
        if std::mem::take(&mut self.dirty) {
            // A failed sync is repeated the next time.
            self.dirty = self.file.sync_data().is_err();
        }
    }

    /// Finalizes the log: adds a record with the number of bytes that were left out, then the rest
    /// of the tail.
    pub fn finalize(&mut self) -> FinalizedLog {
        let mut omitted = 0;
        if let Some(tail) = self.tail.take() {
            let (first, t) = (tail.first, self.began.elapsed().as_micros());
            let (kept, left_out) = tail.end();
            omitted = left_out;
            if omitted > 0 {
                let record = LogRecord {
                    n: first,
                    t: u64::try_from(t).unwrap_or(u64::MAX),
                    s: LogStream::Shim,
                    p: None,
                    m: format!("… {omitted} bytes omitted …"),
                    c: false,
                    omitted: Some(omitted),
                };
                let mut line = serde_json::to_vec(&record).unwrap_or_default();
                line.push(b'\n');
                self.append(&line);
            }
            if !self.append(&kept) {
                omitted += kept.len() as u64;
            }
        }
        self.sync();
        FinalizedLog {
            length: self.length,
            sha256: hex::encode(self.hash.clone().finalize()),
            omitted,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::Data;

    fn begin(keep: u64) -> (tempfile::TempDir, JobDir, Log) {
        let temp = tempfile::tempdir().unwrap();
        let data = Data::open(temp.path()).unwrap();
        let dir = data.job("exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap());
        dir.create().unwrap();
        let log = Log::begin(&dir, keep).unwrap();
        (temp, dir, log)
    }

    fn records(dir: &JobDir, finalized: &FinalizedLog) -> Vec<LogRecord> {
        let bytes = fs::read(dir.log()).unwrap();
        assert_eq!(bytes.len() as u64, finalized.length);
        assert_eq!(hex::encode(Sha256::digest(&bytes)), finalized.sha256);
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn the_first_record_has_the_time_and_every_record_has_a_number() {
        let (_temp, dir, mut log) = begin(HEAD_BYTES);
        log.begin_phase("init");
        log.lines(LogStream::Out, b"one\ntwo\xff\n");
        log.lines(LogStream::Err, b"three\n");
        let finalized = log.finalize();
        let records = records(&dir, &finalized);
        assert!(records[0].m.ends_with('Z') && records[0].s == LogStream::Shim);
        assert_eq!(records.iter().map(|record| record.n).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(records[2].m, "two\u{fffd}");
        assert_eq!(records[3].p.as_deref(), Some("init"));
        assert_eq!(finalized.omitted, 0);
    }

    #[test]
    fn a_long_line_continues_in_the_next_record() {
        let (_temp, dir, mut log) = begin(HEAD_BYTES);
        let line = "é".repeat(LINE_BYTES);
        log.lines(LogStream::Out, format!("{line}\n").as_bytes());
        let finalized = log.finalize();
        let records = &records(&dir, &finalized)[1..];
        assert!(records.iter().all(|record| record.m.len() <= LINE_BYTES));
        assert_eq!(records.iter().filter(|record| !record.c).count(), 1);
        assert_eq!(records.iter().map(|record| record.m.as_str()).collect::<String>(), line);
    }

    #[test]
    fn the_middle_of_a_long_log_is_omitted_and_its_size_is_recorded() {
        let (_temp, dir, mut log) = begin(256 * 1024);
        for number in 0..20_000 {
            log.lines(LogStream::Out, format!("line {number}\n").as_bytes());
        }
        let finalized = log.finalize();
        assert!(finalized.length <= 256 * 1024 + 200, "{}", finalized.length);
        let records = records(&dir, &finalized);
        assert_eq!(records.last().unwrap().m, "line 19999");
        let gap = records.iter().position(|record| record.omitted.is_some()).unwrap();
        assert_eq!(records[gap].omitted, Some(finalized.omitted));
        assert_eq!(records[gap].n, records[gap - 1].n + 1);
        assert!(records.windows(2).all(|pair| pair[0].n < pair[1].n));
        // Each record is in the log or was left out. The timestamp of a record that was left out is
        // unknown.
        let kept: std::collections::BTreeSet<u64> = records
            .iter()
            .filter(|record| record.omitted.is_none())
            .map(|record| record.n)
            .collect();
        let bytes = |t: u64| -> u64 {
            let size = |n: u64| {
                let (s, m) = (LogStream::Out, format!("line {}", n - 2));
                let record = LogRecord { n, t, s, p: None, m, c: false, omitted: None };
                serde_json::to_vec(&record).unwrap().len() as u64 + 1
            };
            (2..=20_001).filter(|n| !kept.contains(n)).map(size).sum()
        };
        let (least, most) = (bytes(0), bytes(99_999_999));
        assert!(
            (least..=most).contains(&finalized.omitted),
            "{least} {} {most}",
            finalized.omitted
        );
    }

    #[test]
    fn a_log_that_fits_in_head_and_tail_loses_nothing() {
        let (_temp, dir, mut log) = begin(256 * 1024);
        for number in 0..4_600 {
            log.lines(LogStream::Out, format!("line {number:06}\n").as_bytes());
        }
        assert!(log.tail.is_some());
        let finalized = log.finalize();
        assert_eq!(finalized.omitted, 0);
        let records = records(&dir, &finalized);
        assert!(records.windows(2).all(|pair| pair[0].n + 1 == pair[1].n));
        assert_eq!(records.len(), 4_601);
    }
}
