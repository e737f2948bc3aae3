//! Checks of the signed statement in a final report: the runner signed it, and it matches the
//! report and the recorded outputs.
use std::collections::BTreeMap;

use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId},
    job::{Execution, Job, JobEvent, SignedResult, State},
};
use proof::{
    canonical,
    dsse::{self, Envelope},
};
use schemas::runner::{
    FailureReason, Finished, Outcome, Report, ReportBody, STATEMENT_TYPE, SignedEnd, SignedLog,
    Statement,
};

use super::keys;
use crate::{
    extract::RunnerCaller,
    problem::{Code, Problem},
    runner::grant,
    state::App,
};

/// Returns the statement of this report, if it has one. Rejects it unless it is signed by the
/// runner's current key, names this execution, and agrees with the report and the recorded outputs.
pub(super) async fn check(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    body: &Report,
) -> Result<Option<SignedResult>, Problem> {
    let Some(SignedEnd { statement: envelope, .. }) = &body.end else { return Ok(None) };
    let Some(reported) = StatementFields::of(&body.body) else {
        return Err(invalid_statement("only a final report may have a statement"));
    };
    let (payload, hex) = verified_payload(app, runner, envelope).await?;
    // The event stores one signature with its key, so the statement must have exactly one.
    let [only] = &envelope.signatures[..] else {
        return Err(invalid_statement("it must have exactly one signature"));
    };
    let statement: Statement = serde_json::from_slice(&payload)
        .map_err(|error| invalid_statement(&format!("cannot parse it: {error}")))?;
    let of_this = (statement.version, statement.runner, statement.job, statement.execution);
    if of_this != (1, runner.id, job, body.execution) {
        return Err(invalid_statement(
            "its version, runner, job or execution does not match the report",
        ));
    }
    if reported != StatementFields::by(&statement) {
        return Err(invalid_statement(
            "its outcome, reason, exit code, signal, log or processes differ from the report",
        ));
    }
    let loaded = app.engine.load::<Job>(job).await?;
    let manifest = loaded.work.as_ref().map(|work| &work.manifest);
    let is_another = statement.manifest.as_ref().is_some_and(|stated| Some(stated) != manifest);
    let is_missing = statement.manifest.is_none() && statement.outcome == Outcome::Succeeded;
    if is_missing {
        return Err(invalid_statement("it has no manifest, although the job succeeded"));
    }
    if is_another {
        return Err(invalid_statement("its manifest is not the manifest of the job"));
    }
    if let Some(stated) = &statement.grant {
        check_grant(app, job, body.execution, stated).await?;
    }
    check_outputs(app, job, body, &statement).await?;
    let statement =
        String::from_utf8(payload).map_err(|_| invalid_statement("its payload is not text"))?;
    Ok(Some(SignedResult { statement, key: hex, signature: only.sig.clone() }))
}

/// Returns the payload that this runner signed, and the key.
async fn verified_payload(
    app: &App,
    runner: &RunnerCaller,
    envelope: &Envelope,
) -> Result<(Vec<u8>, String), Problem> {
    let known = keys::cached_keys(app, runner).await?;
    if let Ok(payload) = dsse::verify_as(STATEMENT_TYPE, envelope, &known.current) {
        return Ok((payload, known.hex));
    }
    let current = keys::logged_keys(app, runner).await?;
    match dsse::verify_as(STATEMENT_TYPE, envelope, &current.current) {
        Ok(payload) => Ok((payload, current.hex)),
        Err(_) if dsse::verify_as(STATEMENT_TYPE, envelope, &current.former).is_ok() => {
            Err(keys::former_key_problem(runner, "statement"))
        }
        Err(error) => {
            Err(invalid_statement(&format!("{error}; sign it with this runner's identity key")))
        }
    }
}

/// Fields that must be equal in the report and the statement.
#[derive(PartialEq)]
struct StatementFields {
    outcome: Outcome,
    reason: Option<FailureReason>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    log: Option<SignedLog>,
    not_ended: Vec<String>,
}

impl StatementFields {
    fn of(body: &ReportBody) -> Option<StatementFields> {
        match body {
            ReportBody::Finished(last) => {
                let Finished { outcome, reason, exit_code, signal, not_ended, .. } = last.clone();
                let sha256 = format!("sha256:{}", last.log_sha256.trim_start_matches("sha256:"));
                let (length_bytes, omitted_bytes) = (last.log_len, last.omitted);
                let sha256 = sha256.parse().ok();
                let log = sha256.map(|sha256| SignedLog { length_bytes, sha256, omitted_bytes });
                Some(StatementFields { outcome, reason, exit_code, signal, log, not_ended })
            }
            ReportBody::Refused { .. } => {
                let reason = Some(FailureReason::Refused);
                let (outcome, exit_code, signal, log) = (Outcome::Failed, None, None, None);
                let not_ended = Vec::new();
                Some(StatementFields { outcome, reason, exit_code, signal, log, not_ended })
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

    fn by(statement: &Statement) -> StatementFields {
        let Statement { outcome, reason, exit_code, signal, log, not_ended, .. } =
            statement.clone();
        StatementFields { outcome, reason, exit_code, signal, log, not_ended }
    }
}

/// Checks that the statement's grant is a grant of this execution.
async fn check_grant(
    app: &App,
    job: JobId,
    execution: ExecutionId,
    stated: &Digest,
) -> Result<(), Problem> {
    if grant::is_issued(app, job, execution, stated).await? {
        return Ok(());
    }
    Err(invalid_statement("its grant is unknown or belongs to another execution"))
}

fn execution_of(job: &Job, execution: ExecutionId) -> Option<&Execution> {
    let current = match &job.state {
        State::Claimed(current) | State::Running(current) | State::OutcomeUnknown(current) => {
            Some(current)
        }
        State::NotCreated | State::Queued { .. } | State::Ended { .. } => None,
    };
    current.into_iter().chain(&job.lost).find(|current| current.id == execution)
}

/// Checks that the outputs match those in the log, if this report is the next one. The job
/// aggregate rejects any other report.
async fn check_outputs(
    app: &App,
    job: JobId,
    body: &Report,
    statement: &Statement,
) -> Result<(), Problem> {
    let known = app.engine.load::<Job>(job).await?;
    if outputs_match(&known, body, statement)? {
        return Ok(());
    }
    // Another server may just have recorded the outputs.
    let loaded = app.engine.log().reload::<Job>(&job.to_string()).await?.state;
    match outputs_match(&loaded, body, statement)? {
        true => Ok(()),
        false => Err(invalid_statement("its outputs differ from the reported ones")),
    }
}

fn outputs_match(job: &Job, body: &Report, statement: &Statement) -> Result<bool, Problem> {
    let comes_next = body.seq == job.reports.len() as u64 + 1;
    if !comes_next || execution_of(job, body.execution).is_none() || job.has_lost(body.execution) {
        return Ok(true);
    }
    let mut outputs = BTreeMap::new();
    for report in &job.reports {
        if let JobEvent::OutputsReported { outputs: more, .. } = report {
            outputs.extend(more.clone());
        }
    }
    let digest = match outputs.is_empty() {
        true => None,
        false => Some(canonical::hash(&outputs).map_err(Problem::internal)?.into()),
    };
    Ok(digest == statement.outputs)
}

fn invalid_statement(detail: &str) -> Problem {
    Problem::new(Code::StatementInvalid, format!("invalid statement: {detail}"))
}
