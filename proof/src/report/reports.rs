//! The reports of a log, one after the other: whose they are, and whether the event says what was signed.
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Ended, Fact, Kind, LogFinalized, Outputs, Over, Planned, Resolved, STATEMENT, Signature, Wrong,
    known::{Id, Known},
};
use crate::{Hash, canonical, digest_text, dsse, plan};

/// How many reports there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Plans and ends of executions that are signed.
    pub signed: u64,
    /// Ends of executions that nobody signed: the server's word alone.
    pub unsigned: u64,
    /// Where the first of these is.
    pub first_unsigned: Option<u64>,
}

/// Takes the facts of a log in. What it keeps in memory: see `Known`.
#[derive(Debug, Default)]
pub struct Reports {
    /// Whether it began at the first event: then what was not seen is not there.
    whole: bool,
    known: Known,
    /// The last decision: where, and of which job.
    decided: Option<(u64, String, Resolved)>,
    tally: Tally,
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
    /// Before the first event; or somewhere within a log, where a report of a job that was claimed before is not
    /// looked at.
    pub fn new(whole: bool) -> Reports {
        Reports { whole, ..Reports::default() }
    }

    /// What was seen so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Take the next fact in. What it gives back is still to be checked.
    ///
    /// # Errors
    /// [`Wrong`]: whatever the signature, this is not what its runner said.
    pub fn take(&mut self, position: u64, fact: Fact) -> Result<Option<Signature>, Wrong> {
        let Fact { of, kind } = fact;
        match kind {
            Kind::Key(key) => self.known.runner(of).key = Some(key),
            Kind::Revoked => {
                self.known.runner(of).revoked.get_or_insert(position);
            }
            Kind::Queued(manifest) => self.known.job(&of).manifest = hash(&manifest),
            Kind::Claimed(claimed) => self.known.claimed(&of, claimed),
            Kind::Requeued(Over { execution }) => {
                self.known.job(&of).is_held = false;
                self.known.over(&of, &execution);
            }
            Kind::Lost(Over { execution }) => drop(self.known.over(&of, &execution)),
            Kind::Resolved(resolved) => self.decided = Some((position, of, resolved)),
            Kind::Outputs(Outputs { execution, outputs }) => {
                self.known.reported(&of, &execution, outputs);
            }
            Kind::Planned(planned) => return self.planned(position, &of, &planned),
            Kind::Ended(ended) => return self.ended(position, &of, &ended),
            Kind::LogFinalized(sealed) => self.sealed(position, &of, sealed)?,
            Kind::Unreadable(what) => {
                let what = format!("the {what} that is reported here cannot be read");
                return Err(Wrong { position, what });
            }
        }
        Ok(None)
    }

    /// Who had it, and their key. `None`: it was claimed before what is looked at.
    fn holder(
        &mut self,
        position: u64,
        job: &str,
        execution: &str,
    ) -> Result<Option<(String, String)>, Wrong> {
        let Some((_, runner)) = self.known.run(job, execution) else {
            let what =
                format!("this report was not made by any runner: nobody has claimed {execution}");
            return if self.whole { Err(Wrong { position, what }) } else { Ok(None) };
        };
        if let Some(at) = runner.revoked {
            let why = format!("its key was revoked at position {at}");
            return Err(Wrong::of(position, &runner.id, &why));
        }
        match &runner.key {
            Some(key) => Ok(Some((runner.id.clone(), key.clone()))),
            None if self.whole => Err(Wrong::of(position, &runner.id, "it has never enrolled")),
            None => Ok(None),
        }
    }

    fn planned(
        &mut self,
        position: u64,
        job: &str,
        planned: &Planned,
    ) -> Result<Option<Signature>, Wrong> {
        let Planned { execution, plan } = planned;
        let Some((runner, key)) = self.holder(position, job, execution)? else { return Ok(None) };
        let manifest = self.known.seen(job).and_then(|job| job.manifest);
        // It was queued before what is looked at: whoever reads the whole log knows its manifest.
        if manifest.is_none() && !self.whole {
            return Ok(None);
        }
        self.tally.signed += 1;
        let wrong = |why: &str| Wrong::of(position, &runner, why);
        let [digest, file, summary] = [&plan.digest, &plan.file, &plan.summary].map(|of| hash(of));
        let (Some(digest), Some(file), Some(summary), Some(manifest)) =
            (digest, file, summary, manifest)
        else {
            return Err(wrong("a digest of the plan cannot be read, or the job has no manifest"));
        };
        if plan::digest_of(&file, &summary, &manifest, &plan.tool) != digest {
            return Err(wrong("file, summary, tool and manifest are not those of the signed plan"));
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
    ) -> Result<Option<Signature>, Wrong> {
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
        let wrong = |why: &str| Wrong::of(position, &runner, why);
        if signed.key != key {
            return Err(wrong("it is signed by a key that was not the runner's at this position"));
        }
        let said: Statement = serde_json::from_str(&signed.statement)
            .map_err(|_| wrong("the statement that is kept with it cannot be read"))?;
        let of = (said.version, &*said.runner, &*said.job, &*said.execution);
        if of != (1, &*runner, job, execution) {
            return Err(wrong("the statement is of another runner, job or execution"));
        }
        if !says(ended, &said) {
            let why = format!(
                "the event says {}, and the runner signed {}",
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
            return Err(wrong("the runner signed that it ran another manifest than the job's"));
        }
        // What came too late came after the server stopped listening.
        if let Some(outputs) = self.known.over(job, execution).filter(|_| !ended.late)
            && digest_of(&outputs) != said.outputs
        {
            return Err(wrong("the outputs that were reported are not those that it signed"));
        }
        if let Some((run, _)) = self.known.run(job, execution) {
            run.log = said.log.map(|log| log.id());
        }
        let said = dsse::pre_authentication(STATEMENT, signed.statement.as_bytes());
        let signature = signed.signature.clone();
        Ok(Some(Signature { position, runner, key, said, signature }))
    }

    /// With a place among a runner's reports it is the server's word for what that runner said. Without one it is a
    /// decision, and has to be one.
    fn unsigned(&mut self, position: u64, job: &str, ended: &Ended) -> Result<(), Wrong> {
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
            // Nobody had it: it was cancelled, or waited for too long.
            (None, _) => ended.outcome != "succeeded" && !known.is_some_and(|job| job.is_held),
        };
        // Of a job that is not known in this part, the decision may be the last event before it.
        if is_decided || (known.is_none() && !self.whole) {
            return Ok(());
        }
        let what = "no runner reported this end, and nobody decided it".into();
        Err(Wrong { position, what })
    }

    fn sealed(&mut self, position: u64, job: &str, sealed: LogFinalized) -> Result<(), Wrong> {
        let LogFinalized { execution, length_bytes, sha256, omitted_bytes, complete } = sealed;
        let kept = Log { length_bytes, sha256, omitted_bytes }.id();
        match self.known.run(job, &execution) {
            Some((run, runner)) if complete && run.log.is_some_and(|signed| signed != kept) => {
                let what = format!("this log is not the one that the runner {} signed", runner.id);
                Err(Wrong { position, what })
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

/// What an event says of an end that is also in the statement; the rest is not in the event.
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

/// The server says for a runner that gives no reason what kind of failure it was.
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

/// A digest as everybody writes it.
fn hash(text: &str) -> Option<Hash> {
    hex::decode(text.strip_prefix("sha256:")?).ok()?.try_into().ok()
}
