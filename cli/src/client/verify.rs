//! Verifies exported events without trust in the server: computes leaves, chain and tree from their
//! bytes.
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use proof::{
    Hash, chain,
    checkpoint::Checkpoint,
    leaf::{self, Leaf},
    report::{ReportCounts, ReportError, ReportEvent, Reports},
    tree::Edge,
};
use schemas::control::audit::EventRecord;

use super::export_line::hex_of;

/// Maximum number of forged reports that a verifier collects.
const MAX_FORGED_REPORTS: usize = 100;

/// Verifies every event of a log, from the first one on. The memory use depends on the number of
/// streams and jobs, not on the number of events. It is about 100 MiB for a million streams, plus
/// the manifest and the runner of each job.
#[derive(Debug)]
pub struct Verifier {
    edge: Edge,
    chain: Hash,
    last: Option<DateTime<Utc>>,
    sequences: HashMap<String, u64>,
    reports: Reports,
    wrong: Vec<ReportError>,
}

/// Failed check, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A gap, a repetition or a wrong order.
    #[error("position {expected} is missing: {found} follows {}", expected - 1)]
    Position { expected: u64, found: u64 },
    /// A stream with a gap or a repetition.
    #[error("position {position}: {stream} continues at sequence {found} instead of {expected}")]
    Sequence { position: u64, stream: String, expected: u64, found: u64 },
    #[error("position {0} has an earlier time than the position before it")]
    Time(u64),
    #[error("position {0}: {1} cannot be read")]
    Field(u64, &'static str),
    #[error("position {0}: the event does not match its leaf hash")]
    Leaf(u64),
    #[error(
        "position {0}: the chain link does not match: the link of this event or the event before was changed"
    )]
    Chain(u64),
    #[error("the log does not match the checkpoint at {0}: history was rewritten")]
    Rewritten(u64),
    #[error(
        "the checkpoint covers {promised} events, but the log has {found}: events were removed"
    )]
    Truncated { promised: u64, found: u64 },
}

impl Verifier {
    /// Creates a verifier that expects the first event of this log.
    pub fn new(log_id: &str) -> Self {
        Verifier {
            edge: Edge::default(),
            chain: chain::genesis(log_id),
            last: None,
            sequences: HashMap::new(),
            reports: Reports::new(true),
            wrong: vec![],
        }
    }

    /// Forged reports, at most 100. Their hashes are valid, so a party that can write the log
    /// created them.
    pub fn forged_reports(&self) -> &[ReportError] {
        &self.wrong
    }

    /// Numbers of signed reports and of results without a signature.
    pub fn tally(&self) -> ReportCounts {
        self.reports.tally()
    }

    /// Number of verified events.
    pub fn size(&self) -> u64 {
        self.edge.size()
    }

    /// Root hash over the verified events.
    pub fn root(&self) -> Hash {
        self.edge.root()
    }

    /// Verifies the next event.
    pub fn take(&mut self, event: &EventRecord) -> Result<(), Fault> {
        let at = event.position;
        let expected = self.edge.size() + 1;
        if at != expected {
            return Err(Fault::Position { expected, found: at });
        }
        let sequence = self.sequences.entry(event.stream.clone()).or_insert(0);
        *sequence += 1;
        if event.sequence != *sequence {
            let (stream, found) = (event.stream.clone(), event.sequence);
            return Err(Fault::Sequence { position: at, stream, expected: *sequence, found });
        }
        if self.last.is_some_and(|last| event.recorded_at < last) {
            return Err(Fault::Time(at));
        }
        let hash = leaf_of(event).map_err(|name| Fault::Field(at, name))?.hash();
        if hex::encode(hash) != event.leaf {
            return Err(Fault::Leaf(at));
        }
        self.chain = chain::next(&self.chain, &hash);
        if hex::encode(self.chain) != event.chain {
            return Err(Fault::Chain(at));
        }
        self.edge.push(hash, |_, _| {});
        self.last = Some(event.recorded_at);
        self.check_report(event);
        Ok(())
    }

    fn check_report(&mut self, event: &EventRecord) {
        let stream = event.stream.split_once('/').unwrap_or_default();
        let report_event =
            ReportEvent::read(stream, &event.event_type, event.payload.get().as_bytes());
        let Some(report_event) = report_event.filter(|_| self.wrong.len() < MAX_FORGED_REPORTS)
        else {
            return;
        };
        let report = self.reports.take(event.position, report_event);
        let checked = report.and_then(|report| report.map_or(Ok(()), |report| report.check()));
        self.wrong.extend(checked.err());
    }

