//! Verification of signed runner reports in the events of a log. It checks that the runner of the
//! execution signed the report, and that the event matches the signed statement.
//!
//! [`ReportEvent::read`] parses a single event. [`Reports`] takes the events of a log in order and
//! returns the signatures, which can be checked in any order.
//!
//! | report | signed content | compared with |
//! |---|---|---|
//! | plan | digest, job, execution | digest of the event's file, summary and tool and the job's manifest |
//! | execution result | statement, stored with the event | job, execution, runner, outcome, reason, exit code, signal, surviving processes; the job's manifest; unencrypted outputs |
//! | log end | part of that statement | length, digest, omitted bytes |
use serde::Deserialize;
use serde_json::{Map, Value};

mod reports;
mod signature;
mod state;
#[cfg(test)]
mod tests;

pub use reports::{ReportCounts, Reports};
pub use signature::{ReportError, Signature};

/// DSSE payload type of a signed execution statement.
pub const STATEMENT: &str = "application/vnd.stead.execution.v1+json";

/// Event that concerns runner reports.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportEvent {
    /// Id of the runner or job.
    id: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// Identity key of the runner from this event on, hexadecimal.
    Key(String),
    /// The runner is revoked: later signatures are invalid.
    Revoked,
    /// The job was queued with this manifest.
    Queued(String),
    Claimed(Claimed),
    /// The job is queued again after an execution.
    Requeued(EndedExecution),
    Lost(EndedExecution),
    Resolved(Resolved),
    Outputs(Outputs),
    Planned(Box<Planned>),
    Ended(Box<Ended>),
    LogFinalized(LogFinalized),
    /// The event is a report with an unreadable payload.
    Unreadable(&'static str),
}

#[derive(Deserialize)]
struct Enrolled {
    identity_key: String,
}

#[derive(Deserialize)]
struct Queued {
    manifest: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Claimed {
    execution: String,
    runner: String,
}

/// Payload of an event that ends an execution without a result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct EndedExecution {
    execution: String,
}

/// Resolution of an unknown outcome. The next event of the log records the consequence.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Resolved {
    execution: String,
    resolution: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Outputs {
    execution: String,
    outputs: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Planned {
    execution: String,
    plan: Plan,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Plan {
    digest: String,
    file: String,
    summary: String,
    tool: String,
    signature: String,
    /// Parts of a plan digest of version 2.
    v2: Option<PlanV2>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct PlanV2 {
    details: Option<String>,
    plugin: Option<String>,
    tool: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Ended {
    execution: Option<String>,
    seq: Option<u64>,
    /// Outcome of a late result. For other results, the event type contains the outcome.
    #[serde(default)]
    outcome: String,
    reason: Option<String>,
    exit_code: Option<i64>,
    signal: Option<i64>,
    signed: Option<Signed>,
    #[serde(default)]
    not_ended: Vec<String>,
    #[serde(skip)]
    late: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Signed {
    statement: String,
    key: String,
    signature: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct LogFinalized {
    execution: String,
    length_bytes: u64,
    sha256: String,
    omitted_bytes: u64,
    complete: bool,
}

impl ReportEvent {
    /// Parses a stored event. Returns `None` if the event does not concern reports, and for an
    /// unreadable event that is neither a plan nor a result. Of the parsed fields, only outputs can
    /// be encrypted.
    pub fn read(
        (aggregate_type, aggregate_id): (&str, &str),
        event_type: &str,
        payload: &[u8],
    ) -> Option<ReportEvent> {
        let kind = match (aggregate_type, event_type) {
            ("runner", "runner.enrolled" | "runner.rekeyed") => {
                Kind::Key(json::<Enrolled>(payload)?.identity_key)
            }
            ("runner", "runner.revoked") => Kind::Revoked,
            ("job", "job.queued") => Kind::Queued(json::<Queued>(payload)?.manifest),
            ("job", "job.claimed") => Kind::Claimed(json(payload)?),
            ("job", "job.requeued") => Kind::Requeued(json(payload)?),
            ("job", "job.lost") => Kind::Lost(json(payload)?),
            ("job", "job.outcome_resolved") => Kind::Resolved(json(payload)?),
            ("job", "job.outputs_reported") => Kind::Outputs(json(payload)?),
            ("job", "job.plan_produced") => match json(payload) {
                Some(planned) => Kind::Planned(Box::new(planned)),
                None => Kind::Unreadable("plan"),
            },
            ("job", "job.succeeded") => ended(payload, Some("succeeded")),
            ("job", "job.failed") => ended(payload, Some("failed")),
            ("job", "job.cancelled") => ended(payload, Some("cancelled")),
            ("job", "job.late_result_reported") => ended(payload, None),
            ("job", "job.log_finalized") => Kind::LogFinalized(json(payload)?),
            _ => return None,
        };
        Some(ReportEvent { id: aggregate_id.to_owned(), kind })
    }
}

fn json<'p, T: Deserialize<'p>>(payload: &'p [u8]) -> Option<T> {
    serde_json::from_slice(payload).ok()
}

/// Takes the outcome from the event type, or from the payload of a late result.
fn ended(payload: &[u8], outcome: Option<&str>) -> Kind {
    match json::<Ended>(payload) {
        Some(mut ended) => {
            ended.late = outcome.is_none();
            ended.outcome = outcome.map_or(ended.outcome, str::to_owned);
            Kind::Ended(Box::new(ended))
        }
        None => Kind::Unreadable("end"),
    }
}
