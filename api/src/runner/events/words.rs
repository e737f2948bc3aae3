//! A report in the words of the domain, in a size that its event can hold.
use std::collections::BTreeMap;

use domain::job::{ExecutionResult, FailureReason, Report as Said};
use schemas::{
    harmless::harmless,
    runner::{Finished, NOT_ENDED, OUTPUTS_BYTES, Outcome, ReportBody},
};
use serde_json::Value;

use crate::{
    problem::{Code, Problem},
    usecases::steps::shortened,
};

/// Characters of one entry of `not_ended`.
const NAME: usize = 64;

/// What it is to the job; `None`: it is for the eye only.
pub(super) fn said(body: ReportBody) -> Option<Said> {
    Some(match body {
        ReportBody::Started {} => Said::Started,
        ReportBody::Phase { name } => Said::Phase { phase: name },
        ReportBody::Plan(plan) => Said::Plan(plan),
        ReportBody::Outputs { outputs } => Said::Outputs { outputs: fitting(outputs).into() },
        ReportBody::State(state) => Said::State { state },
        ReportBody::Artifact(artifact) => Said::Artifact(artifact),
        ReportBody::Refused { rule, detail, .. } => {
            let detail = shortened(if detail.is_empty() { &rule } else { &detail });
            let (exit_code, signal, not_ended) = (None, None, Vec::new());
            let reason = FailureReason::Refused;
            Said::Finished(ExecutionResult::Failed { reason, detail, exit_code, signal, not_ended })
        }
        ReportBody::CancelProgress { .. } => return None,
        ReportBody::Finished(finished) => Said::Finished(result(finished)),
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
                detail: shortened(&detail),
                exit_code,
                signal,
                not_ended,
            }
        }
    }
}

/// The outputs that fit into the events that will hold them: of too much, the largest are left out.
/// The work is done; to refuse to hear of it would lose that. The same outputs always come out the
/// same, so a repeated report is the same report.
fn fitting(mut outputs: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let size = |name: &String, value: &Value| name.len() + value.to_string().len();
    let mut total: usize = outputs.iter().map(|(name, value)| size(name, value)).sum();
    while total > OUTPUTS_BYTES {
        let largest = outputs.iter().max_by_key(|(name, value)| size(name, value));
        let Some((name, bytes)) = largest.map(|(name, value)| (name.clone(), size(name, value)))
        else {
            break;
        };
        tracing::warn!(output = name, bytes, "The output {name} has {bytes} bytes and is left out");
        outputs.remove(&name);
        total -= bytes;
    }
    outputs
}

/// Rejects processes that the event cannot hold as they were signed: too many, too long, or with control characters.
pub(super) fn check_not_ended(finished: &Finished) -> Result<(), Problem> {
    let is_plain = |name: &String| name.chars().count() <= NAME && harmless(name) == *name;
    if finished.not_ended.len() <= NOT_ENDED && finished.not_ended.iter().all(is_plain) {
        return Ok(());
    }
    let detail = format!(
        "not_ended has more than {NOT_ENDED} entries, or one with control characters or more than {NAME} \
         characters; shorten it"
    );
    Err(Problem::new(Code::Invalid, detail))
}
