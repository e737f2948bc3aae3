//! Verification of the reports of a log: the runner of each report, and the match between the event
//! and the signed statement.
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Ended, EndedExecution, Kind, LogFinalized, Outputs, Planned, ReportError, ReportEvent,
    Resolved, STATEMENT, Signature,
    state::{Id, ReportState},
};
use crate::{Hash, canonical, digest_text, dsse, plan};

/// Counts of signed and unsigned reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportCounts {
    /// Number of signed plans and execution results.
    pub signed: u64,
    /// Number of execution results without a signature, which only the server asserts.
    pub unsigned: u64,
    /// Position of the first unsigned result.
    pub first_unsigned: Option<u64>,
}

/// Verifier of runner reports, which takes the events of a log in order. For its memory use see
/// `ReportState`.
#[derive(Debug, Default)]
pub struct Reports {
    /// True if the verifier started at the first event of the log. Then every enrolment and claim
    /// must precede the reports that depend on it.
    whole: bool,
    state: ReportState,
    /// Last resolution: its position, job and content.
    last_resolution: Option<(u64, String, Resolved)>,
    tally: ReportCounts,
}

#[derive(Deserialize)]
struct Log {
    length_bytes: u64,
    sha256: String,
    omitted_bytes: u64,
}

#[derive(Deserialize)]
struct Statement {
    version: u32,
    runner: String,
    job: String,
    execution: String,
    outcome: String,
    reason: Option<String>,
    exit_code: Option<i64>,
    signal: Option<i64>,
    manifest: Option<String>,
    log: Option<Log>,
    outputs: Option<String>,
    #[serde(default)]
    not_ended: Vec<String>,
}

impl Reports {
    /// Returns a verifier that starts before the first event (`whole`) or within a log. A verifier
    /// that starts within a log skips reports of jobs that were claimed earlier.
    pub fn new(whole: bool) -> Reports {
        Reports { whole, ..Reports::default() }
    }

    /// Returns the counts over all events so far.
    pub fn tally(&self) -> ReportCounts {
        self.tally
    }

    /// Takes the next event. The caller must still check the returned signature.
    ///
    /// # Errors
    /// [`ReportError`]: the report is forged, altered or unreadable, even if its signature is
    /// valid.
    pub fn take(
        &mut self,
        position: u64,
        event: ReportEvent,
    ) -> Result<Option<Signature>, ReportError> {
        let ReportEvent { id, kind } = event;
        match kind {
            Kind::Key(key) => self.state.runner(id).key = Some(key),
            Kind::Revoked => {
                self.state.runner(id).revoked.get_or_insert(position);
            }
            Kind::Queued(manifest) => self.state.job(&id).manifest = hash(&manifest),
            Kind::Claimed(claimed) => self.state.claimed(&id, claimed),
            Kind::Requeued(EndedExecution { execution }) => {
                self.state.job(&id).is_held = false;
                self.state.end_execution(&id, &execution);
            }
            Kind::Lost(EndedExecution { execution }) => {
                drop(self.state.end_execution(&id, &execution));
            }
            Kind::Resolved(resolved) => self.last_resolution = Some((position, id, resolved)),
            Kind::Outputs(Outputs { execution, outputs }) => {
                self.state.add_outputs(&id, &execution, outputs);
            }
            Kind::Planned(planned) => return self.planned(position, &id, &planned),
            Kind::Ended(ended) => return self.ended(position, &id, &ended),
            Kind::LogFinalized(end) => self.log_finalized(position, &id, end)?,
            Kind::Unreadable(what) => {
                let what = format!("cannot read the reported {what}");
                return Err(ReportError { position, what });
            }
        }
        Ok(None)
    }

    /// Returns the runner of an execution and the runner's key. Returns `None` if the claim or the
    /// enrolment precedes the first event that the verifier took.
    fn holder(
        &mut self,
        position: u64,
        job: &str,
        execution: &str,
    ) -> Result<Option<(String, String)>, ReportError> {
        let Some((_, runner)) = self.state.execution(job, execution) else {
            let what = format!("forged report: no runner claimed {execution}");
            return if self.whole { Err(ReportError { position, what }) } else { Ok(None) };
        };
        if let Some(at) = runner.revoked {
            let why = format!("its key was revoked at position {at}");
            return Err(ReportError::of(position, &runner.id, &why));
        }
        match &runner.key {
            Some(key) => Ok(Some((runner.id.clone(), key.clone()))),
            None if self.whole => {
                Err(ReportError::of(position, &runner.id, "the runner never enrolled"))
            }
            None => Ok(None),
        }
    }

