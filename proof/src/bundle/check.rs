use ulid::Ulid;

use super::{
    Bundle, BundleError, Complete, Content, Event, PositionError, Subject,
    complete::{self, ProvenEvent},
    note::{follows, open_stored, opened},
    streams::{self, StreamProven, Streams},
};
use crate::{
    Hash,
    checkpoint::Checkpoint,
    key::{TrustedKey, VerifierKey},
    leaf::{Leaf, metadata_hash, payload_hash},
    tree::{TreeError, verify_consistency, verify_inclusion},
};

/// Properties of the log that a bundle proves, under the trusted keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedBundle {
    /// Signed checkpoint in the bundle.
    pub checkpoint: Checkpoint,
    /// Key that signed the checkpoint.
    pub signer: VerifierKey,
    /// Number of signatures that are not from the signers, on the checkpoint and on the older
    /// checkpoint.
    pub other_signatures: usize,
    /// Older checkpoint in the bundle. The log has only grown since.
    pub since: Option<Checkpoint>,
    /// Checkpoint from another source, if the caller passed one. It belongs to the same log.
    pub stored: Option<Checkpoint>,
    /// Completeness of the subject's streams.
    pub complete: Complete,
    /// Each stream of the subject with its completeness. Empty for one event.
    pub streams: Vec<StreamProven>,
}

impl Bundle {
    /// Verifies the whole bundle. `stored` is the text of a checkpoint from another source, which
    /// must belong to this log.
    ///
    /// # Errors
    /// [`BundleError`]: the first failed check.
    pub fn check(
        &self,
        keys: &[TrustedKey],
        stored: Option<&str>,
    ) -> Result<VerifiedBundle, BundleError> {
        let (checkpoint, signer, other) = opened(&self.checkpoint, &self.signer, keys)?;
        let mut proven = VerifiedBundle {
            checkpoint,
            signer,
            other_signatures: other,
            since: None,
            stored: None,
            complete: Complete::Unknown { last: 0 },
            streams: vec![],
        };
        self.since(&mut proven, keys)?;
        let mut streams = Streams::of(&self.subject)?;
        let events = self.events(&mut streams, &proven.checkpoint)?;
        self.annotated(&events)?;
        let stored = stored.map(|note| self.open_stored(note, &proven, keys)).transpose()?;
        let checked =
            complete::check(self, (&events, &streams), &proven.checkpoint, stored.as_ref())?;
        proven.streams = streams.proven(&checked.complete);
        proven.complete = streams::weakest(checked.complete, &proven.streams);
        if let Some(stored) = &stored
            && !(checked.compared || leads_from(stored, &proven))
        {
            let (stored, size) = (stored.size, proven.checkpoint.size);
            let remedy = "request a new bundle with --since and the stored checkpoint";
            return Err(BundleError::Uncompared { stored, size, remedy });
        }
        proven.stored = stored;
        Ok(proven)
    }

    fn since(&self, proven: &mut VerifiedBundle, keys: &[TrustedKey]) -> Result<(), BundleError> {
        let Some(since) = &self.since else { return Ok(()) };
        let of_older = |error| {
            if let BundleError::Checkpoint(why) = error { BundleError::Older(why) } else { error }
        };
        let (older, _, others) =
            opened(&since.checkpoint, &since.signer, keys).map_err(of_older)?;
        proven.other_signatures += others;
        follows(&older, &proven.checkpoint)?;
        let path: Vec<Hash> = since.consistency.iter().map(|hash| hash.0).collect();
        let now = &proven.checkpoint;
        verify_consistency(older.size, &older.root, now.size, &now.root, &path)
            .map_err(|why| BundleError::Rewritten { size: older.size, why })?;
        proven.since = Some(older);
        Ok(())
    }

    /// Verifies the checkpoint from another source. Its signer must be trusted. A signer that is
    /// trusted by fingerprint only must also be a signer that the bundle names.
    fn open_stored(
        &self,
        note: &str,
        proven: &VerifiedBundle,
        keys: &[TrustedKey],
    ) -> Result<Checkpoint, BundleError> {
        let named = self.since.iter().filter_map(|since| since.signer.parse().ok());
        let stored =
            open_stored(note, &proven.checkpoint, named.chain([proven.signer.clone()]), keys)?;
        for known in [Some(&proven.checkpoint), proven.since.as_ref()].into_iter().flatten() {
            if known.size == stored.size && known.root != stored.root {
                return Err(BundleError::Rewritten { size: stored.size, why: TreeError::Root });
            }
        }
        Ok(stored)
    }

