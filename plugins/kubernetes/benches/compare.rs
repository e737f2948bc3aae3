//! Comparison of operations of a plugin with those of another program, in the same run.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 1;

/// Largest time of the plugin.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// As a multiple of the time of the other program.
    Ratio(f64),
    /// Added to the time of the other program.
    Added(Duration),
}

impl Target {
    fn is_met(self, plugin: Duration, other: Duration) -> bool {
        match self {
            Target::Ratio(ratio) => plugin <= other.mul_f64(ratio),
            Target::Added(added) => plugin <= other + added,
        }
    }

    fn text(self) -> String {
        match self {
            Target::Ratio(ratio) => format!("≤ {ratio} ×"),
            Target::Added(added) => format!("≤ + {} ms", added.as_millis()),
        }
    }
}

struct Row {
    name: &'static str,
    plugin: Vec<Duration>,
    other: Vec<Duration>,
}

/// Durations of all operations and rounds.
pub struct Comparison {
    /// Objects of the operations, such as a chart.
    subject: &'static str,
    /// Name of the other program.
    other: &'static str,
    target: Target,
    rows: Vec<Row>,
    is_quick: bool,
    round: usize,
}

impl Comparison {
    pub fn new(subject: &'static str, other: &'static str, target: Target) -> Comparison {
        let is_quick = has("--quick");
        Comparison { subject, other, target, rows: vec![], is_quick, round: 0 }
    }

    /// Begins the next round. Returns false after the last one.
    pub fn next_round(&mut self) -> bool {
        self.round += 1;
        let rounds = if self.is_quick { QUICK_ROUNDS } else { ROUNDS };
        let is_next = self.round <= rounds;
        if is_next {
            eprintln!("round {} of {rounds}", self.round);
        }
        is_next
    }

    /// Measures an operation with both programs. The order alternates, so that neither side always
    /// runs on a warm server.
    pub fn measure(&mut self, name: &'static str, plugin: impl FnOnce(), other: impl FnOnce()) {
        let (plugin, other) = match self.round % 2 {
            0 => {
                let other = timed(other);
                (timed(plugin), other)
            }
            _ => {
                let plugin = timed(plugin);
                (plugin, timed(other))
            }
        };
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name, plugin: vec![], other: vec![] });
            self.rows.len() - 1
        });
        self.rows[at].plugin.push(plugin);
        self.rows[at].other.push(other);
    }

    /// Prints the medians. Panics if one misses the target, except after a quick run.
    pub fn report(self) {
        match has("--json") {
            true => println!("{:#}", self.json()),
            false => println!("{}", self.markdown()),
        }
        let missed = |row: &&Row| !self.target.is_met(median(&row.plugin), median(&row.other));
        let missed: Vec<_> = self.rows.iter().filter(missed).map(|row| row.name).collect();
        assert!(self.is_quick || missed.is_empty(), "missed the target: {}", missed.join("; "));
    }

    fn markdown(&self) -> String {
        let Comparison { subject, other, target, .. } = self;
        let rounds = self.rows.first().map_or(0, |row| row.plugin.len());
        let target = target.text();
        let mut text = format!(
            "| {subject}, median of {rounds} | plugin | {other} | ratio | difference | target |\n\
             |---|---|---|---|---|---|\n"
        );
        for row in &self.rows {
            let [plugin, other] =
                [&row.plugin, &row.other].map(|times| median(times).as_secs_f64() * 1e3);
            let (name, ratio, added) = (row.name, plugin / other, plugin - other);
            text += &format!(
                "| {name} | {plugin:.0} ms | {other:.0} ms | {ratio:.2} × | {added:+.0} ms | {target} |\n"
            );
        }
        text
    }

    fn json(&self) -> Value {
        let milliseconds = |times: &[Duration]| -> Vec<f64> {
            times.iter().map(|time| time.as_secs_f64() * 1e3).collect()
        };
        let rows = self.rows.iter().map(|row| {
            let (plugin, other) = (milliseconds(&row.plugin), milliseconds(&row.other));
            json!({ "what": row.name, "plugin_ms": plugin, "other_ms": other })
        });
        let rows: Vec<Value> = rows.collect();
        let target = self.target.text();
        json!({ "subject": self.subject, "other": self.other, "target": target, "rows": rows })
    }
}

fn has(option: &str) -> bool {
    std::env::args().any(|argument| argument == option)
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}
