//! Which stream: `type/id`.
use std::fmt;

/// All events of one aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// What kind of aggregate: `Decider::NAME`.
    pub aggregate_type: String,
    /// Which one.
    pub aggregate_id: String,
}

impl StreamId {
    /// The stream of one aggregate.
    pub fn new(aggregate_type: impl Into<String>, aggregate_id: impl Into<String>) -> StreamId {
        StreamId { aggregate_type: aggregate_type.into(), aggregate_id: aggregate_id.into() }
    }

    /// The stream of one aggregate, by its type.
    pub fn of<D: domain::decider::Decider>(aggregate_id: impl fmt::Display) -> StreamId {
        StreamId::new(D::NAME, aggregate_id.to_string())
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.aggregate_type, self.aggregate_id)
    }
}
