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
const MAX_REWINDS: u32 = 3;
/// Number of used sequence numbers that the supervisor's final report may skip. A shim usually
/// writes fewer reports.
const MAX_SKIPPED_NUMBERS: u32 = 256;

/// Reports of one execution.
#[derive(Debug)]
pub struct ReportQueue {
    execution: ExecutionId,
    path: PathBuf,
    read_bytes: u64,
    /// Number of the last line that was read.
    last_line: u64,
    acknowledged: u64,
    unsent: VecDeque<Report>,
    rewinds: u32,
    /// True if the supervisor wrote the final report, so later reports of the shim are dropped.
    has_own_final_report: bool,
    /// Number of used sequence numbers that the final report has skipped.
    skipped_numbers: u32,
    /// Outputs that the server has, by name.
    outputs: BTreeMap<String, Value>,
}

impl ReportQueue {
    /// Creates a queue that has read and sent no report. The server ignores a report that it has.
    pub fn of(execution: ExecutionId, dir: &JobDir) -> Self {
        let (path, unsent) = (dir.reports(), VecDeque::new());
        let (read_bytes, last_line, acknowledged, rewinds, skipped_numbers) = (0, 0, 0, 0, 0);
        let (has_own_final_report, outputs) = (false, BTreeMap::new());
        ReportQueue {
            execution,
            path,
            read_bytes,
            last_line,
            acknowledged,
            unsent,
            rewinds,
            has_own_final_report,
            skipped_numbers,
            outputs,
        }
    }

    /// Returns the sequence number after all reports that were read.
    pub fn next_seq(&self) -> u64 {
        self.last_line + 1
    }

    /// Appends a final report of the supervisor to the shim's reports.
    pub fn append_final_report(&mut self, last: Report) {
        self.unsent.push_back(last);
        self.has_own_final_report = true;
    }

    /// Replaces all unsent reports with a final report of the supervisor.
    pub fn replace_with_final_report(&mut self, last: Report) {
        self.unsent.clear();
        self.append_final_report(last);
    }

    /// Returns whether the supervisor wrote the final report.
    pub fn is_final_report_own(&self) -> bool {
        self.has_own_final_report
    }

    /// Returns the report that ends the execution, if it is known.
    pub fn ending_report(&self) -> Option<&Report> {
        self.unsent.back().filter(|report| self.is_end(report))
    }

    fn is_end(&self, report: &Report) -> bool {
        match &report.body {
            ReportBody::Finished(_) => true,
            // A shim that refuses a job reports the refusal and then its final report.
            ReportBody::Refused { .. } => self.has_no_shim_report(),
            ReportBody::Started { .. }
            | ReportBody::Phase { .. }
            | ReportBody::Plan(_)
            | ReportBody::Outputs { .. }
            | ReportBody::State(_)
            | ReportBody::Artifact(_)
            | ReportBody::Checks { .. }
            | ReportBody::CancelProgress { .. } => false,
        }
    }

    /// Returns whether no report of a shim was read, so that all reports are the supervisor's.
    pub fn has_no_shim_report(&self) -> bool {
        self.read_bytes == 0
    }

