//! Projections: tables that are derived from the log, for reading.
//!
//! ```text
//! log ─▶ RecordedEvent ─▶ Projection::apply ─▶ rows ─┬─▶ in the append transaction  (inline)
//!                         (one pure function each)   ├─▶ page by page                (asynchronous)
//!                                                    ├─▶ into a shadow table         (rebuild, then swap)
//!                                                    ├─▶ into a temporary table      (verify)
//!                                                    └─▶ up to a position            (as of)
//! ```
//!
//! A projection copies data and decides nothing, and no code decides from a projection.
//! Deleting every projection loses nothing.

// The unit tests share the support module of the integration tests, which imports the crate by
// name.
#[cfg(test)]
extern crate self as projections;

/// Reads and decodes events.
pub mod event;
/// Definition of a projection and its table.
pub mod projection;

mod fold;
mod table;

/// Inline projections.
pub mod inline;
/// Asynchronous projections.
pub mod projector;

/// Rebuilds from the first event, while the server runs.
pub mod rebuild;
mod swap;
/// Comparison of the rows with the log.
pub mod verify;

/// As-of queries.
pub mod as_of;
/// Permanent tables with rows as of a position.
pub mod as_of_table;
/// Erasure of a shredded subject's data.
pub mod erase;
/// History between two positions, by run.
pub mod history;
/// Differences between two JSON documents.
pub mod json_diff;

/// List of all projections.
pub mod catalogue;
/// One projection per file, with its table and queries.
pub mod views;

pub use as_of::AsOfQuery;
pub use catalogue::{Status, inline_projections, list};
pub use domain::recorded::{DomainEvent, RecordedEvent};
pub use projection::{Cell, Class, Projection, Type};
pub use projector::{ProjectionLag, Projections};
pub use rebuild::{Progress, RebuildError, Rebuilt, rebuild, rebuild_all, rollback};
pub use table::many;
pub use verify::{Difference, EarlierRows, Verified, copies, verify, verify_copy};
