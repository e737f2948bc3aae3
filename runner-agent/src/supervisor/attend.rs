//! One execution, from its shim's files to the server: reports in order, the log, the last word.
use std::{fs, sync::Arc, time::Duration};

use domain::ids::{ExecutionId, JobId};
use reqwest::{Method, header::HeaderName};
use schemas::runner::{
    EXECUTION, Exit, Finished, PendingCancel, PlanReport, Report, ReportAnswer, ReportBody,
};
use tracing::{error, info, warn};

use super::{
    Agent,
    adopt::{Known, Stage},
    report::Reports,
    spawn,
    spool::{SpoolError, Upload},
    tidy::tidy,
};
use crate::{
    client::{Ask, Refused},
    data::JobDir,
    host::Process,
    journal::Fact,
    shim::order::{CancelOrder, Cause},
};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Between two chunks of a log whose job is over: what the server allows a runner.
const PACE: Duration = Duration::from_millis(60);
/// How long to wait before speaking again to a server that does not listen.
const UNWANTED: Duration = Duration::from_secs(30);

/// How many looks in a row may fail to read what a shim said before it counts as gone without a word.
const UNREADABLE: u32 = 600;
/// How many chunks a server may take without having more of the log than before.
const STALLED: u32 = 20;

/// Why an execution is attended no more.
enum Over {
    /// The server knows everything.
    Reported,
    /// It is not the current one.
    Refused(Refused),
    /// The shim is gone without a last word.
    Vanished,
}

struct Attendance {
    agent: Arc<Agent>,
    job: JobId,
    execution: ExecutionId,
    claim_id: String,
    dir: JobDir,
    shim: Option<Process>,
    /// How it ended, when the journal knows.
    exit: Option<Exit>,
    upload: Upload,
    reports: Reports,
}

/// Attend an execution until the server knows how it ended.
pub(super) fn begin(agent: &Arc<Agent>, known: Known) {
    let Some(execution) = known.execution else { return };
    let shim = match &known.stage {
        Stage::Spawned(process) => Some(process.clone()),
        Stage::Claiming
        | Stage::Claimed
        | Stage::Refused { .. }
        | Stage::Spawning
        | Stage::Exited(_) => None,
    };
    let attended = super::Attended {
        execution: Some(execution),
        shim: shim.clone(),
        ..super::Attended::default()
    };
    agent.state().running.insert(known.job, attended);
    agent.changed.notify_one();
    let settings = agent.state().log;
    let mut attendance = Attendance {
        agent: Arc::clone(agent),
        job: known.job,
        execution,
        claim_id: known.claim_id.clone(),
        dir: agent.data.job(execution),
        shim,
        exit: None,
        upload: Upload::new(settings),
        reports: Reports::of(execution, &agent.data.job(execution)),
    };
    match known.stage {
        Stage::Refused { by, rule, detail } => {
            let body = ReportBody::Refused { by, rule, detail };
            attendance.reports.add(Report { execution, seq: 1, body, log_len: 0 });
        }
        Stage::Exited(exit) => attendance.exit = Some(exit),
        Stage::Claiming | Stage::Claimed | Stage::Spawning | Stage::Spawned(_) => {}
    }
    tokio::spawn(async move {
        let over = attendance.attend().await;
        attendance.over(over);
    });
}

