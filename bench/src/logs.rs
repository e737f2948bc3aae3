//! Durable job logs over the Runner API, compared with COPY of the same bytes.
//!
//! ```text
//! Stead    `stead serve` as a separate process; 64 runners with one execution each send chunks of 64 KiB one after the
//!          other; the chunks are compressed before the clock starts, because real runners use other machines
//! COPY     one connection, binary; the same chunks, 128 per commit, compressed by Postgres with lz4; and the same lines,
//!          one row each, 10,000 per commit
//! ```
//! The bytes are the output of `terraform plan` and `apply` for some hundred resources, in the
//! records that runners write.
mod cells;
mod copy;
mod stead;
mod terraform;

use measure::{Conditions, Figure, Meter, Report};
use serde_json::json;

use self::{
    cells::{Cell, RATIOS},
    stead::Ours,
    terraform::Output,
};
use crate::{
    command_line::{BenchOptions, WorkDir, block_on, check_arguments},
    database::Database,
    server_process::ServerProcess,
};

const USAGE: &str = "stead-bench-logs [--quick] [--json] [--rounds N] [--seconds N]";

/// Entry point of `scripts/bench logs`.
pub fn main() {
    check_arguments(USAGE);
    block_on(run(BenchOptions::read()));
}

async fn run(options: BenchOptions) {
    let work_dir = WorkDir::new();
    let database = Database::start(&work_dir.of("cluster")).await;
    let serving = ServerProcess::start(&database, &work_dir.of("server"), None).await;
    let output = Output::of(options.choose(2, 32) << 20);
    let has_lz4 = copy::prepare(database.anchor()).await;
    if !has_lz4 {
        eprintln!(
            "SKIPPED: this Postgres was built without lz4; there are no chunks to compare with"
        );
    }
    let mut ours = Ours::start(&serving, &output).await;
    let mut report = Report::of("kB", RATIOS);
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for cell in Cell::ALL.into_iter().filter(|cell| has_lz4 || *cell != Cell::CopyChunks) {
            let meter = Meter::start(database.cluster.pid().unwrap(), &[serving.pid()]);
            let run = match cell {
                Cell::CopyChunks => copy::chunks(database.anchor(), &output, options.period).await,
                Cell::Stead => ours.send(options.period).await,
                Cell::CopyRows => copy::rows(database.anchor(), &output, options.period).await,
            };
            report.add(cell, Figure::of(run, meter.stop()));
        }
    }
    let conditions = Conditions::of(database.root(), options.rounds, options.period).await;
    let stored = stead::stored(&database, &ours).await;
    let copied = if has_lz4 { copy::stored(database.anchor()).await } else { f64::NAN };
    drop(serving);
    database.stop().await;
    let text = output.text as f64 / output.bytes.len() as f64;
    if options.json {
        let mut json = report.json(&conditions);
        json["stored"] = json!({
            "bytes_of_chunks_per_raw": stored.chunks, "bytes_of_relations_per_raw": stored.relations,
            "bytes_of_relations_per_text": stored.relations / text,
            "copy_lz4_relations_per_raw": copied, "bar": "≤ 0.4",
            "bytes_a_line": output.bytes.len() as f64 / output.lines() as f64,
        });
        println!("{json:#}");
        return;
    }
    println!("{}", report.markdown(&conditions));
    println!("| stored bytes ÷ bytes of the log | ratio | target |\n|---|---|---|");
    println!("| Stead, the chunks | {:.3} | |", stored.chunks);
    println!("| Stead, tables and indexes on disk | {:.3} | ≤ 0.4 |", stored.relations);
    println!(
        "| Stead, tables and indexes ÷ text of the lines | {:.3} | |",
        stored.relations / text
    );
    println!("| COPY of lz4 chunks, tables and indexes on disk | {copied:.3} | |");
    println!("\n{:.0} bytes a line.", output.bytes.len() as f64 / output.lines() as f64);
}