    /// Checks that each annotated position is an event of the bundle. Otherwise a reason could have
    /// a position that the bundle does not prove.
    fn annotated(&self, events: &[ProvenEvent]) -> Result<(), BundleError> {
        let reasons = self.annotations.iter().filter_map(|added| added.reasons.as_ref());
        for position in reasons.flat_map(|reasons| reasons.keys()) {
            if events.binary_search_by_key(position, |event| event.position).is_err() {
                let why = format!(
                    "the bundle has a reason for position {position}, but no event at this position"
                );
                return Err(BundleError::Unreadable(why));
            }
        }
        Ok(())
    }

    /// Verifies that each event is the log's event at its position and belongs to the subject.
    fn events(
        &self,
        streams: &mut Streams<'_>,
        checkpoint: &Checkpoint,
    ) -> Result<Vec<ProvenEvent>, BundleError> {
        let mut events: Vec<ProvenEvent> = Vec::with_capacity(self.events.len());
        for event in &self.events {
            let wrong = |wrong| BundleError::at(event.position, wrong);
            let leaf = event.leaf()?;
            let before = events.last().map_or(0, |last| last.position);
            if event.position <= before {
                return Err(wrong(PositionError::Order(before)));
            }
            let expected = match &self.subject {
                Subject::Position(position) => {
                    (event.position == *position).then_some(event.sequence)
                }
                Subject::Stream(_) | Subject::Streams(_) => streams.next(&leaf),
            };
            let Some(expected) = expected else {
                return Err(wrong(PositionError::Subject(self.subject.to_string())));
            };
            if event.sequence != expected {
                let found = event.sequence;
                return Err(wrong(PositionError::Sequence { expected, found }));
            }
            if events.last().is_some_and(|last| event.recorded_at_us < last.recorded_at_us) {
                return Err(wrong(PositionError::Time));
            }
            let hash = leaf.hash();
            let path: Vec<Hash> = event.inclusion.iter().map(|hash| hash.0).collect();
            let index =
                event.position.checked_sub(1).ok_or(wrong(PositionError::Field("position")))?;
            verify_inclusion(&hash, index, checkpoint.size, &path, &checkpoint.root)
                .map_err(|error| wrong(PositionError::Included(error)))?;
            let (position, recorded_at_us) = (event.position, event.recorded_at_us);
            events.push(ProvenEvent { position, recorded_at_us, hash });
        }
        if let Some(empty) = streams.empty() {
            return Err(BundleError::Empty(empty.to_owned()));
        }
        if events.is_empty() {
            Err(BundleError::Empty(self.subject.to_string()))
        } else {
            Ok(events)
        }
    }
}

/// Returns whether the bundle connects the given checkpoint with the signed one. It does if the
/// given checkpoint is empty, or has the size of a checkpoint of the bundle.
fn leads_from(stored: &Checkpoint, proven: &VerifiedBundle) -> bool {
    let sizes = [Some(&proven.checkpoint), proven.since.as_ref()].into_iter().flatten();
    stored.size == 0 || sizes.map(|known| known.size).any(|size| size == stored.size)
}

impl Event {
    /// Returns the leaf of these fields.
    ///
    /// # Errors
    /// [`PositionError::Field`] if the event id cannot be parsed.
    pub fn leaf(&self) -> Result<Leaf<'_>, BundleError> {
        let field = |name| BundleError::at(self.position, PositionError::Field(name));
        let id = self.event_id.strip_prefix("evt_").ok_or(field("event_id"))?;
        let ulid = Ulid::from_string(id).map_err(|_| field("event_id"))?;
        if ulid.to_string() != id {
            return Err(field("event_id"));
        }
        let (payload_hash, metadata_hash) = match &self.content {
            Content::Open { salt, payload, metadata } => (
                payload_hash(&salt.0, payload.as_bytes()),
                metadata_hash(&salt.0, metadata.as_bytes()),
            ),
            Content::Hashes { payload, metadata } => (payload.0, metadata.0),
        };
        Ok(Leaf {
            position: self.position,
            event_id: ulid.to_bytes(),
            aggregate_type: &self.aggregate_type,
            aggregate_id: &self.aggregate_id,
            sequence: self.sequence,
            event_type: &self.event_type,
            event_version: self.version,
            recorded_at_us: self.recorded_at_us,
            payload_hash,
            metadata_hash,
        })
    }
}