    /// Reads new reports of the shim, and returns the last phase among them.
    pub fn read(&mut self) -> io::Result<Option<String>> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A line without a newline is still being written.
        let complete_bytes =
            text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let mut phase = None;
        for line in
            text[..complete_bytes].split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
        {
            self.last_line += 1;
            let report = serde_json::from_slice(line).unwrap_or_else(|error| {
                // The report is damaged or of a later version. A placeholder keeps its sequence
                // number, so that later reports can be sent.
                warn!(execution.id = %self.execution, %error, "Cannot parse a report; the runner sends a placeholder");
                let body = ReportBody::Phase { name: "unreadable report".into() };
                Report { execution: self.execution, seq: self.last_line, body, log_len: 0, end: None, details: None }
            });
            if let ReportBody::Phase { name } = &report.body {
                phase = Some(name.clone());
            }
            if !self.has_own_final_report
                && report.seq > self.acknowledged
                && self.unsent.back().is_none_or(|last| last.seq < report.seq)
            {
                self.unsent.push_back(report);
            }
        }
        self.read_bytes += complete_bytes as u64;
        Ok(phase)
    }

    /// Returns the next report to send.
    pub fn next(&self) -> Option<Report> {
        self.unsent.front().cloned()
    }

    /// Returns the next report, if it is the final one.
    pub fn final_report(&self) -> Option<Report> {
        self.next().filter(|report| matches!(report.body, ReportBody::Finished(_)))
    }

    /// Returns the outputs that the server has.
    pub fn outputs(&self) -> &BTreeMap<String, Value> {
        &self.outputs
    }

    /// Records that the server has the reports up to this number.
    pub fn acknowledge(&mut self, seq: u64) {
        let acknowledged = self.unsent.iter().filter(|report| report.seq <= seq);
        for report in acknowledged {
            if let ReportBody::Outputs { outputs, .. } = &report.body {
                self.outputs.extend(outputs.clone());
            }
        }
        self.drop_through(seq);
    }

    /// Drops the reports up to this number.
    fn drop_through(&mut self, seq: u64) {
        self.acknowledged = seq;
        self.unsent.retain(|report| report.seq > seq);
    }

    /// Handles a sequence number under which the server has another report. Skips the next report,
    /// but not a final report. A final report of the supervisor takes the next number instead.
    ///
    /// Returns `false` for a final report of the shim, and after too many skipped numbers.
    pub fn skip_used_number(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        if !self.is_end(&next) {
            self.drop_through(next.seq);
            return true;
        }
        let may = self.has_own_final_report && self.skipped_numbers < MAX_SKIPPED_NUMBERS;
        if may {
            self.skipped_numbers += 1;
            self.unsent.iter_mut().for_each(|last| last.seq += 1);
        }
        may
    }

    /// Reads the reports again to send them from this number on. Returns `false` if the number is
    /// out of range or the limit is reached.
    pub fn rewind(&mut self, expected: u64) -> bool {
        let is_valid = (1..=self.acknowledged).contains(&expected) && !self.has_no_shim_report();
        if !is_valid || self.rewinds == MAX_REWINDS {
            return false;
        }
        self.rewinds += 1;
        (self.read_bytes, self.last_line, self.acknowledged) = (0, 0, expected - 1);
        (self.has_own_final_report, self.skipped_numbers) = (false, 0);
        self.unsent.clear();
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
        let report = Report {
            execution,
            seq,
            body: ReportBody::Phase { name },
            log_len: 0,
            end: None,
            details: None,
        };
        serde_json::to_string(&report).unwrap()
    }

    fn reports() -> (tempfile::TempDir, JobDir, ReportQueue) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Data::open(temp.path()).unwrap();
        let dir = dir.job("exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap());
        dir.create().unwrap();
        let execution = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let reports = ReportQueue::of(execution, &dir);
        (temp, dir, reports)
    }

    fn write(dir: &JobDir, text: &str) {
        data::append(&dir.reports()).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn unsent(reports: &ReportQueue) -> Vec<u64> {
        reports.unsent.iter().map(|report| report.seq).collect()
    }

    #[test]
    fn an_incomplete_line_is_read_when_it_is_complete() {
        let (_temp, dir, mut reports) = reports();
        assert_eq!(reports.read().unwrap(), None);
        let second = line(2);
        write(&dir, &format!("{}\n{}", line(1), &second[..20]));
        assert_eq!(reports.read().unwrap().as_deref(), Some("phase 1"));
        assert_eq!(unsent(&reports), [1]);
        write(&dir, &format!("{}\n", &second[20..]));
        assert_eq!(reports.read().unwrap().as_deref(), Some("phase 2"));
        assert_eq!(unsent(&reports), [1, 2]);
    }

    #[test]
    fn an_unreadable_line_does_not_hide_later_reports() {
        let (_temp, dir, mut reports) = reports();
        let danced = r#"{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":2,"type":"danced"}"#;
        write(&dir, &format!("{}\n{danced}\n{}\n", line(1), line(3)));
        assert_eq!(reports.read().unwrap().as_deref(), Some("phase 3"));
        assert_eq!(unsent(&reports), [1, 2, 3]);
        reports.acknowledge(1);
        assert!(reports.skip_used_number(), "the server has another report with this number");
        assert_eq!(unsent(&reports), [3]);
    }

    fn final_report(seq: u64) -> Report {
        let text = format!(
            r#"{{"execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":{seq},"type":"finished",
            "payload":{{"outcome":"failed","log_len":0,"log_sha256":"ab"}},"log_len":0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_own_final_report_takes_the_first_free_number() {
        let (_temp, _dir, mut reports) = reports();
        reports.append_final_report(final_report(1));
        for taken in 1..=3 {
            assert_eq!(unsent(&reports), [taken]);
            assert!(reports.skip_used_number());
        }
        assert_eq!(reports.ending_report().unwrap().seq, 4);
        for _ in 3..MAX_SKIPPED_NUMBERS {
            assert!(reports.skip_used_number());
        }
        assert!(!reports.skip_used_number(), "no execution has that many reports");
    }

    #[test]
    fn a_final_report_of_the_shim_keeps_its_number() {
        let (_temp, dir, mut reports) = reports();
        let last = serde_json::to_string(&final_report(1)).unwrap();
        write(&dir, &format!("{last}\n"));
        reports.read().unwrap();
        assert!(!reports.skip_used_number());
        assert_eq!(unsent(&reports), [1]);
    }

    #[test]
    fn no_shim_report_follows_a_replacing_final_report() {
        let (_temp, dir, mut reports) = reports();
        write(&dir, &format!("{}\n{}\n", line(1), line(2)));
        reports.read().unwrap();
        assert_eq!(reports.ending_report(), None);
        reports.replace_with_final_report(final_report(1));
        write(&dir, &format!("{}\n", line(3)));
        reports.read().unwrap();
        assert_eq!(unsent(&reports), [1]);
        assert!(reports.is_final_report_own() && reports.final_report().is_some());
    }

    #[test]
    fn reports_are_sent_again_a_limited_number_of_times() {
        let (_temp, dir, mut reports) = reports();
        write(&dir, &format!("{}\n{}\n{}\n", line(1), line(2), line(3)));
        reports.read().unwrap();
        reports.acknowledge(1);
        reports.acknowledge(2);
        assert!(!reports.rewind(9), "the server cannot request a number that was never sent");
        for _ in 0..MAX_REWINDS {
            assert!(reports.rewind(2));
            reports.read().unwrap();
            assert_eq!(unsent(&reports), [2, 3]);
            reports.acknowledge(2);
        }
        assert!(!reports.rewind(2));
    }
}
