//! Recorder of the shim. It writes the log, the reports and the journal entries of an execution,
//! and redacts the lines, phases, outputs and details in them.
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::{
    check::limited,
    go_text,
    ids::{ExecutionId, JobId},
};
use schemas::{
    manifest::{AcceptedState, StateVersion},
    runner::{
        Artifact, Check, Exit, Finished, LogStream, OUTPUTS_BYTES, PlanReport, Report, ReportBody,
        StateHead,
    },
    secret::{EncryptedValue, placeholder},
};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{
    log::Log,
    redact::{HeldBack, MARK, Redactor},
    redact_socket::Guard,
};
use crate::{
    cgroup::Limiter,
    data::{self, JobDir},
    host::Process,
    journal::{Journal, JournalEvent, Stop},
    plugins::{Background, PlanRecord, Sink, Stream},
    processes,
    state::StateMark,
    values::encrypt::Encrypter,
};

/// Largest number of reported phases. The log has all of them.
const MAX_PHASES: u32 = 64;
/// Bytes of disk that are reserved for the final report.
const RESERVE_BYTES: usize = 256 * 1024;
/// Length in bytes at which a line of a plugin is split and continues.
const SPLIT_LENGTH: usize = 1 << 20;

/// Longest detail of a final report in bytes.
pub const MAX_DETAIL_BYTES: usize = 4 * 1024;
/// Longest name of a phase in bytes.
const MAX_NAME_BYTES: usize = 120;

/// Largest reported output in bytes, with its name.
const MAX_OUTPUT_BYTES: usize = OUTPUTS_BYTES / 2;

/// Returns the outputs that a report can carry, and the names of the omitted outputs. Oversized
/// outputs must not fail completed work.
fn split_by_size(outputs: Map<String, Value>) -> (BTreeMap<String, Value>, Vec<String>) {
    let (mut fitting, mut withheld, mut left) = (BTreeMap::new(), Vec::new(), OUTPUTS_BYTES);
    for (name, value) in outputs {
        let size = serde_json::to_vec(&(&name, &value)).map_or(usize::MAX, |bytes| bytes.len());
        if size <= MAX_OUTPUT_BYTES && size <= left {
            left -= size;
            fitting.insert(name, value);
        } else {
            withheld.push(truncate(name, MAX_NAME_BYTES));
        }
    }
    (fitting, withheld)
}

/// Returns the text of a sensitive output, as later jobs receive it.
fn text_of(value: &Value) -> Zeroizing<String> {
    Zeroizing::new(value.as_str().map_or_else(|| go_text::json(value), str::to_owned))
}

