//! Signs the result of an execution with the runner's key, so that the server cannot forge it.
use std::io;

use proof::{canonical, dsse};
use schemas::runner::{
    Exit, FailureReason, Outcome, Report, ReportBody, STATEMENT_TYPE, SignedEnd, SignedLog,
    Statement,
};
use tracing::warn;

use super::Monitor;
use crate::journal::JournalEvent;

impl Monitor {
    /// Returns a signed statement if this report ends the execution. The journal records the
    /// statement before it is sent.
    ///
    /// A result that cannot be signed is sent unsigned, so that it is not lost.
    pub(super) fn signed(&self, report: &Report) -> Option<SignedEnd> {
        let StatementContents { exit, log, not_ended } = statement_contents(&report.body)?;
        if self.unsigned {
            return None;
        }
        match self.sign(exit, log, not_ended) {
            Ok(signed) => Some(signed),
            Err(error) => {
                warn!(execution.id = %self.execution, %error, "Cannot sign the final report; the runner sends it unsigned");
                None
            }
        }
    }

    fn sign(
        &self,
        exit: Exit,
        log: Option<SignedLog>,
        not_ended: Vec<String>,
    ) -> io::Result<SignedEnd> {
        let (job, execution) = (self.job, self.execution);
        let entries = self.agent.journal.read()?;
        let verified = entries.iter().find_map(|entry| {
            let JournalEvent::Verified { execution: of, manifest, grant, .. } = &entry.event else {
                return None;
            };
            (*of == execution).then(|| (manifest.clone(), grant.clone()))
        });
        let (manifest, grant) = verified.map_or((None, None), |(of, by)| (Some(of), by));
        let outputs = self.reports.outputs();
        let outputs = match outputs.is_empty() {
            true => None,
            false => Some(canonical::hash(outputs).map_err(io::Error::other)?.into()),
        };
        let outcome = exit.outcome;
        let statement = Statement {
            version: 1,
            runner: self.agent.identity.runner,
            job,
            execution,
            outcome,
            reason: exit.reason,
            exit_code: exit.code,
            signal: exit.signal,
            manifest,
            grant,
            log,
            outputs,
            not_ended,
        };
        let payload = canonical::json(&statement).map_err(io::Error::other)?;
        let statement = proof::sha256(&payload).into();
        let signed_event = JournalEvent::StatementSigned { job, execution, outcome, statement };
        if !entries.iter().any(|entry| entry.event == signed_event) {
            self.agent.journal.write(signed_event)?;
        }
        let key = self.agent.keys.identity.now().key;
        let statement = dsse::sign(STATEMENT_TYPE, &payload, &key);
        Ok(SignedEnd { statement, journal_head: self.agent.sign_journal() })
    }
}

/// Contents of a statement about the end of an execution.
struct StatementContents {
    exit: Exit,
    log: Option<SignedLog>,
    not_ended: Vec<String>,
}

/// Returns the result and the log digest, if this report ends the execution.
fn statement_contents(body: &ReportBody) -> Option<StatementContents> {
    match body {
        ReportBody::Finished(last) => {
            let (code, signal) = (last.exit_code, last.signal);
            let exit = Exit { outcome: last.outcome, code, signal, reason: last.reason };
            let sha256 = format!("sha256:{}", last.log_sha256.trim_start_matches("sha256:"));
            let log = sha256.parse().ok().map(|sha256| SignedLog {
                length_bytes: last.log_len,
                sha256,
                omitted_bytes: last.omitted,
            });
            Some(StatementContents { exit, log, not_ended: last.not_ended.clone() })
        }
        ReportBody::Refused { .. } => {
            let (outcome, reason) = (Outcome::Failed, Some(FailureReason::Refused));
            let exit = Exit { outcome, code: None, signal: None, reason };
            Some(StatementContents { exit, log: None, not_ended: Vec::new() })
        }
        ReportBody::Started { .. }
        | ReportBody::Phase { .. }
        | ReportBody::Plan(_)
        | ReportBody::Outputs { .. }
        | ReportBody::State(_)
        | ReportBody::Artifact(_)
        | ReportBody::Checks { .. }
        | ReportBody::CancelProgress { .. } => None,
    }
}
