//! What is folded from the log, for reading.
//!
//! ```text
//! log ─▶ Recorded ─▶ Projection::apply ─▶ rows ─┬─▶ with the append      (synchronous)
//!                    (one pure fold per view)   ├─▶ page by page         (asynchronous)
//!                                               ├─▶ into a shadow        (rebuild, then swap)
//!                                               ├─▶ beside what is there (verify)
//!                                               └─▶ up to a position    (as of then)
//! ```
//!
//! A fold copies, it does not decide; and nothing that decides reads a view. Deleting every view loses nothing.

// So that the tests beside the code use the same support as the tests of the whole.
#[cfg(test)]
extern crate self as projections;

/// An event as folds see it.
pub mod fact;
/// What a view is: a fold, and the table its rows are in.
pub mod projection;

mod fold;
mod table;

/// Views that follow the log.
pub mod projector;
/// Views that are written with the events.
pub mod ride;

/// Everything again from the first event, while the server runs.
pub mod rebuild;
mod swap;
/// Whether the rows are what the log says.
pub mod verify;

/// A view as it was.
pub mod as_of;
/// What two documents do not have in common.
pub mod differ;
/// Nothing of before is left in any view.
pub mod erase;
/// What happened between two positions, by run.
pub mod history;
/// The same, in a table of its own that stays.
pub mod kept;

/// Every view, by name.
pub mod catalogue;
/// One fold per file, with its table and its questions.
pub mod views;

pub use as_of::Past;
pub use catalogue::{Status, list, sync_views};
pub use fact::{Fact, Raw, Recorded};
pub use projection::{Cell, Class, Projection, Type};
pub use projector::{Behind, Projections};
pub use rebuild::{Progress, RebuildError, Rebuilt, rebuild, rebuild_all, rollback};
pub use table::many;
pub use verify::{Difference, EarlierRows, Verified, copies, verify, verify_copy};
