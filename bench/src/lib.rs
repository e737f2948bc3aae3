//! Programs that measure the whole: how fast (`http`, `jobs`, `logs`, `load`, `start`), with how many runners (`fleet`),
//! after how much history (`scale`), and what is left after random kills (`kills`).
//!
//! They are run by `scripts/bench` and `scripts/kills`, which build what they need.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails has no result"
)]

mod agent;
mod builds;
mod chunk;
mod command_line;
mod crew;
mod database;
/// Ten thousand runners: waiting, in a storm of jobs, and after their server was killed.
pub mod fleet;
/// Commands over HTTP.
pub mod http;
/// Jobs from the queue to their end, beside job queues.
pub mod jobs;
/// Kill -9 of anything at random, and the side-effect ledger afterwards.
pub mod kills;
/// Claims and parked runners.
pub mod load;
/// Log bytes made durable.
pub mod logs;
mod people;
/// Cost after much history.
pub mod scale;
mod server;
mod serving;
/// Until a server takes calls.
pub mod start;
mod wire;
