//! Verifies the reports of runners in the log. The state of the reports is updated in order; their
//! signatures are checked concurrently.
use proof::report::{ReportCounts, ReportError, ReportEvent, Reports, Signature};
use tokio::task::JoinSet;

use super::{Difference, VerifyError};

/// Number of waiting signatures at which a task starts to check them.
const BATCH: usize = 256;
/// Maximum number of signature tasks that run concurrently.
const TASKS: usize = 16;
/// Maximum number of findings in the result.
const MAX_FINDINGS: usize = 100;

/// Result for the reports of runners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    /// Number of reports, and of unsigned ones.
    pub tally: ReportCounts,
    /// Forged reports by position, at most 100. The log itself may still be intact, because a
    /// server can append forged reports.
    pub wrong: Vec<Difference>,
}

/// Verifies reports while the log is read.
pub(super) struct ReportVerifier {
    reports: Reports,
    wrong: Vec<ReportError>,
    waiting: Vec<Signature>,
    tasks: JoinSet<Vec<ReportError>>,
}

impl ReportVerifier {
    pub fn new(from_start: bool) -> ReportVerifier {
        let reports = Reports::new(from_start);
        ReportVerifier { reports, wrong: vec![], waiting: vec![], tasks: JoinSet::new() }
    }

    /// Processes the report-related events of the next segment.
    pub async fn take(
        &mut self,
        report_events: Vec<(u64, ReportEvent)>,
    ) -> Result<(), VerifyError> {
        for (position, report_event) in report_events {
            match self.reports.take(position, report_event) {
                Ok(signatures) => self.waiting.extend(signatures),
                Err(wrong) => self.add_error(wrong),
            }
            if self.waiting.len() >= BATCH {
                self.spawn_batch();
            }
            // Waits for tasks, so that the memory never holds the signatures of a whole log.
            while self.tasks.len() > TASKS {
                self.next_batch().await?;
            }
        }
        Ok(())
    }

    /// Waits for one batch. Returns false if there is none.
    async fn next_batch(&mut self) -> Result<bool, VerifyError> {
        let Some(found) = self.tasks.join_next().await else { return Ok(false) };
        self.wrong.extend(found.map_err(|error| sqlx::Error::Io(error.into()))?);
        self.wrong.sort_unstable();
        self.wrong.truncate(MAX_FINDINGS);
        Ok(true)
    }

    fn spawn_batch(&mut self) {
        let batch = std::mem::take(&mut self.waiting);
        self.tasks.spawn(async move { Signature::check_all(&batch).take(MAX_FINDINGS).collect() });
    }

    fn add_error(&mut self, wrong: ReportError) {
        if self.wrong.len() < MAX_FINDINGS {
            self.wrong.push(wrong);
        }
    }

    pub async fn end(mut self) -> Result<Reported, VerifyError> {
        self.spawn_batch();
        while self.next_batch().await? {}
        self.wrong.sort_unstable();
        let wrong = self
            .wrong
            .into_iter()
            .map(|ReportError { position, what }| Difference { position, what });
        Ok(Reported { tally: self.reports.tally(), wrong: wrong.collect() })
    }
}
