//! Converts a report to the domain, within the size limits of its event.
use std::collections::BTreeMap;

use domain::{
    check,
    isolation::Isolation,
    job::{ExecutionResult, FailureReason, Report},
};
use schemas::{
    runner::{Finished, NOT_ENDED, OUTPUTS_BYTES, Outcome, ReportBody},
    sanitize::sanitize,
};
use serde_json::Value;

use crate::{
    problem::{Code, Problem},
    usecases::steps::truncated,
};

/// Maximum number of characters of one entry of `not_ended`.
const MAX_NAME_CHARS: usize = 64;

/// Converts a report body, or returns `None` for a report that is only displayed.
pub(super) fn to_report(body: ReportBody) -> Option<Report> {
    Some(match body {
        ReportBody::Started { isolation } => {
            Report::Started { isolation: isolation.map(Isolation::without_repetitions) }
        }
        ReportBody::Phase { name } => Report::Phase { phase: name },
        ReportBody::Plan(plan) => Report::Plan(plan),
        ReportBody::Outputs { outputs, .. } => {
            Report::Outputs { outputs: limit_outputs(outputs).into() }
        }
        ReportBody::State(state) => Report::State { state },
        ReportBody::Artifact(artifact) => Report::Artifact(artifact),
        ReportBody::Checks { checks } => Report::Checks { checks: check::limited(checks) },
        ReportBody::Refused { rule, detail, .. } => {
            let detail = truncated(if detail.is_empty() { &rule } else { &detail });
            let (exit_code, signal, not_ended) = (None, None, Vec::new());
            let reason = FailureReason::Refused;
            Report::Finished(ExecutionResult::Failed {
                reason,
                detail,
                exit_code,
                signal,
                not_ended,
            })
        }
        ReportBody::CancelProgress { .. } => return None,
        ReportBody::Finished(finished) => Report::Finished(result(finished)),
    })
}

fn result(finished: Finished) -> ExecutionResult {
    let Finished { outcome, exit_code, signal, reason, detail, forced, not_ended, .. } = finished;
    match outcome {
        Outcome::Succeeded => ExecutionResult::Succeeded { exit_code, not_ended },
        Outcome::Cancelled => ExecutionResult::Cancelled { forced, not_ended },
        Outcome::Failed => {
            let reason = match (reason, signal, exit_code) {
                (Some(reason), _, _) => reason,
                (None, Some(_), _) => FailureReason::Signal,
                (None, None, Some(_)) => FailureReason::ExitCode,
                (None, None, None) => FailureReason::Internal,
            };
            ExecutionResult::Failed {
                reason,
                detail: truncated(&detail),
                exit_code,
                signal,
                not_ended,
            }
        }
    }
}

/// Limits outputs to the size of their event. Removes the largest first, because rejecting the
/// report would lose the result of completed work. The removal is deterministic, so a repeated
/// report stays equal.
fn limit_outputs(mut outputs: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let size = |name: &String, value: &Value| name.len() + value.to_string().len();
    let mut total: usize = outputs.iter().map(|(name, value)| size(name, value)).sum();
    while total > OUTPUTS_BYTES {
        let largest = outputs.iter().max_by_key(|(name, value)| size(name, value));
        let Some((name, bytes)) = largest.map(|(name, value)| (name.clone(), size(name, value)))
        else {
            break;
        };
        tracing::warn!(
            output = name,
            bytes,
            "Omitted an output: the outputs of the report exceed their size limit"
        );
        outputs.remove(&name);
        total -= bytes;
    }
    outputs
}

/// Rejects process names that the event cannot store as they were signed: too many, too long, or
/// with control characters.
pub(super) fn check_not_ended(finished: &Finished) -> Result<(), Problem> {
    let is_plain =
        |name: &String| name.chars().count() <= MAX_NAME_CHARS && sanitize(name) == *name;
    if finished.not_ended.len() <= NOT_ENDED && finished.not_ended.iter().all(is_plain) {
        return Ok(());
    }
    let detail = format!(
        "invalid not_ended: the limits are {NOT_ENDED} entries and {MAX_NAME_CHARS} characters per entry, without control characters; shorten it"
    );
    Err(Problem::new(Code::Invalid, detail))
}
