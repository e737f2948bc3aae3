//! Ids of streams: `type/id`.
use std::fmt;

/// Id of a stream. A stream has all events of one aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// Aggregate type: `Decider::NAME`.
    pub aggregate_type: String,
    /// Id of the aggregate, unique within its type.
    pub aggregate_id: String,
}

impl StreamId {
    pub fn new(aggregate_type: impl Into<String>, aggregate_id: impl Into<String>) -> StreamId {
        StreamId { aggregate_type: aggregate_type.into(), aggregate_id: aggregate_id.into() }
    }

    /// Returns the id of the stream of an aggregate.
    pub fn of<D: crate::decider::Decider>(aggregate_id: impl fmt::Display) -> StreamId {
        StreamId::new(D::NAME, aggregate_id.to_string())
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.aggregate_type, self.aggregate_id)
    }
}
