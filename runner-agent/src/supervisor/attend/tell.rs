//! Sends the reports of an execution and handles their rejections.
use std::fs;

use reqwest::{Method, header::HeaderName};
use schemas::{
    problem::Problem,
    runner::{
        EXECUTION, Exit, FailureReason, Finished, Outcome, PendingCancel, PlanReport, Report,
        ReportBody, ReportResponse,
    },
};
use tracing::{error, warn};

use super::{Attendance, Over};
use crate::{
    client::{Ask, Refused},
    journal::JournalEvent,
    shim::{
        order::CancelOrder,
        recorder::{DETAIL, brief},
    },
    supervisor::{Attended, spawn, spool::SpoolError},
};

/// Number of rejections of a statement after which the result is sent unsigned.
const STATEMENTS: u32 = 3;

impl Attendance {
    /// Handles a rejection: replaces the report, backs off, or returns the reason to stop.
    pub(super) fn mend(&mut self, refused: Refused) -> Option<Over> {
        let expected = refused.problem.number("expected").filter(|_| refused.code() == "seq_gap");
        // The server cannot expect a number after the next report's.
        let most = self.reports.next().map_or(0, |next| next.seq);
        let expected = expected.filter(|expected| (1..=most).contains(expected));
        match expected {
            // The server has lost reports: send them again from that number on.
            Some(expected) if self.reports.rewind(expected) => return None,
            Some(_) | None => {}
        }
        if refused.code() == "seq_conflict" && self.reports.give_way() {
            return None;
        }
        match refused.status {
            // Only these statuses mean that the execution no longer belongs to this runner.
            404 | 412 => return Some(Over::Refused(refused)),
            // The server rejects the runner, at least for now. Running jobs continue.
            401 | 403 => {
                warn!(execution.id = %self.execution, error = %refused, "The server rejects the runner");
                self.patience.unwanted();
                return None;
            }
            // A defect of runner or server must not end a job that works. It may be fixed in the
            // meantime.
            _ => {
                error!(execution.id = %self.execution, error = %refused, "The server rejects a report")
            }
        }
        let next = self.reports.next()?;
        let is_final = self.patience.refused(next.seq, &refused);
        if !self.unsigned && self.is_the_statement_hopeless(&next, &refused, is_final) {
            self.go_on_unsigned(&refused);
            return None;
        }
        if !is_final {
            return None;
        }
        let seq = expected.unwrap_or(next.seq);
        self.say_that_it_is_not_taken(seq, &next, refused)
    }

    /// Returns whether the server rejects the signed statement and not the result itself.
    fn is_the_statement_hopeless(&self, next: &Report, refused: &Refused, is_final: bool) -> bool {
        let ends = matches!(next.body, ReportBody::Finished(_) | ReportBody::Refused { .. });
        let is_enough = match refused.code() {
            "statement_invalid" => self.patience.times() >= STATEMENTS,
            // During a key replacement the new key signs the next attempt, so only a permanent
            // rejection counts.
            _ => is_final && refused.problem.more.contains_key("signed_by"),
        };
        ends && is_enough
    }

    /// Sends the result unsigned from now on. A disagreement about the statement must not lose the
    /// result.
    fn go_on_unsigned(&mut self, refused: &Refused) {
        let (job, execution, why) = (self.job, self.execution, refused.problem.to_string());
        warn!(
            execution.id = %execution,
            error = why,
            "The server rejects the statement, sending the final report without it"
        );
        if let Err(error) = self.agent.journal.write(JournalEvent::StatementRejected {
            job,
            execution,
            reason: why,
        }) {
            warn!(%error, "Cannot write the journal");
        }
        self.unsigned = true;
        self.patience.begin_anew();
    }

    /// Replaces a permanently rejected report with a final report that names it. Otherwise the job
    /// would wait for its final report until the deadline.
    ///
    /// Does nothing until the end of the execution is known.
    fn say_that_it_is_not_taken(
        &mut self,
        seq: u64,
        refused_report: &Report,
        refused: Refused,
    ) -> Option<Over> {
        let end = self.reports.end()?.clone();
        let (execution, log_len) = (self.execution, end.log_len);
        let what = type_of(&refused_report.body);
        let why = format!("the server rejects the report of {what}: {}", refused.problem);
        warn!(
            execution.id = %execution,
            error = why,
            "Reporting the execution as failed: the server rejects one of its reports"
        );
        let last = match end.body {
            // The server rejects the replacement as well, so it decides without this runner.
            ReportBody::Finished(_) if self.reports.end_is_ours() => {
                return Some(Over::Refused(refused));
            }
            ReportBody::Finished(last) => untold(last, &why),
            ReportBody::Refused { .. } => {
                let (outcome, reason) = (Outcome::Failed, Some(FailureReason::Refused));
                spawn::last_word(Exit { outcome, code: None, signal: None, reason }, why, b"")
            }
            ReportBody::Started {}
            | ReportBody::Phase { .. }
            | ReportBody::Plan(_)
            | ReportBody::Outputs { .. }
            | ReportBody::State(_)
            | ReportBody::Artifact(_)
            | ReportBody::CancelProgress { .. } => return None,
        };
        let body = ReportBody::Finished(last);
        self.reports.replace_with(Report { execution, seq, body, log_len, end: None });
        self.patience.begin_anew();
        None
    }

