//! Monitors one execution: reads the files of its shim, and sends its reports and its log to the
//! server.
mod report;
mod sign;

use std::{fs, sync::Arc, time::Duration};

use domain::ids::{ExecutionId, JobId};
use schemas::runner::{Exit, Finished, Report, ReportBody};
use tracing::{info, warn};

use super::{
    Agent,
    cleanup::clean_up,
    log_upload::{LogUpload, UploadError},
    recover::{ClaimStage, OpenClaim},
    report_backoff::ReportBackoff,
    report_queue::ReportQueue,
    spawn,
};
use crate::{
    client::ServerRejection,
    data::JobDir,
    host::Process,
    journal::JournalEvent,
    shim::order::{CancelOrder, StopCause},
    tasks,
};

/// Interval between checks of the shim's files.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between log chunks after the end of the job, within the server's rate limit.
const CHUNK_INTERVAL: Duration = Duration::from_millis(60);
/// Pause after the server rejected a report or the runner.
const REJECTION_PAUSE: Duration = Duration::from_secs(30);

/// Number of consecutive failed reads of the reports after which the reports of an ended shim count
/// as lost.
const MAX_FAILED_READS: u32 = 600;
/// Number of consecutive log chunks without progress after which the final report is sent again.
const MAX_STALLED_CHUNKS: u32 = 20;

/// Reason to stop monitoring an execution.
enum MonitorEnd {
    /// The server has the result.
    Reported,
    /// The server rejects the execution or its final report.
    Rejected(ServerRejection),
    /// The shim ended without a final report.
    ShimLost,
}

struct Monitor {
    agent: Arc<Agent>,
    job: JobId,
    execution: ExecutionId,
    claim_id: String,
    dir: JobDir,
    shim: Option<Process>,
    /// Result of the job, if the journal has it.
    exit: Option<Exit>,
    upload: LogUpload,
    reports: ReportQueue,
    backoff: ReportBackoff,
    /// True if the server rejects the signed statement of this execution, so its result is sent
    /// unsigned.
    unsigned: bool,
}

/// Monitors an execution until the server has its result.
pub(super) fn begin(agent: &Arc<Agent>, claim: OpenClaim) {
    begin_with(agent, claim, REJECTION_PAUSE);
}

/// Monitors an execution as [`begin`] does, with this pause after a rejection.
pub(super) fn begin_with(agent: &Arc<Agent>, claim: OpenClaim, pause: Duration) {
    let Some(execution) = claim.execution else { return };
    let shim = match &claim.stage {
        ClaimStage::Spawned(process) => Some(process.clone()),
        ClaimStage::Claiming
        | ClaimStage::Claimed
        | ClaimStage::Refused { .. }
        | ClaimStage::Spawning
        | ClaimStage::Exited(_) => None,
    };
    let running = super::RunningJob {
        execution: Some(execution),
        shim: shim.clone(),
        ..super::RunningJob::default()
    };
    agent.state().running.insert(claim.job, running);
    agent.changed.notify_one();
    let settings = agent.state().log;
    let mut monitor = Monitor {
        agent: Arc::clone(agent),
        job: claim.job,
        execution,
        claim_id: claim.claim_id.clone(),
        dir: agent.data.job(execution),
        shim,
        exit: None,
        upload: LogUpload::new(settings),
        reports: ReportQueue::of(execution, &agent.data.job(execution)),
        backoff: ReportBackoff::new(pause),
        unsigned: false,
    };
    match claim.stage {
        ClaimStage::Refused { by, rule, detail } => {
            let body = ReportBody::Refused { by, rule, detail };
            monitor.reports.replace_with_final_report(Report {
                execution,
                seq: 1,
                body,
                log_len: 0,
                end: None,
                details: None,
            });
        }
        // The reports may be lost, including the report of the start. Without that report, the
        // server concludes from some reasons that the job never started.
        ClaimStage::Exited(exit) if !claim.children.is_empty() => {
            let reason = report::without_not_started_reason(exit.reason);
            monitor.exit = Some(Exit { reason, ..exit });
        }
        ClaimStage::Exited(exit) => monitor.exit = Some(exit),
        ClaimStage::Claiming
        | ClaimStage::Claimed
        | ClaimStage::Spawning
        | ClaimStage::Spawned(_) => {}
    }
    tasks::detach("monitor", async move {
        let end = monitor.run().await;
        monitor.record_end(end);
    });
}

