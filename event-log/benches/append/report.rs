//! Ratios first: absolute figures are one machine's on one evening.
use std::{collections::BTreeMap, fmt::Write, time::Duration};

use serde_json::{Value, json};

use crate::cpu::Used;

/// What was measured, with how many callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Insert(usize),
    Stead(usize),
    PostgresEs(usize),
    MessageDb(usize),
    Emmett(usize),
    CopyIn,
    CopyOut,
}

impl Cell {
    /// Whether it needs what npm installs.
    pub fn is_of_npm(self) -> bool {
        matches!(self, Cell::MessageDb(_) | Cell::Emmett(_))
    }

    fn name(self) -> String {
        match self {
            Cell::Insert(n) => {
                format!("single-row INSERT, 2 indexes (pgbench), {n} connections")
            }
            Cell::Stead(n) => format!("Stead append, everything on, 5 % conflicts, {n} callers"),
            Cell::PostgresEs(n) => format!("postgres-es 0.5 execute, no conflicts, {n} callers"),
            Cell::MessageDb(n) => {
                format!("message-db 1.3 write_message (pgbench), no conflicts, {n} connections")
            }
            Cell::Emmett(n) => {
                format!("emmett-postgresql 0.42 appendToStream, no conflicts, {n} callers")
            }
            Cell::CopyIn => "COPY in, 10,000 rows a commit, 2 indexes".into(),
            Cell::CopyOut => "COPY out, binary, Stead's log".into(),
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub per_second: f64,
    /// Of one call; absent where many rows go together.
    pub call: Option<Quantiles>,
    /// Processor time per event, µs: of whoever asks, and of the database.
    pub used: Used,
}

#[derive(Debug, Clone, Copy)]
pub struct Quantiles {
    pub p50: Duration,
    pub p99: Duration,
}

/// What a contender did.
pub struct Run {
    pub events: usize,
    pub whole: Duration,
    /// The time of each call, where there are calls.
    pub calls: Vec<Duration>,
}

impl Figure {
    pub fn of(Run { events, whole, mut calls }: Run, used: Used) -> Figure {
        calls.sort_unstable();
        let at = |part: f64| {
            let index = (calls.len() as f64 * part) as usize;
            calls.get(index.min(calls.len().saturating_sub(1))).copied()
        };
        let call = at(0.5).zip(at(0.99)).map(|(p50, p99)| Quantiles { p50, p99 });
        let each = |of: f64| of / events as f64;
        let used = Used { client: each(used.client), database: each(used.database) };
        Figure { per_second: events as f64 / whole.as_secs_f64(), call, used }
    }
}

/// A ratio, and the bar it is held to.
struct Ratio {
    name: &'static str,
    over: Cell,
    under: Cell,
    of: fn(&Figure) -> f64,
    bar: &'static str,
}

fn speed(figure: &Figure) -> f64 {
    figure.per_second
}

fn latency(figure: &Figure) -> f64 {
    figure.call.map_or(f64::NAN, |call| call.p50.as_secs_f64())
}

#[rustfmt::skip]
const RATIOS: [Ratio; 9] = {
    use Cell::*;
    [
        Ratio { name: "64 callers ÷ postgres-es at 64", over: Stead(64), under: PostgresEs(64), of: speed, bar: "≥ 4, aim 8" },
        Ratio { name: "64 callers ÷ message-db at 64", over: Stead(64), under: MessageDb(64), of: speed, bar: "" },
        Ratio { name: "64 callers ÷ emmett-postgresql at 64", over: Stead(64), under: Emmett(64), of: speed, bar: "" },
        Ratio { name: "256 callers ÷ INSERT at 16", over: Stead(256), under: Insert(16), of: speed, bar: "≥ 2, aim 4" },
        Ratio { name: "64 callers ÷ INSERT at 64", over: Stead(64), under: Insert(64), of: speed, bar: "" },
        Ratio { name: "16 callers ÷ INSERT at 16", over: Stead(16), under: Insert(16), of: speed, bar: "" },
        Ratio { name: "256 callers ÷ COPY in", over: Stead(256), under: CopyIn, of: speed, bar: "" },
        Ratio { name: "1 caller, p50 ÷ bare one-row commit", over: Stead(1), under: Insert(1), of: latency, bar: "≤ 1.5, aim 1.2" },
        Ratio { name: "1 caller, p50 ÷ message-db at 1", over: Stead(1), under: MessageDb(1), of: latency, bar: "" },
    ]
};

#[derive(Default)]
pub struct Report {
    figures: BTreeMap<Cell, Vec<Figure>>,
    /// Events verified a second, of each round.
    pub verified: Vec<f64>,
}

impl Report {
    pub fn add(&mut self, cell: Cell, figure: Figure) {
        eprintln!("  {cell:?}: {:.0}/s", figure.per_second);
        self.figures.entry(cell).or_default().push(figure);
    }

    /// Medians and ranges of the figures and of their ratios, round by round.
    pub fn markdown(&self, rounds: u64, period: Duration) -> String {
        let mut text = format!("{rounds} rounds of {} s each, in turns.\n\n", period.as_secs());
        text.push_str(
            "| what | events/s | p50 ms | p99 ms | µs of its processor time an event | of Postgres' |\n\
             |---|---|---|---|---|---|\n",
        );
        for (cell, figures) in &self.figures {
            let of = |of: fn(&Figure) -> f64, digits| spread(figures.iter().map(of), digits);
            let millis = |of: fn(&Quantiles) -> Duration| {
                let calls = figures.iter().filter_map(|figure| figure.call);
                spread(calls.map(|call| of(&call).as_secs_f64() * 1e3), 2)
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                cell.name(),
                of(speed, 0),
                millis(|call| call.p50),
                millis(|call| call.p99),
                of(|figure| figure.used.client, 1),
                of(|figure| figure.used.database, 1),
            );
        }
        text.push_str("\n| ratio, per round | median [range] | bar |\n|---|---|---|\n");
        for (ratio, values) in self.ratios() {
            let _ = writeln!(text, "| {} | {} | {} |", ratio.name, spread(values, 2), ratio.bar);
        }
        let verified = spread(self.verified.iter().copied(), 0);
        let _ = writeln!(text, "\nThe log verified after each round: {verified} events/s.");
        text
    }

    /// The same for programs.
    pub fn json(&self, rounds: u64, period: Duration) -> Value {
        let figure = |figure: &Figure| {
            json!({
                "events_per_second": figure.per_second,
                "p50_ms": figure.call.map(|call| call.p50.as_secs_f64() * 1e3),
                "p99_ms": figure.call.map(|call| call.p99.as_secs_f64() * 1e3),
                "client_us_per_event": figure.used.client,
                "database_us_per_event": figure.used.database,
            })
        };
        let figures = self.figures.iter().map(|(cell, figures)| {
            let rounds: Vec<_> = figures.iter().map(figure).collect();
            json!({"what": cell.name(), "rounds": rounds})
        });
        let ratios = self.ratios().map(|(ratio, values)| {
            json!({"what": ratio.name, "bar": ratio.bar, "rounds": values.collect::<Vec<_>>()})
        });
        json!({
            "rounds": rounds,
            "seconds": period.as_secs(),
            "figures": figures.collect::<Vec<_>>(),
            "ratios": ratios.collect::<Vec<_>>(),
            "verified_events_per_second": self.verified,
        })
    }

    fn ratios(&self) -> impl Iterator<Item = (&'static Ratio, impl Iterator<Item = f64>)> {
        RATIOS.iter().filter_map(|ratio| {
            let (over, under) = (self.figures.get(&ratio.over)?, self.figures.get(&ratio.under)?);
            let values = over.iter().zip(under);
            Some((ratio, values.map(|(over, under)| (ratio.of)(over) / (ratio.of)(under))))
        })
    }
}

fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return "–".into() };
    let median = values.get(values.len() / 2).unwrap_or(first);
    format!("{median:.digits$} [{first:.digits$} … {last:.digits$}]")
}
