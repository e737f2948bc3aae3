//! What runners signed of their work, in the events of a log: whether each report was made by the runner that it is
//! said to be of, and says what that runner said.
//!
//! [`Fact::read`] needs one event alone. [`Reports`] takes the facts of a log in their order and gives back the
//! signatures, which are checked in any order.
//!
//! | of a runner | signed | held against it |
//! |---|---|---|
//! | a plan | digest, job, execution | file, summary and tool of the event, and the job's manifest make the digest |
//! | how an execution ended | a statement, kept with the event | job, execution, runner, outcome, reason, exit code, signal, processes that outlived it; the job's manifest; outputs, where they are in clear |
//! | the end of a log | in that statement | length, digest, what was omitted |
use serde::Deserialize;
use serde_json::{Map, Value};

mod known;
mod reports;
mod signature;
#[cfg(test)]
mod tests;

pub use reports::{Reports, Tally};
pub use signature::{Signature, Wrong};

/// DSSE payload type of the statement under an execution's end.
pub const STATEMENT: &str = "application/vnd.stead.execution.v1+json";

/// What an event says about reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The runner, or the job.
    of: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// This is the runner's key from here on, hexadecimal.
    Key(String),
    /// From here on nothing that it signs counts.
    Revoked,
    /// The manifest of the job.
    Queued(String),
    Claimed(Claimed),
    /// It waits for a runner again.
    Requeued(Over),
    Lost(Over),
    Resolved(Resolved),
    Outputs(Outputs),
    Planned(Box<Planned>),
    Ended(Box<Ended>),
    LogFinalized(LogFinalized),
    /// It is a report, and not even its own words can be read.
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

/// Which attempt is over.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Over {
    execution: String,
}

/// Somebody decided what became of it; the end that follows is directly behind.
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
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Ended {
    execution: Option<String>,
    seq: Option<u64>,
    /// Of a late result, which is named by no type.
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

impl Fact {
    /// What an event of this stream and type says with its payload as it is kept. `None`: nothing about reports.
    /// Nothing that is read here is ever sealed but outputs.
    pub fn read(
        (aggregate_type, aggregate_id): (&str, &str),
        event_type: &str,
        payload: &[u8],
    ) -> Option<Fact> {
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
        Some(Fact { of: aggregate_id.to_owned(), kind })
    }
}

fn json<'p, T: Deserialize<'p>>(payload: &'p [u8]) -> Option<T> {
    serde_json::from_slice(payload).ok()
}

/// The type of the event is the outcome, but for a late result's.
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
