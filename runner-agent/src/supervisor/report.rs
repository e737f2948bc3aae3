//! Reads the shim's reports in order, and tracks which of them the server has.
use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use domain::ids::ExecutionId;
use schemas::runner::{Report, ReportBody};
use serde_json::Value;
use tracing::warn;

use crate::data::JobDir;

/// Number of times that the server may request earlier reports again.
const REWINDS: u32 = 3;
/// Number of used sequence numbers that the supervisor's final report may skip: more than a shim
/// has reports.
const TAKEN: u32 = 256;

/// Reports of one execution.
#[derive(Debug)]
pub struct Reports {
    execution: ExecutionId,
    path: PathBuf,
    read: u64,
    /// Number of the last line that was read.
    line: u64,
    told: u64,
    waiting: VecDeque<Report>,
    rewinds: u32,
    /// The supervisor wrote the final report, so later reports of the shim are dropped.
    own_end: bool,
    /// Number of used sequence numbers that the final report has skipped.
    taken: u32,
    /// Outputs that the server has, by name.
    outputs: BTreeMap<String, Value>,
}

impl Reports {
    /// Starts with no report read or sent. Sending a report twice is harmless.
    pub fn of(execution: ExecutionId, dir: &JobDir) -> Self {
        let (path, waiting) = (dir.reports(), VecDeque::new());
        let (read, line, told, rewinds, taken) = (0, 0, 0, 0, 0);
        let (own_end, outputs) = (false, BTreeMap::new());
        Reports { execution, path, read, line, told, waiting, rewinds, own_end, taken, outputs }
    }

    /// Returns the sequence number after all reports that were read.
    pub fn next_seq(&self) -> u64 {
        self.line + 1
    }

    /// Appends a final report of the supervisor to the shim's reports.
    pub fn end_with(&mut self, last: Report) {
        self.waiting.push_back(last);
        self.own_end = true;
    }

    /// Replaces all unsent reports with a final report of the supervisor.
    pub fn replace_with(&mut self, last: Report) {
        self.waiting.clear();
        self.end_with(last);
    }

    /// Returns whether the supervisor wrote the final report.
    pub fn end_is_ours(&self) -> bool {
        self.own_end
    }

    /// Returns the report that ends the execution, if it is known.
    pub fn end(&self) -> Option<&Report> {
        self.waiting.back().filter(|report| self.is_end(report))
    }

    fn is_end(&self, report: &Report) -> bool {
        match &report.body {
            ReportBody::Finished(_) => true,
            // A shim that refuses a job reports the refusal and then its final report.
            ReportBody::Refused { .. } => self.are_ours(),
            ReportBody::Started {}
            | ReportBody::Phase { .. }
            | ReportBody::Plan(_)
            | ReportBody::Outputs { .. }
            | ReportBody::State(_)
            | ReportBody::Artifact(_)
            | ReportBody::CancelProgress { .. } => false,
        }
    }

    /// Returns whether there is no report of a shim, so that all reports are the supervisor's.
    pub fn are_ours(&self) -> bool {
        self.read == 0
    }

