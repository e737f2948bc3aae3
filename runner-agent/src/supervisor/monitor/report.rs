//! Sends the reports of an execution and handles their rejections.
use std::fs;

use reqwest::{Method, header::HeaderName};
use schemas::{
    problem::Problem,
    runner::{
        EXECUTION, Exit, FailureReason, Finished, Outcome, PendingCancel, PlanReport, Report,
        ReportBody, ReportResponse, SaltedDetails,
    },
};
use tracing::{error, warn};

use super::{Monitor, MonitorEnd};
use crate::{
    client::{ApiRequest, ServerRejection},
    data,
    journal::JournalEvent,
    shim::{
        order::CancelOrder,
        recorder::{MAX_DETAIL_BYTES, truncate},
    },
    supervisor::{RunningJob, log_upload::UploadError, spawn},
};

/// Number of rejections of a statement after which the result is sent unsigned.
const MAX_STATEMENT_REJECTIONS: u32 = 3;

impl Monitor {
    /// Handles a rejection: replaces the report, backs off, or returns the reason to stop.
    pub(super) fn handle_rejection(&mut self, rejection: ServerRejection) -> Option<MonitorEnd> {
        let expected =
            rejection.problem.number("expected").filter(|_| rejection.code() == "seq_gap");
        // The server cannot expect a higher number than that of the next report.
        let most = self.reports.next().map_or(0, |next| next.seq);
        let expected = expected.filter(|expected| (1..=most).contains(expected));
        match expected {
            // The server has lost reports: send them again from that number on.
            Some(expected) if self.reports.rewind(expected) => return None,
            Some(_) | None => {}
        }
        if rejection.code() == "seq_conflict" && self.reports.skip_used_number() {
            return None;
        }
        match rejection.status {
            // Only these statuses mean that the execution no longer belongs to this runner.
            404 | 412 => return Some(MonitorEnd::Rejected(rejection)),
            // The server rejects the runner, at least for now. Running jobs continue.
            401 | 403 => {
                warn!(execution.id = %self.execution, error = %rejection, "Cannot send a report: the server rejects the runner");
                self.backoff.runner_rejected();
                return None;
            }
            // A defect of runner or server must not end a working job. The defect may be fixed
            // meanwhile.
            _ => {
                error!(execution.id = %self.execution, error = %rejection, "Cannot send a report: the server rejects it")
            }
        }
        let next = self.reports.next()?;
        let is_final = self.backoff.report_rejected(next.seq, &rejection);
        if !self.unsigned && self.is_statement_rejected(&next, &rejection, is_final) {
            self.continue_unsigned(&rejection);
            return None;
        }
        if !is_final {
            return None;
        }
        let seq = expected.unwrap_or(next.seq);
        self.replace_rejected_report(seq, &next, rejection)
    }

    /// Returns whether the server rejects the signed statement and not the result itself.
    fn is_statement_rejected(
        &self,
        next: &Report,
        rejection: &ServerRejection,
        is_final: bool,
    ) -> bool {
        let ends = matches!(next.body, ReportBody::Finished(_) | ReportBody::Refused { .. });
        let is_enough = match rejection.code() {
            "statement_invalid" => self.backoff.rejection_count() >= MAX_STATEMENT_REJECTIONS,
            // During a key replacement the new key signs the next attempt, so only a permanent
            // rejection counts.
            _ => is_final && rejection.problem.more.contains_key("signed_by"),
        };
        ends && is_enough
    }

    /// Sends the result unsigned from now on. A disagreement about the statement must not lose the
    /// result.
    fn continue_unsigned(&mut self, rejection: &ServerRejection) {
        let (job, execution, why) = (self.job, self.execution, rejection.problem.to_string());
        warn!(
            execution.id = %execution,
            error = why,
            "Server rejected the statement; the runner sends the final report without it"
        );
        if let Err(error) = self.agent.journal.write(JournalEvent::StatementRejected {
            job,
            execution,
            reason: why,
        }) {
            warn!(%error, "Cannot write the journal");
        }
        self.unsigned = true;
        self.backoff.reset();
    }

