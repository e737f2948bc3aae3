//! `GET /v1/audit/bundle`: streams a bundle that can be verified without a server.
mod collect;
mod params;

use std::collections::HashSet;

use bytes::Bytes;
use domain::{decider::Decider as _, ids::EventId, install::Install};
use event_log::{StoredEvent, StreamId};
use futures::StreamExt as _;
use proof::{
    Hash,
    bundle::{
        Annotations, Base64, Bundle, BundleEncoder, Content, Event, FORMAT, MAX_OTHERS, Subject,
    },
    checkpoint::Checkpoint,
    key::VerifierKey,
};
use schemas::control::bundles::{BundleQuery, OtherEntries};

use self::params::{
    entries_from, last_position, parse_stream, position_of_event, prior_checkpoint,
};
use super::{ByteStream, aborted};
use crate::{
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Number of events of the stream that are read with their proofs at a time.
const EVENT_PAGE: u32 = 200;
/// Number of entries of other streams that are read at a time.
const ENTRY_PAGE: u32 = 1000;
/// Maximum distance between events of a history that are read in one query.
const MAX_GAP: u64 = 1000;

/// Bundle that proves an event, a stream, or an install with its runs, jobs and builds.
pub(crate) async fn bundle(
    app: App,
    caller: Caller,
    which: BundleQuery,
) -> Result<ByteStream, Problem> {
    caller.authorize("GET", "/v1/audit/bundle")?;
    let created = BundleWriter::of(&app, &which, &caller).await?;
    let (mut text, head) = (BundleEncoder::default(), created.head.size);
    let text = async_stream::try_stream! {
        yield Bytes::from(text.head(&created.bundle)?);
        let mut after = 0;
        loop {
            caller.recheck(&app).map_err(aborted)?;
            let (page, last) = created.events(&app, after).await.map_err(aborted)?;
            for event in page {
                yield Bytes::from(text.event(&event)?);
            }
            let Some(last) = last else { break };
            after = last;
        }
        if let Some((from, edge)) = &created.others {
            yield Bytes::from(text.others(*from, edge)?);
            let mut position = from - 1;
            while position < head {
                caller.recheck(&app).map_err(aborted)?;
                let (entries, last) = created.entries(&app, position).await.map_err(aborted)?;
                position = last;
                let mut page = String::new();
                for entry in entries {
                    page += &text.entry(entry)?;
                }
                yield Bytes::from(page);
            }
        }
        yield Bytes::from(text.end());
    };
    Ok(text.boxed())
}

type OtherRange = (u64, Vec<Base64<Hash>>);
type Selected = Result<(Source, Subject, Option<OtherRange>, Option<Annotations>), Problem>;

/// Parts of a bundle that the server determines before it sends the first byte.
struct BundleWriter {
    head: Checkpoint,
    /// Bundle without events.
    bundle: Bundle,
    source: Source,
    hashes: bool,
    /// First position of the entries of other streams, and the tree edge before this position.
    others: Option<OtherRange>,
}

/// Selection of the events of a bundle.
enum Source {
    Event(u64),
    Stream(StreamId),
    /// All events of these streams, with their positions in ascending order.
    History {
        streams: HashSet<StreamId>,
        positions: Vec<u64>,
    },
}

impl Source {
    fn has(&self, stored: &StoredEvent) -> bool {
        match self {
            Source::Event(position) => stored.position == *position,
            Source::Stream(stream) => stored.stream == *stream,
            Source::History { streams, .. } => streams.contains(&stored.stream),
        }
    }
}

impl BundleWriter {
    async fn of(app: &App, which: &BundleQuery, who: &Caller) -> Result<BundleWriter, Problem> {
        let log = app.log();
        let head = log.head();
        let since = match &which.prior_checkpoint {
            Some(note) => Some(prior_checkpoint(app, note, &head).await?),
            None => None,
        };
        if which.hashes_only == Some(true) && collect::is_annotated(which) {
            let detail = "cannot add names and reasons: hashes_only omits the content of the events; send hashes_only without them";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        let (source, subject, others, annotations) = match (
            &which.install,
            &which.stream,
            which.position,
            which.event,
        ) {
            (Some(install), None, None, None) => {
                BundleWriter::history(app, (which, who), install, head.size).await?
            }
            (None, Some(stream), None, None) => {
                BundleWriter::stream(app, which, stream, head.size).await?
            }
            (None, None, Some(position), None) => {
                BundleWriter::event(app, which, position, head.size).await?
            }
            (None, None, None, Some(event)) => {
                let position = position_of_event(app, event).await?;
                BundleWriter::event(app, which, position, head.size).await?
            }
            _ => {
                let detail = "invalid request: it needs exactly one of install, stream, position and event; send one";
                return Err(Problem::new(Code::BadRequest, detail));
            }
        };
        let keys = app.keys.current();
        let signer = VerifierKey { name: head.origin(), key: keys.checkpoints().verifying_key() };
        let bundle = Bundle {
            format: FORMAT.into(),
            subject,
            signer: signer.to_string(),
            checkpoint: head.sign(keys.checkpoints()),
            since,
            annotations,
            events: Vec::new(),
            others: None,
        };
        let hashes = which.hashes_only.unwrap_or(false);
        Ok(BundleWriter { head, bundle, source, hashes, others })
    }

    async fn event(app: &App, which: &BundleQuery, position: u64, size: u64) -> Selected {
        if !(1..=size).contains(&position) {
            let what = format!("position {position} (the log has positions 1 to {size})");
            return Err(Problem::not_found(what));
        }
        let annotations = collect::of_event(app, which, position).await?;
        Ok((Source::Event(position), Subject::Position(position), None, annotations))
    }

    async fn stream(app: &App, which: &BundleQuery, stream: &str, size: u64) -> Selected {
        let stream = parse_stream(app, stream).await?;
        let last = last_position(app, &stream, size).await?;
        let others = match which.other_entries.unwrap_or_default() {
            OtherEntries::None => None,
            OtherEntries::After => Some(entries_from(app, last + 1, size).await?),
            OtherEntries::All => Some(entries_from(app, 1, size).await?),
        };
        let annotations = match collect::is_annotated(which) {
            true => collect::of_stream(app, which, &stream, size).await?,
            false => None,
        };
        let subject = Subject::Stream(stream.to_string());
        Ok((Source::Stream(stream), subject, others, annotations))
    }

    async fn history(
        app: &App,
        (which, who): (&BundleQuery, &Caller),
        install: &str,
        size: u64,
    ) -> Selected {
        let install = parse_stream(app, &format!("{}/{install}", Install::NAME)).await?;
        let own = install.to_string();
        let found = collect::history(app, (which, who), install, size).await?;
        // The entries of other streams start after the earliest last event of a stream, to prove
        // that every stream ended. If the size limit of a bundle moves this start, only sequence
        // numbers cover the streams that ended before it.
        let earliest = found.streams.values().min().copied().unwrap_or(size);
        let last = found.streams.get(&own).copied().unwrap_or(size);
        let from = (earliest + 1).max((size + 1).saturating_sub(MAX_OTHERS)).min(last + 1);
        let others = match which.other_entries.unwrap_or_default() {
            OtherEntries::None => None,
            OtherEntries::After => Some(entries_from(app, from, size).await?),
            OtherEntries::All => Some(entries_from(app, 1, size).await?),
        };
        let streams = found.streams.keys().filter_map(|name| name.split_once('/'));
        let streams = streams.map(|(kind, id)| StreamId::new(kind, id)).collect();
        let source = Source::History { streams, positions: found.positions };
        let subject = Subject::Streams(found.streams.into_keys().collect());
        Ok((source, subject, others, found.annotations))
    }

    /// Returns the next events with their inclusion proofs, and the point to continue from. That
    /// point is a sequence for a stream and a position for a history.
    async fn events(&self, app: &App, after: u64) -> Result<(Vec<Event>, Option<u64>), Problem> {
        let log = app.log();
        let (page, last) = match &self.source {
            Source::Event(position) => (log.read(position - 1, 1).await?, None),
            Source::Stream(stream) => {
                let page = log.read_page(stream, (after, self.head.size), EVENT_PAGE).await?;
                let last = page.last().map(|event| event.sequence);
                (page, last)
            }
            Source::History { positions, .. } => {
                let left = &positions[positions.partition_point(|position| *position <= after)..];
                let Some(first) = left.first() else { return Ok((vec![], None)) };
                // One query reads events that are close together, including other events between
                // them.
                let near = left.iter().take_while(|position| **position - first < MAX_GAP);
                let Some(last) = near.take(EVENT_PAGE as usize).last() else {
                    return Ok((vec![], None));
                };
                let span = u32::try_from(last - first + 1).map_err(Problem::internal)?;
                let mut page = log.read(first - 1, span).await?;
                page.retain(|stored| self.source.has(stored));
                (page, Some(*last))
            }
        };
        let positions: Vec<u64> = page.iter().map(|event| event.position).collect();
        let proofs = log.inclusions(&positions, self.head.size).await?;
        let event = |(stored, path)| event(stored, path, self.hashes);
        let events: Result<_, Problem> = page.iter().zip(proofs).map(event).collect();
        Ok((events?, last))
    }

    /// Returns the next entries of other streams, and the position that the search reached.
    async fn entries(&self, app: &App, after: u64) -> Result<(Vec<Vec<u8>>, u64), Problem> {
        let page = app.log().read(after, ENTRY_PAGE).await?;
        let page = page.iter().take_while(|event| event.position <= self.head.size);
        let (mut entries, mut last) = (Vec::new(), self.head.size);
        for stored in page {
            last = stored.position;
            if !self.source.has(stored) {
                let leaf = stored.computed_leaf().ok_or_else(|| invalid_version(stored))?;
                entries.push(leaf.canonical());
            }
        }
        Ok((entries, last))
    }
}

fn event(stored: &StoredEvent, path: Vec<Hash>, hashes: bool) -> Result<Event, Problem> {
    let leaf = stored.computed_leaf().ok_or_else(|| invalid_version(stored))?;
    let content = if hashes {
        let (payload, metadata) = (Base64(leaf.payload_hash), Base64(leaf.metadata_hash));
        Content::Hashes { payload, metadata }
    } else {
        Content::Open {
            salt: Base64(stored.salt),
            payload: stored.payload.to_string(),
            metadata: stored.metadata.to_string(),
        }
    };
    Ok(Event {
        position: leaf.position,
        event_id: EventId(stored.event_id).to_string(),
        aggregate_type: leaf.aggregate_type.into(),
        aggregate_id: leaf.aggregate_id.into(),
        sequence: leaf.sequence,
        event_type: leaf.event_type.into(),
        version: leaf.event_version,
        recorded_at_us: leaf.recorded_at_us,
        content,
        inclusion: path.into_iter().map(Base64).collect(),
    })
}

fn invalid_version(stored: &StoredEvent) -> Problem {
    Problem::internal(format!(
        "the event at position {} has a version that is not a number",
        stored.position
    ))
}
