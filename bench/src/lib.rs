//! Programs that measure the whole product: speed (`dashboard`, `http`, `image`, `jobs`, `logs`, `load`,
//! `preflight`, `sources`, `start`), number of runners (`fleet`), effect of history (`scale`), and correctness after random kills (`kills`)
//! and faults (`nemesis`).
//!
//! `scripts/bench`, `scripts/kills` and `scripts/nemesis` build and run them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed measurement has no result"
)]
#![allow(clippy::disallowed_methods, reason = "measurements create ids and start tasks themselves")]

mod agent;
mod api_client;
mod builds;
mod chunk;
mod command_line;
/// Pages of the dashboard: server time, size, open pages.
pub mod dashboard;
mod database;
/// Ten thousand runners: waiting, during a burst of jobs, and after a kill of their server.
pub mod fleet;
/// Commands over HTTP.
pub mod http;
/// Syncs of a container image, compared with skopeo.
pub mod image;
mod installs;
/// Jobs from the queue to their end, compared with job queues.
pub mod jobs;
/// Random kills with SIGKILL, and a check that each effect happened exactly once.
pub mod kills;
/// Time of a claim, and cost of a runner with an open long poll.
pub mod load;
/// Throughput of durable log bytes.
pub mod logs;
/// Faults around a log, and the oracle that checks it.
pub mod nemesis;
/// Preflight of a run.
pub mod preflight;
mod runner_pool;
/// Cost after a long history.
pub mod scale;
mod server;
mod server_process;
/// Builds from a large git repository, compared with clones.
pub mod sources;
/// Time until a server accepts calls.
pub mod start;
mod wire;
