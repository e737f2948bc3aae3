//! Collects the streams of an install's history with the positions of their events, and the
//! requested annotations.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    actor::Actor,
    erasure::{FieldOwner, personal_fields},
    history::references,
    ids::PrincipalId,
};
use event_log::{StoredEvent, StreamId};
use projections::event::decode_encrypted;
use proof::bundle::Annotations;
use schemas::control::bundles::BundleQuery;
use serde_json::Value;

use crate::{
    auth::names,
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Number of events of a stream that are read at a time.
const PAGE: u32 = 500;
/// Maximum number of events of a history. With their proofs, these are about as large as a bundle
/// may be.
const MAX_EVENTS: usize = 150_000;

/// Data that the server collects before it sends the first bytes of a bundle.
pub(super) struct Collected {
    /// Streams with the position of their last event.
    pub streams: BTreeMap<String, u64>,
    /// Positions of all events of the streams, ascending.
    pub positions: Vec<u64>,
    /// Annotations requested with `names` and `reasons`.
    pub annotations: Option<Annotations>,
}

struct Collector<'a> {
    app: &'a App,
    which: &'a BundleQuery,
    size: u64,
    found: Collected,
    principals: BTreeSet<PrincipalId>,
    reasons: BTreeMap<u64, String>,
}

/// Returns true if the request asks for annotations.
pub(super) fn is_annotated(which: &BundleQuery) -> bool {
    which.names == Some(true) || which.reasons == Some(true)
}

/// Collects the history of an install up to a size of the log. The history consists of the stream
/// of the install and all streams to which collected events refer.
pub(super) async fn history(
    app: &App,
    (which, who): (&BundleQuery, &Caller),
    install: StreamId,
    size: u64,
) -> Result<Collected, Problem> {
    let mut collector = Collector::new(app, which, size);
    let mut pending = vec![install.clone()];
    while let Some(stream) = pending.pop() {
        if collector.found.streams.contains_key(&stream.to_string()) {
            continue;
        }
        who.recheck(app)?;
        match collector.stream(&stream).await? {
            Some(named) => pending.extend(named),
            None if stream == install => {
                return Err(Problem::not_found(format!("the stream {stream}")));
            }
            // An event refers to a stream that the log does not have. The verification of the
            // bundle reports the missing stream.
            None => {}
        }
    }
    collector.finish().await
}

/// Returns the annotations of the events of one stream.
pub(super) async fn of_stream(
    app: &App,
    which: &BundleQuery,
    stream: &StreamId,
    size: u64,
) -> Result<Option<Annotations>, Problem> {
    let mut collector = Collector::new(app, which, size);
    collector.stream(stream).await?;
    Ok(collector.finish().await?.annotations)
}

/// Returns the annotations of one event.
pub(super) async fn of_event(
    app: &App,
    which: &BundleQuery,
    position: u64,
) -> Result<Option<Annotations>, Problem> {
    let mut collector = Collector::new(app, which, position);
    if let Some(stored) = app.log().event(position).await? {
        collector.annotate(&stored)?;
    }
    Ok(collector.finish().await?.annotations)
}

impl<'a> Collector<'a> {
    fn new(app: &'a App, which: &'a BundleQuery, size: u64) -> Self {
        let found = Collected { streams: BTreeMap::new(), positions: vec![], annotations: None };
        let (principals, reasons) = (BTreeSet::new(), BTreeMap::new());
        Collector { app, which, size, found, principals, reasons }
    }

    /// Reads a stream. Returns the streams that its events refer to, or `None` if it has no events.
    async fn stream(&mut self, stream: &StreamId) -> Result<Option<BTreeSet<StreamId>>, Problem> {
        let (mut named, mut after, mut last) = (BTreeSet::new(), 0, 0);
        loop {
            let page = self.app.log().read_page(stream, (after, self.size), PAGE).await?;
            let Some(end) = page.last() else { break };
            (after, last) = (end.sequence, end.position);
            for stored in &page {
                self.found.positions.push(stored.position);
                for event in decode_encrypted(stored)? {
                    named.extend(references(&event));
                }
                self.annotate(stored)?;
            }
            if self.found.positions.len() > MAX_EVENTS {
                let detail = format!(
                    "cannot create the bundle: the history has more than {MAX_EVENTS} events; request stream=install/… and each \
                     run separately, or export the log"
                );
                return Err(Problem::new(Code::TooLarge, detail));
            }
        }
        if last == 0 {
            return Ok(None);
        }
        self.found.streams.insert(stream.to_string(), last);
        Ok(Some(named))
    }

    fn annotate(&mut self, stored: &StoredEvent) -> Result<(), Problem> {
        if !is_annotated(self.which) {
            return Ok(());
        }
        let payload: Value = serde_json::from_str(stored.readable()?).map_err(Problem::internal)?;
        if self.which.names == Some(true) {
            let by = payload.get("by").and_then(Value::as_str).and_then(|by| by.parse().ok());
            for actor in [Some(stored.meta()?.actor), by].into_iter().flatten() {
                match actor {
                    Actor::Principal(id) => drop(self.principals.insert(id)),
                    Actor::Runner(_) | Actor::Policy(_) | Actor::Timer(_) | Actor::System => {}
                }
            }
        }
        // Includes only text that a principal wrote. Other free text is customer data.
        let mut fields = personal_fields(&stored.event_type).iter();
        let is_written =
            fields.any(|field| field.path == ["reason"] && field.owner == FieldOwner::Author);
        if self.which.reasons == Some(true)
            && is_written
            && let Some(reason) = payload.get("reason").and_then(Value::as_str)
        {
            self.reasons.insert(stored.position, reason.to_owned());
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Collected, Problem> {
        self.found.positions.sort_unstable();
        if is_annotated(self.which) {
            let names = names::get(&self.app.pool, self.principals).await?;
            let names = names.into_iter().map(|(id, name)| (id.to_string(), name)).collect();
            self.found.annotations = Some(Annotations {
                names: self.which.names.filter(|requested| *requested).map(|_| names),
                reasons: self.which.reasons.filter(|requested| *requested).map(|_| self.reasons),
            });
        }
        Ok(self.found)
    }
}