impl Monitor {
    async fn run(&mut self) -> MonitorEnd {
        let (mut failed_reads, mut failed_checks) = (0, 0);
        loop {
            // Check the shim before its files: it writes its last report before it ends.
            let shim_ended = self.has_shim_ended(&mut failed_checks);
            failed_reads = if self.read_reports() { 0 } else { failed_reads + 1 };
            if self.backoff.may_report() {
                match self.send_reports().await {
                    Ok(Some(end)) => return end,
                    Ok(None) => {}
                    Err(rejection) => match self.handle_rejection(rejection) {
                        Some(end) => return end,
                        None if self.backoff.may_report() => continue,
                        None => {}
                    },
                }
            }
            if self.backoff.may_report()
                && let Some(last) = self.reports.final_report()
            {
                match self.send_final_report(&last).await {
                    Some(end) => return end,
                    None => continue,
                }
            }
            if self.backoff.may_send_log() {
                match self.send_log(shim_ended).await {
                    // The server stopped waiting for the log and finalized it. The server still
                    // needs the result.
                    Err(UploadError::Rejected(rejection)) if is_outcome_unknown(&rejection) => {
                        self.upload.stop();
                    }
                    Err(UploadError::Rejected(rejection)) => {
                        if let Some(end) = self.handle_rejection(*rejection) {
                            return end;
                        }
                    }
                    Ok(()) | Err(UploadError::Disk(_)) => {}
                }
            }
            // The final report may be in the part that could not be read.
            let is_read = failed_reads == 0 || failed_reads >= MAX_FAILED_READS;
            if shim_ended && is_read && self.reports.ending_report().is_none() {
                let Some(exit) = self.exit.clone() else { return MonitorEnd::ShimLost };
                self.report_from_journal(exit);
                continue;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns whether the shim has ended. `failed_checks` counts consecutive failed checks.
    fn has_shim_ended(&self, failed_checks: &mut u32) -> bool {
        match self.shim.as_ref().map_or(Ok(false), Process::is_alive) {
            Ok(alive) => {
                *failed_checks = 0;
                !alive
            }
            Err(error) => {
                if failed_checks.is_multiple_of(MAX_FAILED_READS) {
                    warn!(execution.id = %self.execution, %error, "Cannot determine whether the shim runs, retrying");
                }
                *failed_checks += 1;
                false
            }
        }
    }

    /// Builds the final report from the journal. The shim's own report is missing, for example
    /// because the disk was full.
    fn report_from_journal(&mut self, exit: Exit) {
        let log = fs::read(self.dir.log()).unwrap_or_default();
        let detail = "the shim's final report is missing; this result is from the runner's journal";
        let (execution, seq, log_len) = (self.execution, self.reports.next_seq(), log.len() as u64);
        let body = ReportBody::Finished(spawn::final_report(exit, detail.into(), &log));
        self.reports.append_final_report(Report {
            execution,
            seq,
            body,
            log_len,
            end: None,
            details: None,
        });
    }

    /// Reads new reports. Returns `false` if they could not be read.
    fn read_reports(&mut self) -> bool {
        match self.reports.read() {
            Ok(None) => true,
            Ok(phase) => {
                self.update_job(|running| running.phase = phase);
                true
            }
            Err(error) => {
                warn!(execution.id = %self.execution, %error, "Cannot read the reports, retrying");
                false
            }
        }
    }

    /// Sends all reports before the final one, in order.
    async fn send_reports(&mut self) -> Result<Option<MonitorEnd>, ServerRejection> {
        while let Some(report) = self.reports.next() {
            if matches!(report.body, ReportBody::Finished(_)) {
                return Ok(None);
            }
            let refusal = matches!(report.body, ReportBody::Refused { .. });
            if refusal && !self.reports.has_no_shim_report() {
                // A refusal ends the job, so the server must receive the log first.
                match self.send_log(true).await {
                    Ok(()) | Err(UploadError::Disk(_)) => {}
                    Err(UploadError::Rejected(rejection)) => return Err(*rejection),
                }
            }
            self.report(report).await?;
            // The runner's own refusal is the last report: there is no shim and no log.
            if refusal && self.reports.has_no_shim_report() {
                return Ok(Some(MonitorEnd::Reported));
            }
        }
        Ok(None)
    }

    /// Sends the final report first, so that the result is known early. Then sends the rest of the
    /// log and repeats the report until the server has both.
    ///
    /// Returns `None` if another report must be sent first.
    async fn send_final_report(&mut self, last: &Report) -> Option<MonitorEnd> {
        let ReportBody::Finished(Finished { log_len, .. }) = &last.body else {
            return Some(MonitorEnd::ShimLost);
        };
        let mut mismatches = 0;
        loop {
            // Sign each attempt: the identity key may be replaced during the upload.
            let report = Report { end: self.signed(last), ..last.clone() };
            match self.post(&report).await {
                Ok((202, response)) if !self.upload.is_stopped() => {
                    self.upload.continue_at(response.committed_bytes.unwrap_or(0).min(*log_len));
                }
                Ok(_) => return Some(MonitorEnd::Reported),
                Err(rejection) if rejection.code() == "log_mismatch" && mismatches < 3 => {
                    mismatches += 1;
                    warn!(execution.id = %self.execution, "Server has a different log; the runner sends its log again");
                    self.upload.continue_at(0);
                }
                Err(rejection) => return self.handle_rejection(rejection),
            }
            let mut stalled = 0;
            while self.upload.committed_bytes() < *log_len
                && !self.upload.is_stopped()
                && stalled < MAX_STALLED_CHUNKS
            {
                let length = fs::metadata(self.dir.log()).map_or(0, |log| log.len());
                let before = self.upload.committed_bytes();
                match self.send_log(true).await {
                    Ok(()) if length >= *log_len => {}
                    // The log is finalized, or another execution is current. The response to the
                    // next final report shows which.
                    Err(UploadError::Rejected(rejection)) if rejection.status == 412 => {
                        self.upload.stop();
                    }
                    Err(UploadError::Rejected(rejection)) => {
                        return self.handle_rejection(*rejection);
                    }
                    // The log file was removed or truncated. The server finalizes the part that it
                    // has.
                    Ok(()) | Err(UploadError::Disk(_)) => {
                        warn!(
                            execution.id = %self.execution,
                            bytes = length,
                            expected_bytes = log_len,
                            "Cannot upload the complete log: it is shorter than the final report states"
                        );
                        return Some(MonitorEnd::Reported);
                    }
                }
                stalled = if self.upload.committed_bytes() > before { 0 } else { stalled + 1 };
                tokio::time::sleep(CHUNK_INTERVAL).await;
            }
            // Pause between two attempts, regardless of the response.
            tokio::time::sleep(CHUNK_INTERVAL).await;
        }
    }

    fn record_end(&self, end: MonitorEnd) {
        let (job, execution, claim_id) = (self.job, self.execution, self.claim_id.clone());
        let event = match end {
            MonitorEnd::Reported => {
                info!(job.id = %job, execution.id = %execution, "Reported the result");
                JournalEvent::Reported { job, execution }
            }
            MonitorEnd::Rejected(rejection) => {
                let why = rejection.to_string();
                warn!(
                    job.id = %job,
                    execution.id = %execution,
                    error = %why,
                    "Server rejected the reports; the runner abandons the execution"
                );
                let reason = "the job no longer belongs to this runner".into();
                let cause = StopCause::AgentStop;
                self.agent.cancel(execution, &CancelOrder { reason, grace_ms: None, cause });
                JournalEvent::Abandoned { job, claim_id, reason: why }
            }
            MonitorEnd::ShimLost => {
                // Only a session request can report an unknown outcome.
                warn!(job.id = %job, execution.id = %execution, "Shim exited without a result");
                // Release the slot before the session opens. If a final report exists after all,
                // the session starts the monitor again.
                self.agent.release(job, Some(execution));
                return self.agent.request_session();
            }
        };
        if let Err(error) = self.agent.journal.write(event) {
            warn!(%error, "Cannot write the journal");
        }
        self.agent.release(job, Some(execution));
        let agent = Arc::clone(&self.agent);
        tasks::detach("cleanup", async move { clean_up(&agent).await });
    }
}

/// Returns whether the server rejected a log chunk because the outcome of the execution is unknown
/// to it. The execution still belongs to this runner.
fn is_outcome_unknown(rejection: &ServerRejection) -> bool {
    let state = rejection.problem.more.get("job_state").and_then(|state| state.as_str());
    rejection.status == 412 && state == Some("outcome_unknown")
}

#[cfg(test)]
mod tests;