    /// Replaces a permanently rejected report with a final report that names it. Otherwise the job
    /// would wait for its final report until the deadline.
    ///
    /// Does nothing until the end of the execution is known.
    fn replace_rejected_report(
        &mut self,
        seq: u64,
        rejected_report: &Report,
        rejection: ServerRejection,
    ) -> Option<MonitorEnd> {
        let end = self.reports.ending_report()?.clone();
        let (execution, log_len) = (self.execution, end.log_len);
        let what = report_name(&rejected_report.body);
        let why = format!("the server rejects the report of {what}: {}", rejection.problem);
        warn!(
            execution.id = %execution,
            error = why,
            "Reporting the execution as failed: the server rejects one of its reports"
        );
        let last = match end.body {
            // The server rejects the replacement as well, so the outcome is left to the server.
            ReportBody::Finished(_) if self.reports.is_final_report_own() => {
                return Some(MonitorEnd::Rejected(rejection));
            }
            ReportBody::Finished(last) => with_rejection(last, &why),
            ReportBody::Refused { .. } => {
                let (outcome, reason) = (Outcome::Failed, Some(FailureReason::Refused));
                spawn::final_report(Exit { outcome, code: None, signal: None, reason }, why, b"")
            }
            ReportBody::Started { .. }
            | ReportBody::Phase { .. }
            | ReportBody::Plan(_)
            | ReportBody::Outputs { .. }
            | ReportBody::State(_)
            | ReportBody::Artifact(_)
            | ReportBody::Checks { .. }
            | ReportBody::CancelProgress { .. } => return None,
        };
        let body = ReportBody::Finished(last);
        self.reports.replace_with_final_report(Report {
            execution,
            seq,
            body,
            log_len,
            end: None,
            details: None,
        });
        self.backoff.reset();
        None
    }

    pub(super) async fn report(&mut self, mut report: Report) -> Result<(), ServerRejection> {
        let mut summary_rejection = None;
        if let ReportBody::Plan(plan) = &mut report.body {
            summary_rejection = self.send_summary(plan).await;
            report.details = self.details_of(plan);
            let (job, execution) = (self.job.to_string(), self.execution.to_string());
            let statement = proof::plan::statement(&plan.digest.bytes(), &job, &execution);
            plan.signature = proof::plan::sign(&statement, &self.agent.keys.identity.now().key);
        }
        report.end = self.signed(&report);
        let response = self.post(&report).await.map_err(|rejection| match summary_rejection {
            // The server has no summary because it is too large, so return the rejection of the
            // summary.
            Some(too_large) if too_large.status == 413 => too_large,
            Some(_) | None => rejection,
        })?;
        self.reports.acknowledge(report.seq);
        self.apply_pending_cancel(response.1.cancel);
        Ok(())
    }

    pub(super) async fn post(
        &self,
        report: &Report,
    ) -> Result<(u16, ReportResponse), ServerRejection> {
        let path = format!("/runner/v1/jobs/{}/events", self.job);
        let request =
            ApiRequest::json(Method::POST, path, report).map_err(|error| local_error(&error))?;
        let request =
            request.header(HeaderName::from_static(EXECUTION), &self.execution.to_string());
        let response = self.agent.client.send::<ReportResponse>(&request).await?;
        Ok((response.status, response.body.unwrap_or_default()))
    }

    /// Uploads the summary before the report that names it. Returns the rejection, if there is one.
    async fn send_summary(&self, plan: &PlanReport) -> Option<ServerRejection> {
        let (name, execution) = (plan.summary.to_string(), self.execution);
        let bytes = match fs::read(self.dir.blobs().join(&name)) {
            Ok(bytes) => bytes,
            Err(error) => {
                warn!(execution.id = %execution, %error, "Cannot read the summary of a plan");
                return None;
            }
        };
        let request = ApiRequest::new(Method::PUT, format!("/runner/v1/blobs/{name}"))
            .bytes(bytes)
            .header(HeaderName::from_static(EXECUTION), &execution.to_string())
            .header(reqwest::header::CONTENT_TYPE, "application/json");
        let rejection = self.agent.client.send::<serde_json::Value>(&request).await.err()?;
        warn!(execution.id = %execution, error = %rejection, "Cannot upload the summary of a plan: the server rejected it");
        Some(rejection)
    }