impl Attendance {
    async fn attend(&mut self) -> Over {
        let mut unreadable = 0;
        loop {
            // Looked at before the files: what a shim wrote last is there once it is gone.
            let gone = self.shim.as_ref().is_none_or(|shim| !shim.lives());
            unreadable = if self.read_reports() { 0 } else { unreadable + 1 };
            match self.send_reports().await {
                Ok(Some(over)) => return over,
                Ok(None) => {}
                Err(refused) => match self.mend(refused).await {
                    Some(over) => return over,
                    None => continue,
                },
            }
            if let Some(last) = self.reports.last_word() {
                match self.finish(&last).await {
                    Some(over) => return over,
                    None => continue,
                }
            }
            match self.send_log(gone).await {
                // The server waited long enough for the log, and sealed what it had. How it ended is still wanted.
                Err(SpoolError::Refused(refused)) if is_unknown_there(&refused) => {
                    self.upload.give_up();
                }
                Err(SpoolError::Refused(refused)) => {
                    if let Some(over) = self.mend(*refused).await {
                        return over;
                    }
                }
                Ok(()) | Err(SpoolError::Disk(_)) => {}
            }
            // The last word may stand in what could not be read just now.
            if gone && (unreadable == 0 || unreadable >= UNREADABLE) {
                if let Some(exit) = self.exit.take() {
                    self.speak_for_the_shim(exit);
                    continue;
                }
                return Over::Vanished;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A shim that had no disk for its last word, or whose files somebody removed: the journal has it.
    fn speak_for_the_shim(&mut self, exit: Exit) {
        let log = fs::read(self.dir.log()).unwrap_or_default();
        let detail = "the shim's last word is not on disk; this is what the runner's journal says";
        let (execution, seq, log_len) = (self.execution, self.reports.next_seq(), log.len() as u64);
        let body = ReportBody::Finished(spawn::last_word(exit, detail.into(), &log));
        self.reports.add(Report { execution, seq, body, log_len });
    }

    /// What can be done about a refusal: say it again, wait, or nothing.
    async fn mend(&mut self, refused: Refused) -> Option<Over> {
        let expected = refused.problem.number("expected").filter(|_| refused.code() == "seq_gap");
        match expected {
            // The server has forgotten what it had: everything from there on again.
            Some(expected) if self.reports.rewind(expected) => None,
            _ if refused.code() == "seq_conflict" && self.reports.skip() => None,
            // Only these say that it is not ours any more.
            _ if matches!(refused.status, 404 | 412) => Some(Over::Refused(refused)),
            _ if matches!(refused.status, 401 | 403) => {
                // We are not wanted, at least now. What runs is not ended by that.
                warn!(execution.id = %self.execution, "The server does not listen: {refused}");
                tokio::time::sleep(UNWANTED).await;
                None
            }
            Some(_) | None => {
                // A defect of one side must not end work that is well: the server ends it with a 412 at its
                // deadline, unless somebody mends it before.
                error!(execution.id = %self.execution, "The server takes no report: {refused}");
                tokio::time::sleep(UNWANTED).await;
                None
            }
        }
    }

    /// `false`: they could not be read this time.
    fn read_reports(&mut self) -> bool {
        match self.reports.read() {
            Ok(None) => true,
            Ok(phase) => {
                self.note(|attended| attended.phase = phase);
                true
            }
            Err(error) => {
                warn!(execution.id = %self.execution, %error, "The reports cannot be read");
                false
            }
        }
    }

    fn note(&self, note: impl FnOnce(&mut super::Attended)) {
        self.agent.note(self.job, Some(self.execution), note);
    }

    /// Send all but the last word, in order.
    async fn send_reports(&mut self) -> Result<Option<Over>, Refused> {
        while let Some(report) = self.reports.next() {
            if matches!(report.body, ReportBody::Finished(_)) {
                return Ok(None);
            }
            let refusal = matches!(report.body, ReportBody::Refused { .. });
            if refusal && !self.reports.are_ours() {
                // A refusal ends the job; the server must know by then that there is a log.
                match self.send_log(true).await {
                    Ok(()) | Err(SpoolError::Disk(_)) => {}
                    Err(SpoolError::Refused(refused)) => return Err(*refused),
                }
            }
            self.report(report).await?;
            // Our own refusal is the last word: there is no shim and no log.
            if refusal && self.reports.are_ours() {
                return Ok(Some(Over::Reported));
            }
        }
        Ok(None)
    }

    async fn report(&mut self, mut report: Report) -> Result<(), Refused> {
        if let ReportBody::Plan(plan) = &mut report.body {
            self.send_summary(plan).await;
            let (job, execution) = (self.job.to_string(), self.execution.to_string());
            let said = proof::plan::statement(&plan.digest.bytes(), &job, &execution);
            plan.signature = proof::plan::sign(&said, &self.agent.keys.identity);
        }
        let answer = self.post(&report).await?;
        self.reports.told(report.seq);
        self.pending(answer.1.cancel);
        Ok(())
    }

    async fn post(&self, report: &Report) -> Result<(u16, ReportAnswer), Refused> {
        let path = format!("/runner/v1/jobs/{}/events", self.job);
        let ask = Ask::json(Method::POST, path, report).map_err(|error| ours(&error))?;
        let ask = ask.header(HeaderName::from_static(EXECUTION), &self.execution.to_string());
        let answer = self.agent.client.send::<ReportAnswer>(&ask).await?;
        Ok((answer.status, answer.body.unwrap_or_default()))
    }

    /// The summary's bytes, before the report that names them.
    async fn send_summary(&self, plan: &PlanReport) {
        let name = plan.summary.to_string();
        let bytes = match fs::read(self.dir.blobs().join(&name)) {
            Ok(bytes) => bytes,
            Err(error) => {
                let execution = self.execution;
                return warn!(execution.id = %execution, %error, "A plan's summary is gone");
            }
        };
        let ask = Ask::new(Method::PUT, format!("/runner/v1/blobs/{name}"))
            .bytes(bytes)
            .header(HeaderName::from_static(EXECUTION), &self.execution.to_string())
            .header(reqwest::header::CONTENT_TYPE, "application/json");
        if let Err(refused) = self.agent.client.send::<serde_json::Value>(&ask).await {
            warn!(execution.id = %self.execution, "A plan's summary was not taken: {refused}");
        }
    }

    async fn send_log(&mut self, now: bool) -> Result<(), SpoolError> {
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

    /// The last word first, so that everyone knows; then the rest of the log, until the server has it all.
    /// `None`: something before it has to be said again.
    async fn finish(&mut self, last: &Report) -> Option<Over> {
        let ReportBody::Finished(Finished { log_len, .. }) = &last.body else {
            return Some(Over::Vanished);
        };
        let mut mismatches = 0;
        loop {
            match self.post(last).await {
                Ok((202, answer)) if !self.upload.is_broken() => {
                    self.upload.rewind(answer.have.unwrap_or(0).min(*log_len));
                }
                Ok(_) => return Some(Over::Reported),
                Err(refused) if refused.code() == "log_mismatch" && mismatches < 3 => {
                    mismatches += 1;
                    warn!(execution.id = %self.execution, "The server has another log, sending it again");
                    self.upload.rewind(0);
                }
                Err(refused) => return self.mend(refused).await,
            }
            let mut stalled = 0;
            while self.upload.have() < *log_len && !self.upload.is_broken() && stalled < STALLED {
                let length = fs::metadata(self.dir.log()).map_or(0, |log| log.len());
                let before = self.upload.have();
                match self.send_log(true).await {
                    Ok(()) if length >= *log_len => {}
                    // The log is sealed, or the job another's: the answer to the last word says which.
                    Err(SpoolError::Refused(refused)) if refused.status == 412 => {
                        self.upload.give_up();
                    }
                    Err(SpoolError::Refused(refused)) => return self.mend(*refused).await,
                    // Somebody removed or cut it: the server seals what it has.
                    Ok(()) | Err(SpoolError::Disk(_)) => {
                        warn!(execution.id = %self.execution, "The log has {length} bytes of {log_len}");
                        return Some(Over::Reported);
                    }
                }
                stalled = if self.upload.have() > before { 0 } else { stalled + 1 };
                tokio::time::sleep(PACE).await;
            }
            // Between two last words there is a breath, whatever the server answers.
            tokio::time::sleep(PACE).await;
        }
    }

    fn pending(&self, cancel: Option<PendingCancel>) {
        if let Some(PendingCancel { reason, grace_s, force }) = cancel {
            let grace_ms = if force { grace_s.min(5) } else { grace_s } * 1_000;
            let order = CancelOrder { reason, grace_ms: Some(grace_ms), cause: Cause::Cancel };
            self.agent.cancel(self.execution, &order);
        }
    }

    fn over(&self, over: Over) {
        let (job, execution, claim_id) = (self.job, self.execution, self.claim_id.clone());
        let fact = match over {
            Over::Reported => {
                info!(job.id = %job, execution.id = %execution, "{execution} is done and reported");
                Fact::Reported { job, execution }
            }
            Over::Refused(refused) => {
                let why = refused.to_string();
                warn!(job.id = %job, execution.id = %execution, "Nothing more is said of {execution}: {why}");
                let reason = "the job is no longer this runner's".into();
                let cause = Cause::AgentStop;
                self.agent.cancel(execution, &CancelOrder { reason, grace_ms: None, cause });
                Fact::Abandoned { job, claim_id, why }
            }
            Over::Vanished => {
                // Only a session can say that nobody knows how it ended.
                warn!(job.id = %job, execution.id = %execution, "The shim of {execution} is gone without a word");
                // Its place is free before that one is opened, which begins anew if there is a last word after all.
                self.agent.release(job, Some(execution));
                return self.agent.ask_anew();
            }
        };
        if let Err(error) = self.agent.journal.write(fact) {
            warn!(%error, "The journal cannot be written");
        }
        self.agent.release(job, Some(execution));
        let agent = Arc::clone(&self.agent);
        tokio::spawn(async move { tidy(&agent).await });
    }
}

/// A chunk was refused, and yet nobody else has the job: the server does not know how it ended.
fn is_unknown_there(refused: &Refused) -> bool {
    let state = refused.problem.more.get("job_state").and_then(|state| state.as_str());
    refused.status == 412 && state == Some("outcome_unknown")
}

fn ours(why: &dyn std::fmt::Display) -> Refused {
    let problem =
        schemas::problem::Problem::new(0, "internal", "The runner could not ask", why.to_string());
    Refused { status: 0, problem, have: None }
}
