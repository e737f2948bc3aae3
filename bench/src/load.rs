//! Time of a claim and cost of a runner with an open long poll, on a complete server over HTTP.
//!
//! ```text
//! postgres   a private cluster as `stead up` creates it: fsync, synchronous commit
//! claims     a server in this process, runners over loopback; from the acknowledged queue request to the claim's response
//! parked     `stead serve` as a separate process, without runners and with a thousand
//! ```
pub(crate) mod claims;
mod parked;
mod report;

use self::{claims::Claims, parked::Parked, report::Report};
use crate::{
    command_line::{WorkDir, argument, block_on, check_arguments, has},
    database::Database,
};

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of claims.
    samples: usize,
    /// Number of runners with an open long poll.
    runners: usize,
    /// Time in seconds for which statements are counted.
    window_s: u64,
    /// Prints JSON instead of a table.
    json: bool,
}

const USAGE: &str = "stead-bench-load [--quick] [--json] [--append FILE]";

/// Entry point of `scripts/bench`. FILE contains the output of the append benchmark.
pub fn main() {
    check_arguments(USAGE);
    let json = has("--json");
    let options = if has("--quick") {
        Options { samples: 500, runners: 200, window_s: 10, json }
    } else {
        Options { samples: 5_000, runners: 1_000, window_s: 30, json }
    };
    block_on(run(options));
}

async fn run(options: Options) {
    let work_dir = WorkDir::new();
    let (cluster, server) = (work_dir.of("cluster"), work_dir.of("server"));
    let database = Database::start(&cluster).await;
    let settings = database.settings().await;
    let claims: Claims = claims::measure(&database, &server, options.samples).await;
    let parked: Parked = parked::measure(&database, &server, options).await;
    let report = Report::of(options, settings, claims, parked);
    database.stop().await;
    let append =
        argument("--append").map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
    if options.json {
        println!("{}", report.json(&append));
    } else {
        println!("{}\n{append}", report.markdown());
    }
}
