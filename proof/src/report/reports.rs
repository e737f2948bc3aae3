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
    known: ReportState,
    /// Last resolution: its position, job and content.
    decided: Option<(u64, String, Resolved)>,
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
    /// Returns a verifier that starts before the first event (`whole`) or within a log. Within a
    /// log, such a verifier skips reports of jobs that were claimed earlier.
    pub fn new(whole: bool) -> Reports {
        Reports { whole, ..Reports::default() }
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> ReportCounts {
        self.tally
    }

    /// Takes the next event. The caller must still check the returned signature.
    ///
    /// # Errors
    /// [`ReportError`]: the report is forged, altered or unreadable, even if its signature is valid.
    pub fn take(
        &mut self,
        position: u64,
        fact: ReportEvent,
    ) -> Result<Option<Signature>, ReportError> {
        let ReportEvent { of, kind } = fact;
        match kind {
            Kind::Key(key) => self.known.runner(of).key = Some(key),
            Kind::Revoked => {
                self.known.runner(of).revoked.get_or_insert(position);
            }
            Kind::Queued(manifest) => self.known.job(&of).manifest = hash(&manifest),
            Kind::Claimed(claimed) => self.known.claimed(&of, claimed),
            Kind::Requeued(EndedExecution { execution }) => {
                self.known.job(&of).is_held = false;
                self.known.over(&of, &execution);
            }
            Kind::Lost(EndedExecution { execution }) => drop(self.known.over(&of, &execution)),
            Kind::Resolved(resolved) => self.decided = Some((position, of, resolved)),
            Kind::Outputs(Outputs { execution, outputs }) => {
                self.known.reported(&of, &execution, outputs);
            }
            Kind::Planned(planned) => return self.planned(position, &of, &planned),
            Kind::Ended(ended) => return self.ended(position, &of, &ended),
            Kind::LogFinalized(sealed) => self.sealed(position, &of, sealed)?,
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
        let Some((_, runner)) = self.known.run(job, execution) else {
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
        let manifest = self.known.seen(job).and_then(|job| job.manifest);
        // The job was queued before the first event that the verifier took, so its manifest is
        // unknown.
        if manifest.is_none() && !self.whole {
            return Ok(None);
        }
        self.tally.signed += 1;
        let wrong = |why: &str| ReportError::of(position, &runner, why);
        let [digest, file, summary] = [&plan.digest, &plan.file, &plan.summary].map(|of| hash(of));
        let (Some(digest), Some(file), Some(summary), Some(manifest)) =
            (digest, file, summary, manifest)
        else {
            return Err(wrong("a digest of the plan is invalid, or the job has no manifest"));
        };
        if plan::digest_of(&file, &summary, &manifest, &plan.tool) != digest {
            return Err(wrong("file, summary, tool and manifest differ from the signed plan"));
        }
        let said = plan::statement(&digest, job, execution);
        let said = dsse::pre_authentication(plan::STATEMENT, &said);
        let signature = plan.signature.clone();
        Ok(Some(Signature { position, runner, key, said, signature }))
    }

    fn ended(
        &mut self,
        position: u64,
        job: &str,
        ended: &Ended,
    ) -> Result<Option<Signature>, ReportError> {
        let Some(signed) = &ended.signed else {
            if let Some(execution) = &ended.execution {
                self.known.over(job, execution);
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
        let said: Statement = serde_json::from_str(&signed.statement)
            .map_err(|_| wrong("its stored statement cannot be read"))?;
        let of = (said.version, &*said.runner, &*said.job, &*said.execution);
        if of != (1, &*runner, job, execution) {
            return Err(wrong("the statement belongs to another runner, job or execution"));
        }
        if !says(ended, &said) {
            let why = format!(
                "the event records {}, but the runner signed {}",
                told(&ended.outcome, ended.reason.as_deref(), ended.exit_code, ended.signal)
                    + &left(&ended.not_ended),
                told(&said.outcome, said.reason.as_deref(), said.exit_code, said.signal)
                    + &left(&said.not_ended),
            );
            return Err(wrong(&why));
        }
        let manifest = self.known.seen(job).and_then(|job| job.manifest);
        let is_known = self.whole || manifest.is_some();
        let is_another = |stated: &String| hash(stated).is_none_or(|hash| Some(hash) != manifest);
        let ran_another = is_known && said.manifest.as_ref().is_some_and(is_another);
        if ran_another || (said.manifest.is_none() && ended.outcome == "succeeded") {
            return Err(wrong("the runner signed another manifest than the job's"));
        }
        // A late result has no outputs to compare: the server ignored its outputs.
        if let Some(outputs) = self.known.over(job, execution).filter(|_| !ended.late)
            && digest_of(&outputs) != said.outputs
        {
            return Err(wrong("the reported outputs differ from the signed ones"));
        }
        if let Some((run, _)) = self.known.run(job, execution) {
            run.log = said.log.map(|log| log.id());
        }
        let said = dsse::pre_authentication(STATEMENT, signed.statement.as_bytes());
        let signature = signed.signature.clone();
        Ok(Some(Signature { position, runner, key, said, signature }))
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
        let known = self.known.seen(job);
        let is_decided = match (&ended.execution, &self.decided) {
            (Some(execution), Some((at, of, resolved))) => {
                (at + 1, &**of, &*resolved.execution, &*resolved.resolution)
                    == (position, job, &**execution, &*ended.outcome)
            }
            (Some(_), None) => false,
            // The job had no runner: it was cancelled, or its queue time expired.
            (None, _) => ended.outcome != "succeeded" && !known.is_some_and(|job| job.is_held),
        };
        // A part of the log can begin directly after a resolution, so the resolution of an unknown
        // job may be missing.
        if is_decided || (known.is_none() && !self.whole) {
            return Ok(());
        }
        let what = "the result has neither a runner report nor a resolution".into();
        Err(ReportError { position, what })
    }

    fn sealed(
        &mut self,
        position: u64,
        job: &str,
        sealed: LogFinalized,
    ) -> Result<(), ReportError> {
        let LogFinalized { execution, length_bytes, sha256, omitted_bytes, complete } = sealed;
        let kept = Log { length_bytes, sha256, omitted_bytes }.id();
        match self.known.run(job, &execution) {
            Some((run, runner)) if complete && run.log.is_some_and(|signed| signed != kept) => {
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
fn says(ended: &Ended, said: &Statement) -> bool {
    let code = ended.exit_code == said.exit_code;
    ended.outcome == said.outcome
        && ended.not_ended == said.not_ended
        && match &*ended.outcome {
            "succeeded" => code,
            "failed" => code && ended.signal == said.signal && reason(said) == ended.reason,
            _ => true,
        }
}

/// Returns the reason that the event must have: the runner's reason, or the type of the failure if
/// the runner gave none.
fn reason(said: &Statement) -> Option<String> {
    let given = said.reason.clone();
    let kind = match (said.signal, said.exit_code) {
        (Some(_), _) => "signal",
        (None, Some(_)) => "exit_code",
        (None, None) => "internal",
    };
    given.or_else(|| Some(kind.to_owned()))
}

fn told(outcome: &str, reason: Option<&str>, code: Option<i64>, signal: Option<i64>) -> String {
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let code = code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let signal = signal.map(|signal| format!(", signal {signal}")).unwrap_or_default();
    format!("{outcome}{reason}{code}{signal}")
}

fn left(not_ended: &[String]) -> String {
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
