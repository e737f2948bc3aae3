//! Two programs that measure the whole: how fast (`load`), and what is left after random kills (`kills`).
//!
//! They are run by `scripts/bench` and `scripts/kills`, which build what they need.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails has no result"
)]

/// Kill -9 of anything at random, and the side-effect ledger afterwards.
pub mod kills;
/// Claims and parked runners.
pub mod load;
