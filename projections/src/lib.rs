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
//! Deleting every projection loses no data.

// The unit tests share the support module of the integration tests, which imports the crate by
// name.
#[cfg(test)]
extern crate self as projections;

pub mod event;
pub mod projection;

mod fold;
mod table;

pub mod inline;
pub mod projector;

pub mod rebuild;
mod swap;
pub mod verify;

pub mod as_of;
pub mod as_of_table;
pub mod erase;
pub mod history;
pub mod json_diff;

pub mod catalogue;
pub mod views;

pub use as_of::AsOfQuery;
pub use catalogue::{Status, inline_projections, list};
pub use domain::recorded::{DomainEvent, RecordedEvent};
pub use projection::{Cell, Class, Projection, Type};
pub use projector::{ProjectionLag, Projections};
pub use rebuild::{Progress, RebuildError, Rebuilt, rebuild, rebuild_all, rollback};
pub use table::many;
pub use verify::{Difference, EarlierRows, Verified, copies, verify, verify_copy};
