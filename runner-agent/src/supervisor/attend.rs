//! One execution, from its shim's files to the server: reports in order, the log, the last word.
mod sign;
mod tell;

use std::{fs, sync::Arc, time::Duration};

use domain::ids::{ExecutionId, JobId};
use schemas::runner::{Exit, Finished, Report, ReportBody};
use tracing::{info, warn};

use super::{
    Agent,
    adopt::{Known, Stage},
    patience::Patience,
    report::Reports,
    spawn,
    spool::{SpoolError, Upload},
    tidy::tidy,
};
use crate::{
    client::Refused,
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
    patience: Patience,
    /// The server takes no statement of this execution: its end goes without one.
    unsigned: bool,
}

/// Attend an execution until the server knows how it ended.
pub(super) fn begin(agent: &Arc<Agent>, known: Known) {
    begin_with(agent, known, UNWANTED);
}

/// The same, with this pause before a server that refuses is spoken to again.
pub(super) fn begin_with(agent: &Arc<Agent>, known: Known, pause: Duration) {
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
        patience: Patience::new(pause),
        unsigned: false,
    };
    match known.stage {
        Stage::Refused { by, rule, detail } => {
            let body = ReportBody::Refused { by, rule, detail };
            attendance.reports.replace_with(Report {
                execution,
                seq: 1,
                body,
                log_len: 0,
                end: None,
            });
        }
        // Its reports may be lost, and with them that it began.
        Stage::Exited(exit) if !known.children.is_empty() => {
            let reason = tell::nothing_is_proven(exit.reason);
            attendance.exit = Some(Exit { reason, ..exit });
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
        let (mut unreadable, mut unseen) = (0, 0);
        loop {
            // Looked at before the files: what a shim wrote last is there once it is gone.
            let gone = self.is_shim_gone(&mut unseen);
            unreadable = if self.read_reports() { 0 } else { unreadable + 1 };
            if self.patience.may_report() {
                match self.send_reports().await {
                    Ok(Some(over)) => return over,
                    Ok(None) => {}
                    Err(refused) => match self.mend(refused) {
                        Some(over) => return over,
                        None if self.patience.may_report() => continue,
                        None => {}
                    },
                }
            }
            if self.patience.may_report()
                && let Some(last) = self.reports.last_word()
            {
                match self.finish(&last).await {
                    Some(over) => return over,
                    None => continue,
                }
            }
            if self.patience.may_send_log() {
                match self.send_log(gone).await {
                    // The server waited long enough for the log, and sealed what it had. How it ended is still wanted.
                    Err(SpoolError::Refused(refused)) if is_unknown_there(&refused) => {
                        self.upload.give_up();
                    }
                    Err(SpoolError::Refused(refused)) => {
                        if let Some(over) = self.mend(*refused) {
                            return over;
                        }
                    }
                    Ok(()) | Err(SpoolError::Disk(_)) => {}
                }
            }
            // The last word may stand in what could not be read just now.
            let is_read = unreadable == 0 || unreadable >= UNREADABLE;
            if gone && is_read && self.reports.end().is_none() {
                let Some(exit) = self.exit.clone() else { return Over::Vanished };
                self.speak_for_the_shim(exit);
                continue;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the shim has ended. `unseen` counts how often in a row nothing could be learned of it.
    fn is_shim_gone(&self, unseen: &mut u32) -> bool {
        match self.shim.as_ref().map_or(Ok(false), Process::is_alive) {
            Ok(alive) => {
                *unseen = 0;
                !alive
            }
            Err(error) => {
                if unseen.is_multiple_of(UNREADABLE) {
                    warn!(execution.id = %self.execution, %error, "Cannot tell whether the shim runs, retrying");
                }
                *unseen += 1;
                false
            }
        }
    }

    /// A shim that had no disk for its last word, or whose files somebody removed: the journal has it.
    fn speak_for_the_shim(&mut self, exit: Exit) {
        let log = fs::read(self.dir.log()).unwrap_or_default();
        let detail = "the shim's last word is not on disk; this is what the runner's journal says";
        let (execution, seq, log_len) = (self.execution, self.reports.next_seq(), log.len() as u64);
        let body = ReportBody::Finished(spawn::last_word(exit, detail.into(), &log));
        self.reports.end_with(Report { execution, seq, body, log_len, end: None });
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

    /// The last word first, so that everyone knows; then the rest of the log, until the server has it all.
    /// `None`: something before it has to be said again.
    async fn finish(&mut self, last: &Report) -> Option<Over> {
        let ReportBody::Finished(Finished { log_len, .. }) = &last.body else {
            return Some(Over::Vanished);
        };
        let mut mismatches = 0;
        loop {
            // Signed again whenever it is said again: while the log went up the key may have become another one.
            let said = Report { end: self.signed(last), ..last.clone() };
            match self.post(&said).await {
                Ok((202, answer)) if !self.upload.is_broken() => {
                    self.upload.rewind(answer.committed_bytes.unwrap_or(0).min(*log_len));
                }
                Ok(_) => return Some(Over::Reported),
                Err(refused) if refused.code() == "log_mismatch" && mismatches < 3 => {
                    mismatches += 1;
                    warn!(execution.id = %self.execution, "The server has another log, sending it again");
                    self.upload.rewind(0);
                }
                Err(refused) => return self.mend(refused),
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
                    Err(SpoolError::Refused(refused)) => return self.mend(*refused),
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
                Fact::Abandoned { job, claim_id, reason: why }
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

#[cfg(test)]
mod tests;
