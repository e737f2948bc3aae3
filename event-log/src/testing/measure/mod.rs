//! What every benchmark on Postgres needs: what it ran on, pgbench as the anchor, processor time, and a table of
//! medians, spreads and ratios.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that fails has no result, and nobody else uses this"
)]
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

use super::Settings;

/// What one row or event must at least hold.
pub const PAYLOAD_BYTES: usize = 300;

/// A Postgres that keeps what it acknowledges, with room for a benchmark: the same for all of them.
pub fn cluster_settings() -> Settings {
    let more =
        ["shared_buffers=1GB", "max_wal_size=8GB", "wal_buffers=16MB", "synchronous_commit=on"];
    Settings { fsync: true, more: more.map(String::from).to_vec() }
}

/// A JSON object of [`PAYLOAD_BYTES`] with the tag that events have.
pub fn payload(number: u64) -> String {
    let start = format!(r#"{{"type":"queued","number":{number},"manifest":""#);
    let fill = PAYLOAD_BYTES - start.len() - 2;
    format!(r#"{start}{}"}}"#, "a".repeat(fill))
}