    /// Reads new reports of the shim, and returns the last phase among them.
    pub fn read(&mut self) -> io::Result<Option<String>> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A line without a newline is still being written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let mut phase = None;
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.line += 1;
            let report = serde_json::from_slice(line).unwrap_or_else(|error| {
                // From a later version, or damaged. A placeholder keeps its sequence number, so
                // that later reports can be sent.
                warn!(execution.id = %self.execution, %error, "Cannot parse a report, sending a placeholder");
                let body = ReportBody::Phase { name: "unreadable report".into() };
                Report { execution: self.execution, seq: self.line, body, log_len: 0, end: None }
            });
            if let ReportBody::Phase { name } = &report.body {
                phase = Some(name.clone());
            }
            if !self.own_end
                && report.seq > self.told
                && self.waiting.back().is_none_or(|last| last.seq < report.seq)
            {
                self.waiting.push_back(report);
            }
        }
        self.read += whole as u64;
        Ok(phase)
    }

    /// Returns the next report to send.
    pub fn next(&self) -> Option<Report> {
        self.waiting.front().cloned()
    }

    /// Returns the next report, if it is the final one.
    pub fn last_word(&self) -> Option<Report> {
        self.next().filter(|report| matches!(report.body, ReportBody::Finished(_)))
    }

    /// Returns the outputs that the server has.
    pub fn outputs(&self) -> &BTreeMap<String, Value> {
        &self.outputs
    }

    /// Records that the server has the reports up to this number.
    pub fn told(&mut self, seq: u64) {
        let said = self.waiting.iter().filter(|report| report.seq <= seq);
        for report in said {
            if let ReportBody::Outputs { outputs } = &report.body {
                self.outputs.extend(outputs.clone());
            }
        }
        self.pass(seq);
    }

    /// Drops the reports up to this number.
    fn pass(&mut self, seq: u64) {
        self.told = seq;
        self.waiting.retain(|report| report.seq > seq);
    }

    /// Skips the next report because the server has another one with its number. A final report of
    /// the shim is not skipped; one of the supervisor takes the next number.
    ///
    /// Returns `false` if neither is possible.
    pub fn give_way(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        if !self.is_end(&next) {
            self.pass(next.seq);
            return true;
        }
        let may = self.own_end && self.taken < TAKEN;
        if may {
            self.taken += 1;
            self.waiting.iter_mut().for_each(|last| last.seq += 1);
        }
        may
    }

    /// Reads the reports again to send them from this number on. Returns `false` if the number is
    /// out of range or the limit is reached.
    pub fn rewind(&mut self, expected: u64) -> bool {
        let sense = (1..=self.told).contains(&expected) && !self.are_ours();
        if !sense || self.rewinds == REWINDS {
            return false;
        }
        self.rewinds += 1;
        (self.read, self.line, self.told) = (0, 0, expected - 1);
        (self.own_end, self.taken) = (false, 0);
        self.waiting.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::data::{self, Data};

    fn line(seq: u64) -> String {
        let name = format!("phase {seq}");
        let execution = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let report =
            Report { execution, seq, body: ReportBody::Phase { name }, log_len: 0, end: None };
        serde_json::to_string(&report).unwrap()
    }

    fn reports() -> (tempfile::TempDir, JobDir, Reports) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Data::open(temp.path()).unwrap();
        let dir = dir.job("exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap());
        dir.create().unwrap();
        let execution = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let reports = Reports::of(execution, &dir);
        (temp, dir, reports)
    }

    fn write(dir: &JobDir, text: &str) {
        data::append(&dir.reports()).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn waiting(reports: &Reports) -> Vec<u64> {
        reports.waiting.iter().map(|report| report.seq).collect()
    }

    #[test]
    fn a_line_that_is_being_written_waits_for_its_end() {
        let (_temp, dir, mut reports) = reports();
        assert_eq!(reports.read().unwrap(), None);
        let second = line(2);
        write(&dir, &format!("{}\n{}", line(1), &second[..20]));
        assert_eq!(reports.read().unwrap().as_deref(), Some("phase 1"));
        assert_eq!(waiting(&reports), [1]);
        write(&dir, &format!("{}\n", &second[20..]));
        assert_eq!(reports.read().unwrap().as_deref(), Some("phase 2"));
        assert_eq!(waiting(&reports), [1, 2]);
    }

    #[test]
    fn a_line_that_is_not_understood_does_not_hide_what_comes_after_it() {
        let (_temp, dir, mut reports) = reports();
        let danced = r#"{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":2,"type":"danced"}"#;
        write(&dir, &format!("{}\n{danced}\n{}\n", line(1), line(3)));
        assert_eq!(reports.read().unwrap().as_deref(), Some("phase 3"));
        assert_eq!(waiting(&reports), [1, 2, 3]);
        reports.told(1);
        assert!(reports.give_way(), "the server has another report with this number");
        assert_eq!(waiting(&reports), [3]);
    }

    fn last_word(seq: u64) -> Report {
        let text = format!(
            r#"{{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":{seq},"type":"finished",
            "payload":{{"outcome":"failed","log_len":0,"log_sha256":"ab"}},"log_len":0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_last_word_of_our_own_takes_the_first_number_that_is_free() {
        let (_temp, _dir, mut reports) = reports();
        reports.end_with(last_word(1));
        for taken in 1..=3 {
            assert_eq!(waiting(&reports), [taken]);
            assert!(reports.give_way());
        }
        assert_eq!(reports.end().unwrap().seq, 4);
        for _ in 3..TAKEN {
            assert!(reports.give_way());
        }
        assert!(!reports.give_way(), "no execution has that many reports");
    }

    #[test]
    fn a_last_word_of_the_shims_stands_where_it_is() {
        let (_temp, dir, mut reports) = reports();
        let last = serde_json::to_string(&last_word(1)).unwrap();
        write(&dir, &format!("{last}\n"));
        reports.read().unwrap();
        assert!(!reports.give_way());
        assert_eq!(waiting(&reports), [1]);
    }

    #[test]
    fn nothing_comes_after_a_last_word_that_was_put_in_place_of_the_shims() {
        let (_temp, dir, mut reports) = reports();
        write(&dir, &format!("{}\n{}\n", line(1), line(2)));
        reports.read().unwrap();
        assert_eq!(reports.end(), None);
        reports.replace_with(last_word(1));
        write(&dir, &format!("{}\n", line(3)));
        reports.read().unwrap();
        assert_eq!(waiting(&reports), [1]);
        assert!(reports.end_is_ours() && reports.last_word().is_some());
    }

    #[test]
    fn a_server_that_forgot_hears_it_again_but_not_for_ever() {
        let (_temp, dir, mut reports) = reports();
        write(&dir, &format!("{}\n{}\n{}\n", line(1), line(2), line(3)));
        reports.read().unwrap();
        reports.told(1);
        reports.told(2);
        assert!(!reports.rewind(9), "the server cannot request a number that was never sent");
        for _ in 0..REWINDS {
            assert!(reports.rewind(2));
            reports.read().unwrap();
            assert_eq!(waiting(&reports), [2, 3]);
            reports.told(2);
        }
        assert!(!reports.rewind(2));
    }
}
