//! What the server is told of an execution, and what its refusals mean.
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
    journal::Fact,
    shim::{
        order::CancelOrder,
        recorder::{DETAIL, brief},
    },
    supervisor::{Attended, spawn, spool::SpoolError},
};

/// How often a statement may be refused before the end goes without one.
const STATEMENTS: u32 = 3;

impl Attendance {
    /// What can be done about a refusal: say something else, wait, or nothing.
    pub(super) fn mend(&mut self, refused: Refused) -> Option<Over> {
        let expected = refused.problem.number("expected").filter(|_| refused.code() == "seq_gap");
        // The server cannot expect a report after the next one.
        let most = self.reports.next().map_or(0, |next| next.seq);
        let expected = expected.filter(|expected| (1..=most).contains(expected));
        match expected {
            // The server has forgotten what it had: everything from there on again.
            Some(expected) if self.reports.rewind(expected) => return None,
            Some(_) | None => {}
        }
        if refused.code() == "seq_conflict" && self.reports.give_way() {
            return None;
        }
        match refused.status {
            // Only these say that it is not ours any more.
            404 | 412 => return Some(Over::Refused(refused)),
            // We are not wanted, at least now. What runs is not ended by that.
            401 | 403 => {
                warn!(execution.id = %self.execution, "The server does not listen: {refused}");
                self.patience.unwanted();
                return None;
            }
            // A defect of one side must not end work that is well. Somebody may mend it meanwhile.
            _ => error!(execution.id = %self.execution, "The server takes no report: {refused}"),
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

    /// Whether it is what was signed of the end that the server does not take, and not the end itself.
    fn is_the_statement_hopeless(&self, next: &Report, refused: &Refused, is_final: bool) -> bool {
        let ends = matches!(next.body, ReportBody::Finished(_) | ReportBody::Refused { .. });
        let is_enough = match refused.code() {
            "statement_invalid" => self.patience.times() >= STATEMENTS,
            // The key is being replaced and the new one will sign it: only if that never happens the end goes without.
            _ => is_final && refused.problem.more.contains_key("signed_by"),
        };
        ends && is_enough
    }

    /// What was done must not be lost because the two sides do not agree on what is signed of it: from now on the end is
    /// told as a runner of before tells it.
    fn go_on_unsigned(&mut self, refused: &Refused) {
        let (job, execution, why) = (self.job, self.execution, refused.problem.to_string());
        warn!(execution.id = %execution, "The last word goes without a statement, which the server does not take: {why}");
        if let Err(error) = self.agent.journal.write(Fact::Unsigned { job, execution, why }) {
            warn!(%error, "The journal cannot be written");
        }
        self.unsigned = true;
        self.patience.begin_anew();
    }

    /// A report that will never be taken stands in front of the last word, and the job waits for that one until its
    /// deadline. Once it is known how the work ended, the end is told in its place.
    fn say_that_it_is_not_taken(
        &mut self,
        seq: u64,
        refused_report: &Report,
        refused: Refused,
    ) -> Option<Over> {
        let end = self.reports.end()?.clone();
        let (execution, log_len) = (self.execution, end.log_len);
        let what = type_of(&refused_report.body);
        let why = format!("the server takes no report of {what}: {}", refused.problem);
        warn!(execution.id = %execution, "{execution} is told as failed: {why}");
        let last = match end.body {
            // Nothing that we could say is taken: the server decides without us.
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
            // That the summary is not there is the lesser half of the story.
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

    /// The summary's bytes, before the report that names them. Answers why they were not taken.
    async fn send_summary(&self, plan: &PlanReport) -> Option<Refused> {
        let (name, execution) = (plan.summary.to_string(), self.execution);
        let bytes = match fs::read(self.dir.blobs().join(&name)) {
            Ok(bytes) => bytes,
            Err(error) => {
                warn!(execution.id = %execution, %error, "A plan's summary is gone");
                return None;
            }
        };
        let ask = Ask::new(Method::PUT, format!("/runner/v1/blobs/{name}"))
            .bytes(bytes)
            .header(HeaderName::from_static(EXECUTION), &execution.to_string())
            .header(reqwest::header::CONTENT_TYPE, "application/json");
        let refused = self.agent.client.send::<serde_json::Value>(&ask).await.err()?;
        warn!(execution.id = %execution, "A plan's summary was not taken: {refused}");
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

/// An end of which the server did not take what came before it. Who reads it learns both.
pub(super) fn untold(last: Finished, why: &str) -> Finished {
    let how = match last.outcome {
        Outcome::Succeeded => "the work itself succeeded",
        Outcome::Failed => "the work itself failed",
        Outcome::Cancelled => "the work itself was cancelled",
    };
    let said = if last.detail.is_empty() { String::new() } else { format!(": {}", last.detail) };
    let reason = nothing_is_proven(last.reason).or(Some(FailureReason::Internal));
    let detail = brief(format!("{why}; {how}{said}"), DETAIL);
    Finished { outcome: Outcome::Failed, reason, detail, ..last }
}

/// To a server that has heard of no start, these two say that nothing was begun. An end that is told without what
/// came before it must not.
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
        ReportBody::CancelProgress { .. } => "the cancel",
        ReportBody::Finished(_) => "the end",
    }
}

fn ours(why: &dyn std::fmt::Display) -> Refused {
    let problem = Problem::new(0, "internal", "The runner could not ask", why.to_string());
    Refused { status: 0, problem, have: None }
}