    pub(super) async fn report(&mut self, mut report: Report) -> Result<(), Refused> {
        let mut not_kept = None;
        if let ReportBody::Plan(plan) = &mut report.body {
            not_kept = self.send_summary(plan).await;
            let (job, execution) = (self.job.to_string(), self.execution.to_string());
            let said = proof::plan::statement(&plan.digest.bytes(), &job, &execution);
            plan.signature = proof::plan::sign(&said, &self.agent.keys.identity.now().key);
        }
        report.end = self.signed(&report);
        let answer = self.post(&report).await.map_err(|refused| match not_kept {
            // The missing summary follows from its size, so return the first rejection.
            Some(too_large) if too_large.status == 413 => too_large,
            Some(_) | None => refused,
        })?;
        self.reports.told(report.seq);
        self.pending(answer.1.cancel);
        Ok(())
    }

    pub(super) async fn post(&self, report: &Report) -> Result<(u16, ReportResponse), Refused> {
        let path = format!("/runner/v1/jobs/{}/events", self.job);
        let ask = Ask::json(Method::POST, path, report).map_err(|error| ours(&error))?;
        let ask = ask.header(HeaderName::from_static(EXECUTION), &self.execution.to_string());
        let answer = self.agent.client.send::<ReportResponse>(&ask).await?;
        Ok((answer.status, answer.body.unwrap_or_default()))
    }

    /// Uploads the summary before the report that names it. Returns the rejection, if there is one.
    async fn send_summary(&self, plan: &PlanReport) -> Option<Refused> {
        let (name, execution) = (plan.summary.to_string(), self.execution);
        let bytes = match fs::read(self.dir.blobs().join(&name)) {
            Ok(bytes) => bytes,
            Err(error) => {
                warn!(execution.id = %execution, %error, "Cannot read the summary of a plan");
                return None;
            }
        };
        let ask = Ask::new(Method::PUT, format!("/runner/v1/blobs/{name}"))
            .bytes(bytes)
            .header(HeaderName::from_static(EXECUTION), &execution.to_string())
            .header(reqwest::header::CONTENT_TYPE, "application/json");
        let refused = self.agent.client.send::<serde_json::Value>(&ask).await.err()?;
        warn!(execution.id = %execution, error = %refused, "The server rejected a plan's summary");
        Some(refused)
    }

    pub(super) async fn send_log(&mut self, now: bool) -> Result<(), SpoolError> {
        let ids = (self.job, self.execution);
        if self.agent.state().running.get(&self.job).is_some_and(|attended| attended.tailed) {
            self.upload.hasten();
        }
        let answer = self.upload.push(&self.agent.client, ids, &self.dir, now).await?;
        self.pending(answer.and_then(|answer| answer.cancel));
        let log_len = fs::metadata(self.dir.log()).map_or(0, |log| log.len());
        let log_sent = self.upload.have();
        self.note(|attended| {
            (attended.log_len, attended.log_sent) = (log_len, log_sent);
        });
        Ok(())
    }

    pub(super) fn note(&self, note: impl FnOnce(&mut Attended)) {
        self.agent.note(self.job, Some(self.execution), note);
    }

    fn pending(&self, cancel: Option<PendingCancel>) {
        if let Some(PendingCancel { reason, grace_s, force }) = cancel {
            let order = CancelOrder::of_vendor(reason, grace_s, force);
            self.agent.cancel(self.execution, &order);
        }
    }
}

/// Returns a final report that replaces rejected ones. Its detail contains the rejection and the
/// result of the job itself.
pub(super) fn untold(last: Finished, why: &str) -> Finished {
    let how = match last.outcome {
        Outcome::Succeeded => "the job itself succeeded",
        Outcome::Failed => "the job itself failed",
        Outcome::Cancelled => "the job itself was cancelled",
    };
    let said = if last.detail.is_empty() { String::new() } else { format!(": {}", last.detail) };
    let reason = nothing_is_proven(last.reason).or(Some(FailureReason::Internal));
    let detail = brief(format!("{why}; {how}{said}"), DETAIL);
    Finished { outcome: Outcome::Failed, reason, detail, ..last }
}

/// Replaces reasons that mean to the server that nothing ran. They are wrong if the report of the
/// start may be missing.
pub(super) fn nothing_is_proven(reason: Option<FailureReason>) -> Option<FailureReason> {
    let says_so = |reason| matches!(reason, FailureReason::Refused | FailureReason::SpawnFailed);
    reason.map(|reason| if says_so(reason) { FailureReason::Internal } else { reason })
}

fn type_of(body: &ReportBody) -> &'static str {
    match body {
        ReportBody::Started {} => "the start",
        ReportBody::Phase { .. } => "a phase",
        ReportBody::Plan(_) => "the plan",
        ReportBody::Outputs { .. } => "the outputs",
        ReportBody::State(_) => "the state's version",
        ReportBody::Artifact(_) => "the artifact",
        ReportBody::Refused { .. } => "the refusal",
        ReportBody::CancelProgress { .. } => "the cancellation",
        ReportBody::Finished(_) => "the result",
    }
}

fn ours(why: &dyn std::fmt::Display) -> Refused {
    let problem = Problem::new(0, "internal", "Cannot send the request", why.to_string());
    Refused { status: 0, problem, have: None }
}