    /// Returns the details that the plan digest covers. The server rejects a plan without them.
    fn details_of(&self, plan: &PlanReport) -> Option<SaltedDetails> {
        let digest = plan.v2.as_ref()?.details.as_ref()?;
        let path = self.dir.blobs().join(digest.to_string());
        match data::read_json(&path) {
            Ok(details) => details,
            Err(error) => {
                warn!(execution.id = %self.execution, %error, "Cannot read the details of a plan");
                None
            }
        }
    }

    pub(super) async fn send_log(&mut self, now: bool) -> Result<(), UploadError> {
        let ids = (self.job, self.execution);
        if self.agent.state().running.get(&self.job).is_some_and(|running| running.tailed) {
            self.upload.hasten();
        }
        let response = self.upload.push(&self.agent.client, ids, &self.dir, now).await?;
        self.apply_pending_cancel(response.and_then(|response| response.cancel));
        let log_len = fs::metadata(self.dir.log()).map_or(0, |log| log.len());
        let log_sent = self.upload.committed_bytes();
        self.update_job(|running| {
            (running.log_len, running.log_sent) = (log_len, log_sent);
        });
        Ok(())
    }

    pub(super) fn update_job(&self, note: impl FnOnce(&mut RunningJob)) {
        self.agent.update_job(self.job, Some(self.execution), note);
    }

    fn apply_pending_cancel(&self, cancel: Option<PendingCancel>) {
        if let Some(PendingCancel { reason, grace_s, force }) = cancel {
            let order = CancelOrder::of_vendor(reason, grace_s, force);
            self.agent.cancel(self.execution, &order);
        }
    }
}

/// Returns a final report that replaces a rejected report. Its detail contains the rejection and
/// the result of the job itself.
pub(super) fn with_rejection(last: Finished, why: &str) -> Finished {
    let how = match last.outcome {
        Outcome::Succeeded => "the job itself succeeded",
        Outcome::Failed => "the job itself failed",
        Outcome::Cancelled => "the job itself was cancelled",
    };
    let job_detail =
        if last.detail.is_empty() { String::new() } else { format!(": {}", last.detail) };
    let reason = without_not_started_reason(last.reason).or(Some(FailureReason::Internal));
    let detail = truncate(format!("{why}; {how}{job_detail}"), MAX_DETAIL_BYTES);
    Finished { outcome: Outcome::Failed, reason, detail, ..last }
}

/// Replaces a reason from which the server concludes that the job never started. The conclusion can
/// be wrong if the report of the start was lost.
pub(super) fn without_not_started_reason(reason: Option<FailureReason>) -> Option<FailureReason> {
    let means_not_started =
        |reason| matches!(reason, FailureReason::Refused | FailureReason::SpawnFailed);
    reason.map(|reason| if means_not_started(reason) { FailureReason::Internal } else { reason })
}

fn report_name(body: &ReportBody) -> &'static str {
    match body {
        ReportBody::Started { .. } => "the start",
        ReportBody::Phase { .. } => "a phase",
        ReportBody::Plan(_) => "the plan",
        ReportBody::Outputs { .. } => "the outputs",
        ReportBody::State(_) => "the state's version",
        ReportBody::Artifact(_) => "the artifact",
        ReportBody::Checks { .. } => "the checks",
        ReportBody::Refused { .. } => "the refusal",
        ReportBody::CancelProgress { .. } => "the cancellation",
        ReportBody::Finished(_) => "the result",
    }
}

fn local_error(why: &dyn std::fmt::Display) -> ServerRejection {
    let problem = Problem::new(0, "internal", "The runner cannot send the report", why.to_string());
    ServerRejection { status: 0, problem, have: None }
}
