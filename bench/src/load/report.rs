//! Results as text and as JSON.
use std::fmt::Write as _;

use measure::{Quantiles, machine};
use serde_json::{Value, json};

use super::{Options, claims::Claims, parked::Parked};

pub struct Report {
    options: Options,
    machine: String,
    settings: Vec<(String, String)>,
    claim: Quantiles,
    offer: Quantiles,
    commit: Quantiles,
    parked: Parked,
}

impl Report {
    pub fn of(
        options: Options,
        settings: Vec<(String, String)>,
        claims: Claims,
        parked: Parked,
    ) -> Report {
        let Claims { queued, offered, commits } = claims;
        let [claim, offer, commit] = [queued, offered, commits].map(Quantiles::of);
        Report { options, machine: machine(), settings, claim, offer, commit, parked }
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.machine);
        let settings: Vec<_> = self.settings.iter().map(|(n, v)| format!("{n} {v}")).collect();
        let _ = writeln!(text, "Postgres: {}.\n", settings.join(", "));
        text.push_str("| what | samples | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|\n");
        text.push_str(&self.claim.row("job queued (acknowledged) → response to the claim"));
        text.push_str(&self.offer.row("job queued (acknowledged) → offer received"));
        text.push_str(&self.commit.row("bare one-row commit, same run, in turns"));
        let ratio = self.claim.p50 / self.commit.p50;
        let _ = writeln!(text, "\np50 of a claim in bare commits: {ratio:.1}\n");
        let Parked { unit, alone, crowded, memory: (before, after) } = &self.parked;
        let runners = self.options.runners - 1;
        let _ = writeln!(
            text,
            "| runners with an open long poll | {unit} a minute | resident memory |\n|---|---|---|"
        );
        let mib = |bytes: &u64| *bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(text, "| none | {:.0} | {:.1} MiB |", alone.a_minute, mib(before));
        let _ = writeln!(text, "| {runners} | {:.0} | {:.1} MiB |", crowded.a_minute, mib(after));
        let _ = writeln!(
            text,
            "\nResident memory per runner with an open long poll: {:.1} KiB.",
            self.each() / 1024.0
        );
        for (name, window) in [("none", alone), ("all of them", crowded)] {
            for (query, calls) in &window.busiest {
                eprintln!("  with {name} in {} s: {calls} × {query}", self.options.window_s);
            }
        }
        text
    }

    pub fn json(&self, append: &str) -> String {
        let Parked { unit, alone, crowded, memory: (before, after) } = &self.parked;
        let report = json!({
            "machine": self.machine,
            "postgres": self.settings.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "claim": self.claim.json(),
            "offer": self.offer.json(),
            "bare_commit": self.commit.json(),
            "append": rows(append),
            "parked": {
                "runners": self.options.runners - 1, "unit": unit, "window_s": self.options.window_s,
                "a_minute_without": alone.a_minute, "a_minute_with": crowded.a_minute,
                "resident_bytes_without": before, "resident_bytes_with": after,
                "bytes_per_runner": self.each(),
            },
        });
        report.to_string()
    }

    /// Resident bytes per runner with an open long poll.
    fn each(&self) -> f64 {
        let (before, after) = self.parked.memory;
        (after.saturating_sub(before)) as f64 / (self.options.runners - 1) as f64
    }
}

/// Rows of Markdown tables, with the names of their columns.
fn rows(tables: &str) -> Vec<Value> {
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    for line in tables.lines() {
        let Some(cells) = line.strip_prefix('|') else {
            names.clear();
            continue;
        };
        let cells = cells.trim_end_matches('|').split('|').map(|cell| cell.trim().to_string());
        let cells: Vec<_> = cells.collect();
        if names.is_empty() {
            names = cells;
        } else if !cells.iter().all(|cell| cell.starts_with("---")) {
            let pairs = names.iter().cloned().zip(cells.into_iter().map(Value::String));
            rows.push(Value::Object(pairs.collect()));
        }
    }
    rows
}