/// Shortens a text to `limit` bytes, between two characters.
pub fn truncate(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// Writer of the log, the reports and the journal entries of one execution.
pub struct RecordWriter {
    pub job: JobId,
    pub execution: ExecutionId,
    dir: JobDir,
    journal: Journal,
    secrets: Vec<Zeroizing<String>>,
    redactor: Redactor,
    log: Log,
    reports: File,
    seq: u64,
    phases: u32,
    held_back: [HeldBack; 2],
    guard: Option<Guard>,
    /// `true` after a value could not be registered for redaction: the child's output is no longer
    /// shown.
    withheld: bool,
    /// Encrypts sensitive outputs. `None` if the runner has no keys of an install.
    encrypter: Option<Encrypter>,
    /// Limits every program that starts.
    limiter: Limiter,
}

const WITHHELD: &str = "[withheld]";

/// Shared handle of the [`RecordWriter`], for the plugin and for the shim.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<RecordWriter>>);

impl Recorder {
    /// Creates the log, the reports and the reserve.
    pub fn begin(
        (job, execution): (JobId, ExecutionId),
        dir: JobDir,
        journal: &Journal,
        secrets: Vec<Zeroizing<String>>,
        keep: u64,
    ) -> io::Result<Self> {
        let log = Log::begin(&dir, keep)?;
        let reports = data::append(&dir.reports())?;
        data::replace(&dir.reserve(), &[0; RESERVE_BYTES])?;
        data::sync_parent(&dir.reports())?;
        let redactor = Redactor::new(secrets.iter().map(|value| value.as_str()));
        let (seq, phases, held_back) = (0, 0, Default::default());
        let writer = RecordWriter {
            job,
            execution,
            dir,
            journal: journal.clone(),
            secrets,
            redactor,
            log,
            reports,
            seq,
            phases,
            held_back,
            guard: None,
            withheld: false,
            encrypter: None,
            limiter: Limiter::default(),
        };
        Ok(Recorder(Arc::new(Mutex::new(writer))))
    }

    /// Locks the writer. It stays usable if a plugin panicked while it held the lock.
    pub fn writer(&self) -> MutexGuard<'_, RecordWriter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordWriter {
    /// Appends a report and syncs it to disk.
    pub fn report(&mut self, body: ReportBody) -> io::Result<()> {
        let (execution, seq, log_len) = (self.execution, self.seq + 1, self.log.length());
        // The supervisor signs the final report: a shim has no key.
        let report = Report { execution, seq, body, log_len, end: None, details: None };
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        let length = self.reports.metadata()?.len();
        if let Err(error) = self.reports.write_all(&line) {
            // Remove a report that was written only in part.
            let _best_effort = self.reports.set_len(length);
            return Err(error);
        }
        self.seq = seq;
        self.reports.sync_data()
    }

    /// Limits the programs that start from now on.
    pub(super) fn limit_with(&mut self, limiter: Limiter) {
        self.limiter = limiter;
    }

    /// Adds a record of the shim to the log.
    pub fn write_shim_record(&mut self, text: &str) {
        let clean = self.redactor.text(text);
        self.log.write_shim_record(&clean);
    }

    /// Sets the keys that encrypt sensitive outputs.
    pub(crate) fn encrypt_with(&mut self, encrypter: Option<Encrypter>) {
        self.encrypter = encrypter;
    }

    /// Registers values to redact.
    pub fn add_secrets(&mut self, values: Vec<Zeroizing<String>>) {
        if !values.is_empty() {
            self.secrets.extend(values);
            self.redactor = Redactor::new(self.secrets.iter().map(|value| value.as_str()));
        }
    }

    /// Registers a value to redact.
    pub fn add_secret(&mut self, value: Zeroizing<String>) {
        self.add_secrets(vec![value]);
    }

    /// Returns a text without secret values, or a placeholder if output is withheld.
    pub fn redacted(&self, text: &str) -> String {
        if self.withheld { WITHHELD.into() } else { self.redactor.text(text) }
    }

    /// Shows the job's output only while this guard allows it.
    pub fn set_guard(&mut self, guard: Guard) {
        self.guard = Some(guard);
    }

    /// Stops showing the output of the child.
    pub fn withhold(&mut self) {
        if !self.withheld {
            self.withheld = true;
            self.log.write_shim_record(
                "a value could not be registered for redaction: the rest of the output is withheld",
            );
        }
    }

    /// Returns whether output is withheld. The check comes after the child's write and before the
    /// output is recorded, so output that follows an unregistered value is not shown.
    fn is_withheld(&mut self) -> bool {
        if !self.withheld && self.guard.as_ref().is_some_and(|guard| !guard.may_show()) {
            self.withhold();
        }
        self.withheld
    }

    /// Returns the log, for its clock and its syncs.
    pub fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn line(&mut self, stream: Stream, bytes: &[u8]) {
        if stream != Stream::Runner && self.is_withheld() {
            // Records only that output arrived, so that the time without output starts again.
            return self.log.lines(LogStream::Out, b"");
        }
        let (stream, held_back) = match stream {
            Stream::Out => (LogStream::Out, &mut self.held_back[0]),
            Stream::Err => (LogStream::Err, &mut self.held_back[1]),
            Stream::Runner => {
                let mut clean = self.redactor.bytes(bytes);
                clean.push(b'\n');
                return self.log.lines(LogStream::Shim, &clean);
            }
        };
        let shown = self.redactor.line(held_back, bytes, bytes.len() >= SPLIT_LENGTH);
        self.log.lines(stream, &shown);
    }

    fn plan(&mut self, plan: PlanRecord) -> io::Result<()> {
        // An approval covers the digest of this summary. So the summary cannot be redacted, only
        // rejected.
        if self.redactor.value(plan.summary.clone()) != plan.summary {
            return Err(io::Error::other("the summary of the plan contains a secret value"));
        }
        let bytes = proof::canonical::json(&plan.summary).map_err(io::Error::other)?;
        data::replace(&self.dir.blobs().join(plan.summary_digest.to_string()), &bytes)?;
        let PlanRecord { digest, file, summary_digest: summary, noop, .. } = plan;
        let PlanRecord { add, change, destroy, tool, v2, details, .. } = plan;
        if let Some(details) = details {
            // The supervisor adds the details to the report, so that they are not stored twice.
            data::replace_json(&self.dir.blobs().join(details.digest().to_string()), &details)?;
        }
        // The supervisor signs the plan: a shim has no key.
        let signature = String::new();
        let v2 = Some(v2);
        let plan =
            PlanReport { digest, file, summary, noop, add, change, destroy, tool, signature, v2 };
        self.report(ReportBody::Plan(plan))
    }

    /// Writes the final report. The log is finalized first, because report and journal describe it.
    pub fn finish(&mut self, mut last: Finished) -> io::Result<()> {
        // Removing the reserve makes space for the final report on a full disk.
        let _best_effort = data::remove(&self.dir.reserve());
        for (index, stream) in [LogStream::Out, LogStream::Err].into_iter().enumerate() {
            let rest = self.redactor.flush(&mut self.held_back[index]);
            self.log.lines(stream, &rest);
        }
        let detail = match self.is_withheld() {
            true => "a value could not be registered for redaction: output and detail are withheld"
                .into(),
            false => self.redactor.text(&last.detail),
        };
        last.detail = truncate(detail, MAX_DETAIL_BYTES);
        let finalized = self.log.finalize();
        (last.log_len, last.log_sha256, last.omitted) =
            (finalized.length, finalized.sha256, finalized.omitted);
        let exit = Exit {
            outcome: last.outcome,
            code: last.exit_code,
            signal: last.signal,
            reason: last.reason,
        };
        // Journal the result even if the report cannot be written: the agent then reports it from
        // the journal.
        let reported = self.report(ReportBody::Finished(last));
        let (job, execution) = (self.job, self.execution);
        self.journal.write(JournalEvent::Exited { job, execution, exit })?;
        reported
    }

    pub fn journal(&self, event: JournalEvent) -> io::Result<()> {
        self.journal.write(event)
    }
}

impl Background for Recorder {
    fn secret(&self, value: Zeroizing<String>) {
        self.writer().add_secret(value);
    }

    fn line(&self, text: &str) {
        self.writer().write_shim_record(text);
    }

    fn state(&self, component: &str, head: &StateHead) -> io::Result<()> {
        let writer = self.writer();
        writer.journal(JournalEvent::StateSeen {
            execution: writer.execution,
            component: component.into(),
            lineage: Some(head.lineage.clone()),
            serial: head.serial,
            digest: Some(head.digest.clone()),
        })
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Sink for Recorder {
    fn phase(&mut self, name: &str) {
        let mut writer = self.writer();
        // Redact before cutting: a secret that was cut would not be found.
        let withheld = writer.is_withheld();
        let name = if withheld {
            WITHHELD.into()
        } else {
            truncate(writer.redactor.text(name), MAX_NAME_BYTES)
        };
        writer.log.begin_phase(&name);
        writer.phases += 1;
        if writer.phases <= MAX_PHASES {
            // A phase that cannot be reported is missing in the timeline, but the work continues.
            if let Err(error) = writer.report(ReportBody::Phase { name }) {
                writer.write_shim_record(&format!("cannot report the phase: {error}"));
            }
        }
    }

    fn line(&mut self, stream: Stream, bytes: &[u8]) {
        self.writer().line(stream, bytes);
    }

    fn child(&mut self, pid: u32, stop: Stop) -> io::Result<()> {
        let mut writer = self.writer();
        if let Err(error) = writer.limiter.admit(pid) {
            writer.write_shim_record(&format!(
                "cannot limit the program with pid {pid} by a control group: {error}"
            ));
        }
        match Process::of(pid) {
            Ok(process) => writer.journal(JournalEvent::ChildStarted {
                execution: writer.execution,
                process,
                stop,
            }),
            Err(_) if !processes::exists(pid) => Ok(()),
            // The child runs and cannot be recorded in the journal, so it must not execute the
            // program.
            Err(error) => Err(error),
        }
    }

    fn redacted(&mut self, text: &str) -> Option<String> {
        let mut writer = self.writer();
        (!writer.is_withheld()).then(|| writer.redactor.text(text))
    }

    fn plan(&mut self, plan: PlanRecord) -> io::Result<()> {
        self.writer().plan(plan)
    }

    fn outputs(
        &mut self,
        outputs: Map<String, Value>,
        sensitive: Map<String, Value>,
    ) -> io::Result<()> {
        let mut writer = self.writer();
        if writer.is_withheld() {
            let why = "a value could not be registered for redaction: the outputs are withheld";
            return Err(io::Error::other(why));
        }
        let names: Vec<String> = sensitive.keys().cloned().collect();
        let texts = sensitive.values().map(text_of).collect();
        let (placeholders, values) = match &writer.encrypter {
            Some(encrypter) => encrypter.outputs(sensitive)?,
            None => (Map::new(), Vec::new()),
        };
        for name in names.iter().filter(|name| !placeholders.contains_key(*name)) {
            writer.write_shim_record(&format!(
                "output {name} is sensitive and is not reported: this runner has no keys to encrypt it, or it is larger \
                 than 64 KiB, or the sensitive outputs of the job exceed 512 KiB"
            ));
        }
        let clean = |(name, value): (String, Value)| {
            let clean = writer.redactor.value(value.clone());
            let changed = (clean != value).then(|| name.clone());
            (writer.redactor.text(&name), clean, changed)
        };
        let cleaned: Vec<_> = outputs.into_iter().map(clean).collect();
        // Texts after this point are redacted. An output that the component declares as not
        // sensitive keeps its value even if it is part of a sensitive one, such as a host name.
        writer.add_secrets(texts);
        for name in cleaned.iter().filter_map(|(_, _, changed)| changed.as_ref()) {
            writer.write_shim_record(&format!(
                "output {name} contains a sensitive value, which is replaced by {MARK}; declare the output as sensitive"
            ));
        }
        let cleaned = cleaned.into_iter().map(|(name, value, _)| (name, value));
        let (outputs, withheld) = split_by_size(cleaned.chain(placeholders).collect());
        let is_reported =
            |value: &EncryptedValue| outputs.values().any(|text| *text == *placeholder(value.id));
        let values = values.into_iter().filter(is_reported).collect();
        for name in withheld {
            writer.write_shim_record(&format!(
                "cannot report output {name}: the limits are {} KiB per output and {} KiB for all outputs of a job; its \
                 value stays on this host",
                MAX_OUTPUT_BYTES / 1024,
                OUTPUTS_BYTES / 1024
            ));
        }
        writer.report(ReportBody::Outputs { outputs, values })
    }

    fn state(
        &mut self,
        component: &str,
        mark: &StateMark,
        digest: Option<String>,
    ) -> io::Result<()> {
        let mut writer = self.writer();
        let (execution, component) = (writer.execution, component.to_owned());
        let (lineage, serial) = (mark.lineage.clone(), mark.serial);
        writer.journal(JournalEvent::StateSeen {
            execution,
            component,
            lineage: lineage.clone(),
            serial,
            digest: digest.clone(),
        })?;
        match lineage {
            Some(lineage) => {
                writer.report(ReportBody::State(StateVersion { lineage, serial, digest }))
            }
            None => Ok(()),
        }
    }

    fn state_accepted(&mut self, component: &str, accepted: &AcceptedState) -> io::Result<()> {
        let writer = self.writer();
        let (execution, component) = (writer.execution, component.to_owned());
        let AcceptedState { version: StateVersion { lineage, serial, digest: _ }, decision } =
            accepted.clone();
        writer.journal(JournalEvent::StateAccepted {
            execution,
            component,
            lineage,
            serial,
            decision,
        })
    }

    fn checks(&mut self, checks: Vec<Check>) -> io::Result<()> {
        let mut writer = self.writer();
        let _asks_the_guard = writer.is_withheld();
        let clean = |check: Check| Check {
            component: check.component.map(|name| writer.redacted(&name)),
            check: writer.redacted(&check.check),
            status: check.status,
            message: writer.redacted(&check.message),
        };
        let checks = limited(checks.into_iter().map(clean).collect());
        writer.report(ReportBody::Checks { checks })
    }

    fn artifact(&mut self, artifact: Artifact) -> io::Result<()> {
        self.writer().report(ReportBody::Artifact(artifact))
    }
}

#[cfg(test)]
mod tests;
