//! Common parts of the benchmarks on Postgres: conditions, pgbench as the baseline, CPU time, and a
//! table of medians, ranges and ratios.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that fails has no result, and only benchmarks use this"
)]
#![allow(clippy::disallowed_methods, reason = "measurements create ids and start tasks themselves")]
mod conditions;
mod figure;
mod history;
pub mod pgbench;
mod processor;
mod report;

pub use conditions::{Conditions, machine, settings};
pub use figure::{Figure, Quantiles, Run, spread};
pub use history::History;
pub use processor::{Meter, Used};
pub use report::{Cell, Ratio, Report};

use event_log::testing::Settings;

/// Size of the payload of a row or an event.
pub const PAYLOAD_BYTES: usize = 300;

/// Settings of a durable Postgres with enough memory for a benchmark.
pub fn cluster_settings() -> Settings {
    let more =
        ["shared_buffers=1GB", "max_wal_size=8GB", "wal_buffers=16MB", "synchronous_commit=on"];
    event_log::testing::settings(true, &more)
}

/// A JSON object of [`PAYLOAD_BYTES`] with the tag of an event.
pub fn payload(number: u64) -> String {
    let start = format!(r#"{{"type":"queued","number":{number},"manifest":""#);
    let fill = PAYLOAD_BYTES - start.len() - 2;
    format!(r#"{start}{}"}}"#, "a".repeat(fill))
}
