//! How long a claim takes, and what a parked runner costs, on a whole server over HTTP.
//!
//! ```text
//! postgres   a private cluster as `stead up` makes it: fsync, synchronous commit
//! claims     a server in this process, runners over loopback: from the acknowledged queue to the claim's answer
//! parked     `stead serve` as a process of its own, with no runner and with a thousand
//! ```
mod claims;
mod parked;
mod report;

use self::{claims::Claims, parked::Parked, report::Report};
use crate::{database::Database, enterable};

/// What the command line asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// How many claims.
    samples: usize,
    /// How many runners are parked.
    runners: usize,
    /// How long statements are counted, seconds.
    window_s: u64,
    /// JSON instead of a table.
    json: bool,
}

/// `stead-bench-load [--quick] [--json] [--append FILE]`: the file holds what the append benchmark printed.
pub fn main() {
    let has = |name: &str| std::env::args().any(|argument| argument == name);
    let json = has("--json");
    let ask = if has("--quick") {
        Ask { samples: 500, runners: 200, window_s: 10, json }
    } else {
        Ask { samples: 5_000, runners: 1_000, window_s: 30, json }
    };
    let _first = rustls::crypto::ring::default_provider().install_default();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().build().unwrap().block_on(run(ask));
}

async fn run(ask: Ask) {
    let directory = tempfile::Builder::new().prefix("stead-bench-").tempdir().unwrap();
    enterable(directory.path());
    let (cluster, server) = (directory.path().join("cluster"), directory.path().join("server"));
    for path in [&cluster, &server] {
        std::fs::create_dir(path).unwrap();
        enterable(path);
    }
    let database = Database::start(&cluster).await;
    let settings = database.settings().await;
    let mut claims: Claims = claims::measure(&database, &server, ask).await;
    let tokens = std::mem::take(&mut claims.tokens);
    let parked: Parked = parked::measure(&database, &server, tokens, ask).await;
    let report = Report::of(ask, settings, claims, parked);
    database.stop().await;
    let append = std::env::args().skip_while(|argument| argument != "--append").nth(1);
    let append = append.map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
    if ask.json {
        println!("{}", report.json(&append));
    } else {
        println!("{}\n{append}", report.markdown());
    }
}
