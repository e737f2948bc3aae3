//! `GET /v1/audit/bundle`: what somebody needs who has no server, written piece by piece.
mod asked;

use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use domain::ids::EventId;
use event_log::{Stored, StreamId};
use proof::{
    Hash,
    bundle::{Base64, Bundle, Content, Event, FORMAT, MEDIA_TYPE, Subject, Text},
    checkpoint::Checkpoint,
    key::VerifierKey,
};
use schemas::control::bundles::{BundleQuery, OtherEntries};

use self::asked::{found, last, named, rest, since};
use super::broken;
use crate::{
    auth::Who,
    extract::Query,
    problem::{Code, Problem},
    state::App,
};

/// How many events of the stream are proven at a time.
const EVENTS: u32 = 200;
/// How many entries of other streams are read at a time.
const ENTRIES: u32 = 1000;

/// A bundle that proves an event, or all events of a stream, to whoever has no server
///
/// What is in it, and what it proves: docs/audit.md.
#[utoipa::path(
    get, path = "/v1/audit/bundle", tag = "audit", params(BundleQuery),
    responses((status = 200, body = Object, content_type = "application/vnd.stead.bundle.v1+json")),
)]
pub async fn bundle(
    State(app): State<App>,
    Query(which): Query<BundleQuery>,
    who: Who,
) -> Result<Response, Problem> {
    let made = Made::of(&app, &which).await?;
    let (mut text, head) = (Text::default(), made.head.size);
    let text = async_stream::try_stream! {
        yield Bytes::from(text.head(&made.bundle)?);
        let mut after = 0;
        loop {
            who.still(&app).map_err(broken)?;
            let page = made.events(&app, after).await.map_err(broken)?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            let one = made.position.is_some();
            for event in page {
                yield Bytes::from(text.event(&event)?);
            }
            if one {
                break;
            }
        }
        if let Some((from, edge)) = &made.others {
            yield Bytes::from(text.others(*from, edge)?);
            let mut position = from - 1;
            while position < head {
                who.still(&app).map_err(broken)?;
                let (entries, last) = made.entries(&app, position).await.map_err(broken)?;
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
    let text: std::pin::Pin<Box<dyn futures::Stream<Item = std::io::Result<Bytes>> + Send>> =
        Box::pin(text);
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(text)).into_response())
}

/// What is written, as far as it is known before the first byte.
struct Made {
    head: Checkpoint,
    /// Without events.
    bundle: Bundle,
    stream: StreamId,
    /// One event, and not its stream.
    position: Option<u64>,
    hashes: bool,
    /// From which position on the rest of the log is shown, and what is before it.
    others: Option<(u64, Vec<Base64<Hash>>)>,
}

impl Made {
    async fn of(app: &App, which: &BundleQuery) -> Result<Made, Problem> {
        let log = app.log();
        let head = log.head();
        let since = match &which.since {
            Some(note) => Some(since(app, note, &head).await?),
            None => None,
        };
        let (position, stream) = match (&which.stream, which.position, which.event) {
            (Some(stream), None, None) => (None, named(app, stream).await?),
            (None, Some(position), None) => (Some(position), StreamId::new("", "")),
            (None, None, Some(event)) => (Some(found(app, event).await?), StreamId::new("", "")),
            _ => {
                let detail = "send one of stream, position and event";
                return Err(Problem::new(Code::BadRequest, detail));
            }
        };
        let (subject, others) = match position {
            Some(position) if (1..=head.size).contains(&position) => {
                (Subject::Position(position), None)
            }
            Some(position) => {
                let there = format!("position {position} (the log has 1 to {})", head.size);
                return Err(Problem::not_found(there));
            }
            None => {
                let last = last(app, &stream, head.size).await?;
                let others = match which.others.unwrap_or_default() {
                    OtherEntries::None => None,
                    OtherEntries::After => Some(rest(app, last + 1, head.size).await?),
                    OtherEntries::Whole => Some(rest(app, 1, head.size).await?),
                };
                (Subject::Stream(stream.to_string()), others)
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
            events: Vec::new(),
            others: None,
        };
        let hashes = which.hashes.unwrap_or(false);
        Ok(Made { head, bundle, stream, position, hashes, others })
    }

    /// The next events, each with its proof.
    async fn events(&self, app: &App, after: u64) -> Result<Vec<Event>, Problem> {
        let log = app.log();
        let page = match self.position {
            Some(position) => log.read(position - 1, 1).await?,
            None => log.read_page(&self.stream, (after, self.head.size), EVENTS).await?,
        };
        let positions: Vec<u64> = page.iter().map(|event| event.position).collect();
        let proofs = log.inclusions(&positions, self.head.size).await?;
        let event = |(stored, path)| event(stored, path, self.hashes);
        page.iter().zip(proofs).map(event).collect()
    }

    /// The next entries of other streams, and up to which position.
    async fn entries(&self, app: &App, after: u64) -> Result<(Vec<Vec<u8>>, u64), Problem> {
        let page = app.log().read(after, ENTRIES).await?;
        let page = page.iter().take_while(|event| event.position <= self.head.size);
        let (mut entries, mut last) = (Vec::new(), self.head.size);
        for stored in page {
            last = stored.position;
            if stored.stream != self.stream {
                let leaf = stored.computed_leaf().ok_or_else(|| unread(stored))?;
                entries.push(leaf.canonical());
            }
        }
        Ok((entries, last))
    }
}

fn event(stored: &Stored, path: Vec<Hash>, hashes: bool) -> Result<Event, Problem> {
    let leaf = stored.computed_leaf().ok_or_else(|| unread(stored))?;
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

fn unread(stored: &Stored) -> Problem {
    Problem::internal(format!("the version of the event at {} is no number", stored.position))
}
