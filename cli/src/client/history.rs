//! History of an install from its bundle alone: requests, approvals with reasons, jobs, and the
//! runners that signed the results. The bundle is untrusted input.
use std::collections::{BTreeSet, HashMap};

use domain::{
    history::{of_events, references},
    ids::{JobId, PrincipalId},
    recorded::{DomainEvent, RawEvent, RecordedEvent},
};
use proof::{
    bundle::{Annotations, Bundle, Content, Event, Subject},
    report::{self, ReportCounts, Reports},
};
use schemas::control::history::{EventSummary, HistoryConverter, RunActivity};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sanitize;

/// Value of an encrypted field.
const ENCRYPTED: &str = "[encrypted]";

/// The history of an install, with every string sanitized.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProvenHistory {
    /// Runs with their events and results.
    pub runs: Vec<RunActivity>,
    /// Events that belong to no run.
    pub other_events: Vec<EventSummary>,
    /// Jobs whose result has a valid signature of the runner that ran them.
    pub signed: BTreeSet<JobId>,
    /// Number of results without a runner's signature.
    pub unsigned: u64,
    /// Positions of events that this version cannot read. The proof covers these events too.
    pub unreadable: Vec<u64>,
}

/// Reasons to reject a history although every event of the bundle is in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// A report that its runner did not sign.
    #[error("{0}")]
    Forged(#[from] report::ReportError),
    /// A stream that an event names is not in the bundle.
    #[error(
        "the file is incomplete: position {position} refers to {stream}, which is missing; request a new bundle"
    )]
    LeftOut {
        position: u64,
        /// Stream, in the form `<aggregate type>/<aggregate id>`.
        stream: String,
    },
    #[error("cannot write the history as JSON: {0}")]
    Unwritable(String),
}

/// Returns the history of an install from its bundle. `None` if the bundle has another subject, or
/// has hashes instead of contents.
///
/// # Errors
/// [`HistoryError`].
pub fn proven_history(bundle: &Bundle) -> Result<Option<ProvenHistory>, HistoryError> {
    let Subject::Streams(streams) = &bundle.subject else { return Ok(None) };
    let streams: BTreeSet<&str> = streams.iter().map(String::as_str).collect();
    let (mut history, mut reports) = (ProvenHistory::default(), Reports::new(true));
    let mut recorded: Vec<RecordedEvent> = vec![];
    for event in &bundle.events {
        let Content::Open { payload, metadata, .. } = &event.content else { return Ok(None) };
        let is_signed = reported(&mut reports, event, payload)?;
        let Some(events) = decoded(event, (payload, metadata), bundle.annotations.as_ref()) else {
            history.unreadable.push(event.position);
            continue;
        };
        for one in events {
            let named_streams = references(&one).into_iter().map(|stream| stream.to_string());
            if let Some(stream) = named_streams.into_iter().find(|name| !streams.contains(&**name))
            {
                return Err(HistoryError::LeftOut { position: event.position, stream });
            }
            if let DomainEvent::Job(job, job_event) = &one.domain_event
                && is_signed
                && job_event.is_end()
            {
                history.signed.insert(*job);
            }
            recorded.push(one);
        }
    }
    let ReportCounts { unsigned, .. } = reports.tally();
    history.unsigned = unsigned;
    let names = names(bundle.annotations.as_ref());
    let (history_of_events, show) = (of_events(&recorded), HistoryConverter { names: &names });
    history.runs = history_of_events.runs.into_iter().map(|run| show.run(run)).collect();
    history.other_events =
        history_of_events.other_events.into_iter().map(|event| show.event(event)).collect();
    sanitized(&history).map(Some)
}

/// Checks the runner's signature of a report. Returns `true` if the event is a report with a
/// signature.
fn reported(
    reports: &mut Reports,
    event: &Event,
    payload: &str,
) -> Result<bool, report::ReportError> {
    let stream = (&*event.aggregate_type, &*event.aggregate_id);
    let Some(report_event) =
        report::ReportEvent::read(stream, &event.event_type, payload.as_bytes())
    else {
        return Ok(false);
    };
    let signature = reports.take(event.position, report_event)?;
    signature.as_ref().map(report::Signature::check).transpose()?;
    Ok(signature.is_some())
}

/// Decodes an event, with the bundle's text for an encrypted reason. A reason in clear text stays
/// as in the log.
fn decoded(
    event: &Event,
    (payload, metadata): (&str, &str),
    annotations: Option<&Annotations>,
) -> Option<Vec<RecordedEvent>> {
    let reasons = annotations.and_then(|added| added.reasons.as_ref());
    let reason = reasons.and_then(|reasons| reasons.get(&event.position));
    let payload = match reason {
        Some(reason) => {
            let mut value: Value = serde_json::from_str(payload).ok()?;
            if value.get("reason").is_some_and(|is| is == ENCRYPTED) {
                value["reason"] = Value::String(reason.clone());
            }
            value.to_string()
        }
        None => payload.to_owned(),
    };
    let at = chrono::DateTime::from_timestamp_micros(event.recorded_at_us)?;
    let raw = RawEvent {
        position: event.position,
        sequence: event.sequence,
        at,
        aggregate: &event.aggregate_type,
        id: &event.aggregate_id,
        event_type: &event.event_type,
        version: &event.version.to_string(),
        payload: &payload,
        metadata,
    };
    raw.decode().ok()
}

fn names(annotations: Option<&Annotations>) -> HashMap<PrincipalId, String> {
    let names = annotations.and_then(|added| added.names.as_ref()).into_iter().flatten();
    names.filter_map(|(id, name)| Some((id.parse().ok()?, name.clone()))).collect()
}

/// Returns the history with every string sanitized and without encrypted fields.
fn sanitized(history: &ProvenHistory) -> Result<ProvenHistory, HistoryError> {
    let unwritable = |error: serde_json::Error| HistoryError::Unwritable(error.to_string());
    let mut value = serde_json::to_value(history).map_err(unwritable)?;
    remove_encrypted(&mut value);
    sanitize::sanitize_json(&mut value);
    serde_json::from_value(value).map_err(unwritable)
}

fn remove_encrypted(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_encrypted),
        Value::Object(members) => {
            for field in ["reason", "detail"] {
                if members.get(field).is_some_and(|value| value == ENCRYPTED) {
                    members.remove(field);
                }
            }
            members.values_mut().for_each(remove_encrypted);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