    fn planned(
        &mut self,
        position: u64,
        job: &str,
        planned: &Planned,
    ) -> Result<Option<Signature>, ReportError> {
        let Planned { execution, plan } = planned;
        let Some((runner, key)) = self.holder(position, job, execution)? else { return Ok(None) };
        let manifest = self.state.find_job(job).and_then(|job| job.manifest);
        // The job was queued before the first event that the verifier took, so its manifest is
        // unknown.
        if manifest.is_none() && !self.whole {
            return Ok(None);
        }
        self.tally.signed += 1;
        let wrong = |why: &str| ReportError::of(position, &runner, why);
        let [digest, file, summary] =
            [&plan.digest, &plan.file, &plan.summary].map(|text| hash(text));
        let Some(manifest) = manifest else {
            return Err(wrong("the job has no manifest"));
        };
        let (Some(digest), Some(file), Some(summary)) = (digest, file, summary) else {
            return Err(wrong("a digest of the plan is invalid"));
        };
        let computed = match &plan.v2 {
            None => plan::digest_of(&file, &summary, &manifest, &plan.tool),
            Some(v2) => {
                let part = |text: &Option<String>| match text {
                    None => Ok(None),
                    Some(text) => hash(text).map(Some).ok_or(()),
                };
                let (Ok(details), Ok(plugin), Ok(tool)) =
                    (part(&v2.details), part(&v2.plugin), part(&v2.tool))
                else {
                    return Err(wrong("a digest of the plan is invalid"));
                };
                let parts = plan::PartsV2 { details, plugin, tool };
                plan::digest_v2(&file, &summary, &manifest, &plan.tool, &parts)
            }
        };
        if computed != digest {
            return Err(wrong("the digest of the plan does not match its parts"));
        }
        let statement = plan::statement(&digest, job, execution);
        let signed_bytes = dsse::pre_authentication(plan::STATEMENT, &statement);
        let signature = plan.signature.clone();
        Ok(Some(Signature { position, runner, key, signed_bytes, signature }))
    }

    fn ended(
        &mut self,
        position: u64,
        job: &str,
        ended: &Ended,
    ) -> Result<Option<Signature>, ReportError> {
        let Some(signed) = &ended.signed else {
            if let Some(execution) = &ended.execution {
                self.state.end_execution(job, execution);
            }
            self.unsigned(position, job, ended)?;
            return Ok(None);
        };
        let execution = ended.execution.as_deref().unwrap_or_default();
        let Some((runner, key)) = self.holder(position, job, execution)? else { return Ok(None) };
        self.tally.signed += 1;
        let wrong = |why: &str| ReportError::of(position, &runner, why);
        if signed.key != key {
            return Err(wrong("its signing key was not the runner's at this position"));
        }
        let statement: Statement = serde_json::from_str(&signed.statement)
            .map_err(|_| wrong("its stored statement cannot be read"))?;
        let subject =
            (statement.version, &*statement.runner, &*statement.job, &*statement.execution);
        if subject != (1, &*runner, job, execution) {
            return Err(wrong("the statement belongs to another runner, job or execution"));
        }
        if !matches_statement(ended, &statement) {
            let why = format!(
                "the event records {}, but the runner signed {}",
                describe(&ended.outcome, ended.reason.as_deref(), ended.exit_code, ended.signal)
                    + &survivors(&ended.not_ended),
                describe(
                    &statement.outcome,
                    statement.reason.as_deref(),
                    statement.exit_code,
                    statement.signal
                ) + &survivors(&statement.not_ended),
            );
            return Err(wrong(&why));
        }
        let manifest = self.state.find_job(job).and_then(|job| job.manifest);
        let is_known = self.whole || manifest.is_some();
        let is_another = |stated: &String| hash(stated).is_none_or(|hash| Some(hash) != manifest);
        let ran_another = is_known && statement.manifest.as_ref().is_some_and(is_another);
        if ran_another || (statement.manifest.is_none() && ended.outcome == "succeeded") {
            return Err(wrong("the runner did not sign the manifest of the job"));
        }
        // A late result has no outputs to compare: the server ignored its outputs.
        if let Some(outputs) = self.state.end_execution(job, execution).filter(|_| !ended.late)
            && digest_of(&outputs) != statement.outputs
        {
            return Err(wrong("the reported outputs differ from the signed ones"));
        }
        if let Some((found, _)) = self.state.execution(job, execution) {
            found.log = statement.log.map(|log| log.id());
        }
        let signed_bytes = dsse::pre_authentication(STATEMENT, signed.statement.as_bytes());
        let signature = signed.signature.clone();
        Ok(Some(Signature { position, runner, key, signed_bytes, signature }))
    }