    /// Compares the log with a checkpoint. The verifier must not be beyond the size of the
    /// checkpoint.
    pub fn agrees(&self, checkpoint: &Checkpoint) -> Result<(), Fault> {
        if self.size() < checkpoint.size {
            let (promised, found) = (checkpoint.size, self.size());
            return Err(Fault::Truncated { promised, found });
        }
        if self.root() == checkpoint.root { Ok(()) } else { Err(Fault::Rewritten(checkpoint.size)) }
    }
}

/// Computes the leaf of an event from its bytes. The error is the name of the unreadable field.
pub(super) fn leaf_of(event: &EventRecord) -> Result<Leaf<'_>, &'static str> {
    let salt: leaf::Salt =
        hex_of(&event.salt).and_then(|salt| salt.try_into().ok()).ok_or("salt")?;
    let (aggregate_type, aggregate_id) = event.stream.split_once('/').ok_or("stream")?;
    Ok(Leaf {
        position: event.position,
        event_id: event.event_id.0.to_bytes(),
        aggregate_type,
        aggregate_id,
        sequence: event.sequence,
        event_type: &event.event_type,
        event_version: leaf::version(&event.version).ok_or("version")?,
        recorded_at_us: event.recorded_at.timestamp_micros(),
        payload_hash: leaf::payload_hash(&salt, event.payload.get().as_bytes()),
        metadata_hash: leaf::metadata_hash(&salt, event.metadata.get().as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

    /// Log with these payloads, as in an export.
    fn log(payloads: &[&str]) -> Vec<EventRecord> {
        let mut link = chain::genesis(LOG);
        let mut events = Vec::new();
        for (at, payload) in payloads.iter().enumerate() {
            let mut event: EventRecord = serde_json::from_str(
                &json!({
                    "position": at + 1, "event_id": format!("evt_{LOG}"), "stream": "name/install/acme",
                    "sequence": at + 1, "type": "name.taken", "version": "1", "actor": "system",
                    "recorded_at": format!("2026-11-21T01:00:0{at}.000000Z"), "payload": {}, "metadata": {},
                    "salt": "00".repeat(16), "leaf": "", "chain": "",
                })
                .to_string(),
            )
            .unwrap();
            event.payload = serde_json::value::RawValue::from_string((*payload).into()).unwrap();
            let hash = leaf_of(&event).unwrap().hash();
            link = chain::next(&link, &hash);
            event.leaf = hex::encode(hash);
            event.chain = hex::encode(link);
            events.push(event);
        }
        events
    }

    fn verify(events: &[EventRecord]) -> Result<Verifier, Fault> {
        let mut verifier = Verifier::new(LOG);
        events.iter().try_for_each(|e| verifier.take(e))?;
        Ok(verifier)
    }

    fn checkpoint(verifier: &Verifier) -> Checkpoint {
        Checkpoint { log_id: LOG.into(), size: verifier.size(), root: verifier.root(), epoch: 1 }
    }

    #[test]
    fn valid_log_passes_and_every_tampering_is_found() {
        let good = log(&["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"]);
        assert_eq!(verify(&good).unwrap().size(), 3);

        let mut flipped = good.clone();
        flipped[1].payload = serde_json::value::RawValue::from_string("{\"a\":9}".into()).unwrap();
        assert_eq!(verify(&flipped).unwrap_err(), Fault::Leaf(2));

        let mut removed = good.clone();
        removed.remove(1);
        assert_eq!(verify(&removed).unwrap_err(), Fault::Position { expected: 2, found: 3 });

        let mut swapped = good.clone();
        swapped[1].chain.clone_from(&good[0].chain);
        assert_eq!(verify(&swapped).unwrap_err(), Fault::Chain(2));
    }

    #[test]
    fn rewritten_history_is_found_only_with_a_stored_checkpoint() {
        let stored = checkpoint(&verify(&log(&["{\"a\":1}", "{\"a\":2}"])).unwrap());
        let rewritten = verify(&log(&["{\"a\":1}", "{\"a\":7}"])).unwrap();
        assert_eq!(rewritten.agrees(&stored), Err(Fault::Rewritten(2)));
        let shorter = verify(&log(&["{\"a\":1}"])).unwrap();
        assert_eq!(shorter.agrees(&stored), Err(Fault::Truncated { promised: 2, found: 1 }));
    }
}
