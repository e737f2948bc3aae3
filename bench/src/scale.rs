//! Cost must not grow with history. Measures the same operations after 10⁴, 10⁵ and 10⁶ events in
//! one log (with `--large` also 10⁷), and a stream of 10⁵ events.
//!
//! The appender writes the log together with its inline projections. The other projections follow
//! as in a server. After each step, the log and every projection are verified.
pub(crate) mod growing_log;
mod requests;
mod stream;
pub(crate) mod table;

use std::time::Duration;

use measure::Conditions;

use self::{growing_log::GrowingLog, table::Table};
use crate::{
    command_line::{BenchOptions, WorkDir, block_on, check_arguments, has},
    database::Database,
};

const USAGE: &str = "stead-bench-scale [--quick] [--large] [--json]";

/// Entry point of `scripts/bench scale`.
pub fn main() {
    check_arguments(USAGE);
    block_on(run(BenchOptions::read(), has("--large")));
}

async fn run(options: BenchOptions, large: bool) {
    let work_dir = WorkDir::new();
    let database = Database::start(&work_dir.of("cluster")).await;
    let data = work_dir.of("server");
    let sizes: &[u64] = match (options.quick, large) {
        (true, _) => &[4_000, 10_000],
        (false, false) => &[10_000, 100_000, 1_000_000],
        (false, true) => &[10_000, 100_000, 1_000_000, 10_000_000],
    };
    let mut grown = GrowingLog::start(&database, &data, 1_000).await;
    let mut table = Table::default();
    for size in sizes {
        grown.to(*size, &mut table).await;
        requests::measure(&database, &data, options, &mut table).await;
    }
    let long = stream::measure(&database, &mut grown, options.choose(10_000, 100_000)).await;
    let conditions = Conditions::of(database.root(), 1, Duration::ZERO).await;
    drop(grown);
    database.stop().await;
    if options.json {
        let mut json = table.json(&conditions);
        json["streams"] = long.json();
        println!("{json:#}");
    } else {
        println!("{}", conditions.markdown());
        println!("{}", table.markdown());
        println!("{}", long.markdown());
    }
}
