//! One measurement, and what is said of several of the same.
use std::time::Duration;

use serde_json::{Value, json};

use super::Used;

/// What a contender did.
pub struct Run {
    /// How many events, jobs, rows.
    pub events: usize,
    /// In how long.
    pub whole: Duration,
    /// The time of each call, where there are calls.
    pub calls: Vec<Duration>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Events in a second.
    pub per_second: f64,
    /// Of one call; absent where many go together.
    pub call: Option<Quantiles>,
    /// Processor time of each event, µs.
    pub used: Used,
}

impl Figure {
    /// What a contender did, and what it took.
    pub fn of(Run { events, whole, calls }: Run, used: Used) -> Figure {
        let call = (!calls.is_empty()).then(|| Quantiles::of(calls));
        let used = used.each(events);
        Figure { per_second: events as f64 / whole.as_secs_f64(), call, used }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "per_second": self.per_second,
            "p50_ms": self.call.map(|call| call.p50),
            "p99_ms": self.call.map(|call| call.p99),
            "client_us_each": self.used.client,
            "server_us_each": self.used.server,
            "database_us_each": self.used.database,
        })
    }
}

/// Milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Quantiles {
    /// Of how many.
    pub number: usize,
    /// Half of them took less.
    pub p50: f64,
    /// One in a hundred took longer.
    pub p99: f64,
    /// The longest.
    pub most: f64,
}

impl Quantiles {
    /// Of these, of which there is one at least.
    pub fn of(mut times: Vec<Duration>) -> Quantiles {
        times.sort_unstable();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len() - 1);
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Quantiles { number: times.len(), p50: at(0.5), p99: at(0.99), most: at(1.0) }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({"samples": self.number, "p50_ms": self.p50, "p99_ms": self.p99, "max_ms": self.most})
    }

    /// One row of a table: number, p50, p99, the longest.
    pub fn row(&self, name: &str) -> String {
        let Quantiles { number, p50, p99, most } = self;
        format!("| {name} | {number} | {p50:.2} | {p99:.2} | {most:.2} |\n")
    }
}

/// The median, and the range in brackets.
pub fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return "–".into() };
    let median = values.get(values.len() / 2).unwrap_or(first);
    format!("{median:.digits$} [{first:.digits$} … {last:.digits$}]")
}
