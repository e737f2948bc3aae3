//! Time until a server accepts calls: from the start of its process to the message that it is
//! ready, and to the first response.
//!
//! ```text
//! serve   `stead serve` on a migrated database; `scripts/bench scale` measures the same after 10⁶ and 10⁷ events
//! up      `stead up` in an empty directory: creates a cluster, starts Postgres, migrates, starts a build runner
//! again   `stead up` in the same directory again
//! ```
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use measure::{Conditions, Quantiles};
use serde_json::{Value, json};

use crate::{
    command_line::{BenchOptions, WorkDir, block_on, check_arguments},
    database::Database,
    server_process::ServerProcess,
};

/// Kinds of start with their targets.
const STARTS: [(&str, &str); 3] = [
    ("`stead serve`, migrated database", "≤ 300 ms, stretch 25"),
    ("`stead up`, empty directory", "≤ 3000 ms, stretch 1500"),
    ("`stead up`, once more", ""),
];

/// Time until the ready message, and until the first response.
#[derive(Default)]
struct Times {
    ready: Vec<Duration>,
    answered: Vec<Duration>,
}

const USAGE: &str = "stead-bench-start [--quick] [--json] [--rounds N]";

/// Entry point of `scripts/bench start`.
pub fn main() {
    check_arguments(USAGE);
    block_on(run(BenchOptions::read()));
}

async fn run(options: BenchOptions) {
    let work_dir = WorkDir::new();
    let database = Database::start(&work_dir.of("cluster")).await;
    let data = work_dir.of("server");
    // The first start creates keys and the first owner.
    drop(ServerProcess::start(&database, &data, None).await);
    let mut all: BTreeMap<usize, Times> = BTreeMap::new();
    let rounds = options.rounds * options.choose(1, 3);
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let up = work_dir.of(&format!("up-{round}"));
        for number in 0..STARTS.len() {
            let began = Instant::now();
            let serving = match number {
                0 => ServerProcess::start(&database, &data, None).await,
                _ => ServerProcess::up(&up).await,
            };
            let times = all.entry(number).or_default();
            times.ready.push(began.elapsed());
            answered(&serving).await;
            times.answered.push(began.elapsed());
        }
        delete(&up);
    }
    let conditions = Conditions::of(database.root(), rounds, Duration::ZERO).await;
    database.stop().await;
    match options.json {
        true => println!("{:#}", json_of(all, &conditions)),
        false => println!("{}", markdown(all, &conditions)),
    }
}

async fn answered(serving: &ServerProcess) {
    let client = serving.client();
    client.wire().send(client.get("/v1/whoami")).await.unwrap().ok();
}

/// Deletes the directory, because a cluster takes 40 MB.
fn delete(directory: &Path) {
    std::fs::remove_dir_all(directory).unwrap();
}

fn markdown(all: BTreeMap<usize, Times>, conditions: &Conditions) -> String {
    let mut text = format!(
        "{}\n| operation, ms | ready: p50 | max | first response: p50 | max | target |\n|---|---|---|---|---|---|\n",
        conditions.markdown()
    );
    for (number, Times { ready, answered }) in all {
        let (what, bar) = STARTS[number];
        let (ready, answered) = (Quantiles::of(ready), Quantiles::of(answered));
        let _ = writeln!(
            text,
            "| {what} | {:.0} | {:.0} | {:.0} | {:.0} | {bar} |",
            ready.p50, ready.most, answered.p50, answered.most
        );
    }
    text
}

fn json_of(all: BTreeMap<usize, Times>, conditions: &Conditions) -> Value {
    let starts = all.into_iter().map(|(number, Times { ready, answered })| {
        let (what, bar) = STARTS[number];
        json!({
            "what": what, "bar": bar, "ready": Quantiles::of(ready).json(),
            "first_response": Quantiles::of(answered).json(),
        })
    });
    json!({"conditions": conditions.json(), "starts": starts.collect::<Vec<_>>()})
}
