//! Three programs that measure the whole: how fast (`load`), with how many runners (`fleet`), and what is left after
//! random kills (`kills`).
//!
//! They are run by `scripts/bench` and `scripts/kills`, which build what they need.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails has no result"
)]

use std::path::Path;

mod agent;
mod database;
/// Ten thousand runners: waiting, in a storm of jobs, and after their server was killed.
pub mod fleet;
/// Kill -9 of anything at random, and the side-effect ledger afterwards.
pub mod kills;
/// Claims and parked runners.
pub mod load;
/// Every fault around a log, and the oracle after them.
pub mod nemesis;
mod report;
mod server;
mod serving;

/// Postgres runs as another user when we are root, and must get here.
fn enterable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