    /// Checks a result without a signature. A result with a report number, or a late result, is the
    /// server's record of a runner report and is only counted. Any other result of an execution
    /// must directly follow its resolution.
    fn unsigned(&mut self, position: u64, job: &str, ended: &Ended) -> Result<(), ReportError> {
        if ended.seq.is_some() || ended.late {
            self.tally.unsigned += 1;
            self.tally.first_unsigned.get_or_insert(position);
            return Ok(());
        }
        let found_job = self.state.find_job(job);
        let is_resolved = match (&ended.execution, &self.last_resolution) {
            (Some(execution), Some((at, of, resolved))) => {
                (at + 1, &**of, &*resolved.execution, &*resolved.resolution)
                    == (position, job, &**execution, &*ended.outcome)
            }
            (Some(_), None) => false,
            // The job had no runner: it was cancelled, or its queue time expired.
            (None, _) => ended.outcome != "succeeded" && !found_job.is_some_and(|job| job.is_held),
        };
        // A part of the log can begin directly after a resolution, so the resolution of an unknown
        // job may be missing.
        if is_resolved || (found_job.is_none() && !self.whole) {
            return Ok(());
        }
        let what = "the result has neither a runner report nor a resolution".into();
        Err(ReportError { position, what })
    }

    fn log_finalized(
        &mut self,
        position: u64,
        job: &str,
        end: LogFinalized,
    ) -> Result<(), ReportError> {
        let LogFinalized { execution, length_bytes, sha256, omitted_bytes, complete } = end;
        let stored = Log { length_bytes, sha256, omitted_bytes }.id();
        match self.state.execution(job, &execution) {
            Some((found, runner))
                if complete && found.log.is_some_and(|signed| signed != stored) =>
            {
                let what = format!(
                    "the stored log differs from the one that the runner {} signed",
                    runner.id
                );
                Err(ReportError { position, what })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Log {
    fn id(&self) -> Id {
        let Log { length_bytes, sha256, omitted_bytes } = self;
        Id::of(&[&length_bytes.to_string(), sha256, &omitted_bytes.to_string()])
    }
}

/// Returns whether the event matches the signed statement in every field that both have.
fn matches_statement(ended: &Ended, statement: &Statement) -> bool {
    let code = ended.exit_code == statement.exit_code;
    ended.outcome == statement.outcome
        && ended.not_ended == statement.not_ended
        && match &*ended.outcome {
            "succeeded" => code,
            "failed" => {
                code && ended.signal == statement.signal && reason(statement) == ended.reason
            }
            _ => true,
        }
}

/// Returns the reason that the event must have: the runner's reason, or the type of the failure if
/// the runner gave none.
fn reason(statement: &Statement) -> Option<String> {
    let kind = match (statement.signal, statement.exit_code) {
        (Some(_), _) => "signal",
        (None, Some(_)) => "exit_code",
        (None, None) => "internal",
    };
    statement.reason.clone().or_else(|| Some(kind.to_owned()))
}

fn describe(outcome: &str, reason: Option<&str>, code: Option<i64>, signal: Option<i64>) -> String {
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let code = code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let signal = signal.map(|signal| format!(", signal {signal}")).unwrap_or_default();
    format!("{outcome}{reason}{code}{signal}")
}

fn survivors(not_ended: &[String]) -> String {
    if not_ended.is_empty() {
        return String::new();
    }
    format!(", not ended: {}", not_ended.join(", "))
}

fn digest_of(outputs: &Map<String, Value>) -> Option<String> {
    if outputs.is_empty() {
        return None;
    }
    canonical::hash(outputs).ok().map(|hash| digest_text(&hash))
}

/// Parses the text form of a digest.
fn hash(text: &str) -> Option<Hash> {
    hex::decode(text.strip_prefix("sha256:")?).ok()?.try_into().ok()
}
